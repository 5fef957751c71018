"""Certificates of Sparks, as a deploy makes them."""

import functools

from lockstep.onhost.access import certificate_authority, peer_certificates, peer_tls
from lockstep.onhost.core import layout


@functools.cache
def _authority(name: str) -> str:
    """An authority of Sparks; each name has one of its own."""
    return certificate_authority.make_authority((), name)


def give_identity(
    paths: layout.Paths, host: str, role: str = peer_tls.AGENT, authority: str = "ours"
) -> None:
    """Write a role's key and certificate, as a deploy makes them."""
    paths.secrets.mkdir(parents=True, exist_ok=True)
    path = paths.secrets / "peer-authority.pem"
    path.write_text(_authority(authority))
    identity = peer_certificates.make_identity(path, host, role)
    (paths.secrets / peer_tls.identity_file_name(role, host)).write_text(identity)
