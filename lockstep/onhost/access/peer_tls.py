"""TLS between the Sparks of an inventory: both sides show a certificate of its authority.

A certificate names a host and one role there, so that a program with the key of one role cannot
speak for another. No clock decides, because that of a Spark without a network may be years off:
what ends a certificate is a new authority.
"""

from __future__ import annotations

import os
import re
import ssl
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from lockstep.onhost.core import errors, http_client, layout

#: The role of the agent of a cluster's member, and of the programs that ask it.
AGENT = "agent"
#: The role of a gateway.
GATEWAY = "gateway"
# X509_V_FLAG_NO_CHECK_TIME of OpenSSL's x509_vfy.h; Python has no name for it.
_NO_CHECK_TIME = 0x200000
_CERTIFICATE = re.compile(
    r"-----BEGIN CERTIFICATE-----\n[A-Za-z0-9+/=\n]+-----END CERTIFICATE-----\n"
)


def certificate_name(role: str, host: str) -> str:
    """Return the name in a certificate, a URI: it is no address, and fits any host's name."""
    return f"lockstep:{role}:{host}"


def credential_name(role: str) -> str:
    """Return the name of the systemd credential with the identity of a role."""
    return f"peer-{role}"


def identity_file_name(role: str, host: str) -> str:
    """Return the file name of a role's identity in the folder of secrets.

    A host's name in the inventory may have characters that a file or a unit cannot have.
    """
    return f"peer-{role}-{re.sub(r'[^A-Za-z0-9_.-]', '-', host)}.pem"


def identity_path(paths: layout.Paths, role: str, host: str) -> Path:
    """Return the path of this host's identity: a systemd credential, or the file of secrets."""
    folder = os.environ.get("CREDENTIALS_DIRECTORY")
    given_path = Path(folder or "/nonexistent", credential_name(role))
    return given_path if given_path.exists() else paths.secrets / identity_file_name(role, host)


def make_context(identity: Path, *, is_server: bool) -> ssl.SSLContext:
    """Return one side of TLS; `identity` has its key, its certificate and that of the authority.

    Raises:
        errors.Problem: The file is not there, or holds something else.
    """
    side = ssl.PROTOCOL_TLS_SERVER if is_server else ssl.PROTOCOL_TLS_CLIENT
    context = ssl.SSLContext(side)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    # The name of its role is checked, on both sides; addresses prove nothing.
    context.check_hostname = False
    context.verify_mode = ssl.CERT_REQUIRED
    context.verify_flags |= ssl.VerifyFlags(_NO_CHECK_TIME)
    if is_server:
        # Each connection proves itself anew.
        context.num_tickets = 0
    try:
        context.load_cert_chain(identity)
        context.load_verify_locations(
            cadata=_CERTIFICATE.findall(identity.read_text(encoding="ascii"))[-1]
        )
    except (OSError, ValueError, LookupError) as error:
        raise errors.Problem(
            f"certificate among Sparks: {identity}: {errors.why(error)}. Remedy: remove it if it "
            "is there (a unit's copy is of /etc/lockstep/secrets/peer-*.pem), and run the deploy"
        ) from error
    return context


def client_context(identity: Path, role: str, hosts: Mapping[str, str]) -> ssl.SSLContext:
    """Return a client's side for libraries that open connections by themselves.

    At each address of `hosts` (address → host) it accepts only that host in that role.

    Raises:
        errors.Problem: As `make_context`.
    """

    class _Connection(ssl.SSLObject):
        def do_handshake(self) -> None:
            super().do_handshake()
            _check_name(self, certificate_name(role, hosts[str(self.server_hostname)]))

    context = make_context(identity, is_server=False)
    context.sslobject_class = _Connection
    return context


def has_key_and_certificate(path: Path) -> bool:
    """Tell whether a file has a certificate and its key."""
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(path)
    except (OSError, ValueError):
        return False
    return True


def is_identity_accepted(identity: Path, authority: Path, name: str) -> bool:
    """Tell whether the holders of `authority` accept `identity` as `name`, by trying it on itself.

    Its end is no reason to refuse it, as nowhere on this wire.
    """
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    try:
        server, client = (make_context(identity, is_server=side) for side in (True, False))
        texts = [path.read_text(encoding="ascii") for path in (identity, authority)]
        identity_authority, own_authority = (_CERTIFICATE.findall(text)[-1:] for text in texts)
        near = client.wrap_bio(to_client, to_server)
        far = server.wrap_bio(to_server, to_client, server_side=True)
        # Each side speaks twice in TLS 1.3.
        for side in (near, far, near, far):
            with suppress(ssl.SSLWantReadError):
                side.do_handshake()
    except (errors.Problem, OSError, ValueError):
        return False
    return identity_authority == own_authority and name in names_of(far)


def names_of(connection: Any) -> list[str]:
    """Return the names in the certificate of the other side of a TLS connection."""
    certificate = connection.getpeercert() or {}
    return [name for kind, name in certificate.get("subjectAltName", ()) if kind == "URI"]


def expected_peer(context: ssl.SSLContext, role: str, host: str) -> http_client.ExpectedPeer:
    """Return the peer that a client asks, for `http_client`."""
    name = certificate_name(role, host)
    return http_client.ExpectedPeer(context, lambda connection: _check_name(connection, name))


def _check_name(connection: Any, name: str) -> None:
    if name not in (names := names_of(connection)):
        # Libraries know this error as one of a handshake.
        found = ", ".join(names) or "no name"
        raise ssl.SSLCertVerificationError(f"expected {name}, found {found}")
