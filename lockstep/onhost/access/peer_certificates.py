"""Make the certificates by which the other Sparks of an inventory know this one.

usage: peer-certificates AUTHORITY HOST ROLE...
       peer-certificates --take AUTHORITY HOST ROLE...

AUTHORITY holds the key and the certificate of the inventory's authority for Sparks (PEM), and is
made if it is missing or damaged. --take replaces it by standard input, which was made on another
host. Beside it, each ROLE of HOST gets a file of its own, with a new key, its certificate, and that
of the authority. All files are for root alone. Prints no key.

exit codes: 0 the files are there, 1 they cannot be made, 2 wrong use
"""

from __future__ import annotations

import socket
import sys
from pathlib import Path

from lockstep.onhost.access import certificate_authority, peer_tls
from lockstep.onhost.core import atomic_files, errors, event_lines, program_command_lines


def make_identity(authority: Path, host: str, role: str) -> str:
    """Return a new key with its certificate, and the authority's; raise Problem if that fails."""
    identity = certificate_authority.make_key_and_certificate(
        role,
        "basicConstraints = critical, CA:false",
        "keyUsage = critical, digitalSignature",
        "extendedKeyUsage = serverAuth, clientAuth",
        "subjectAltName = @names",
        "[names]",
        f"URI = {peer_tls.certificate_name(role, host)}",
        signer=authority,
    )
    text = authority.read_text(encoding="ascii")
    return identity + certificate_authority.certificate_in_file_text(text)


def main(argv: list[str]) -> int:
    """Run the command line; see the module's docstring."""
    parser = program_command_lines.parser(__doc__)
    parser.add_argument("--take", action="store_true")
    parser.add_argument("authority", type=Path)
    parser.add_argument("host")
    parser.add_argument("roles", nargs="+")
    options = parser.parse_args(argv)
    path: Path = options.authority
    try:
        if options.take:
            text = sys.stdin.read().rstrip("\n") + "\n"
        elif peer_tls.has_key_and_certificate(path):
            text = path.read_text(encoding="ascii")
        else:
            text = certificate_authority.make_authority((), f"{socket.gethostname()} peers")
        certificate_authority.certificate_in_file_text(text)
        # An existing file is written again, because its mode may be wrong.
        atomic_files.write(path, text, mode=0o600)
        for role in options.roles:
            identity = make_identity(path, options.host, role)
            target_path = path.with_name(peer_tls.identity_file_name(role, options.host))
            atomic_files.write(target_path, identity, mode=0o600)
    except OSError as error:
        raise errors.Problem(f"{error.filename}: {error.strerror}") from error
    event_lines.say(f"wrote {path}, and certificates for {', '.join(options.roles)}")
    return errors.EXIT_DONE
