"""Make the authority that signs the certificates of an inventory's gateways, once.

usage: make-authority FILE [NAME ...]
       make-authority --take FILE

FILE holds the authority's key and its own certificate (PEM), for root alone. The certificate is
also beside the folder of FILE, as authority.crt, for everybody. Wherever it is installed, its
signature counts only for private names and addresses, and for each NAME and its subdomains. An
existing FILE stays. --take writes standard input instead, which was made on another host. Prints no
key.

exit codes: 0 the files are there, 1 they cannot be made, 2 wrong use
"""

from __future__ import annotations

import re
import socket
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from lockstep.onhost.access import peer_tls
from lockstep.onhost.core import atomic_files, errors, event_lines

#: Names that nobody on the internet has (RFC 6762, RFC 8375, ICANN's .internal), and Tailscale's.
SUFFIXES = ("local", "lan", "home.arpa", "internal", "localhost", "ts.net")
#: RFC 1918, RFC 6598 (which Tailscale uses), RFC 3927, RFC 4193, RFC 4291, loopback.
NETWORKS = (
    *("10.0.0.0/255.0.0.0", "172.16.0.0/255.240.0.0", "192.168.0.0/255.255.0.0"),
    *("100.64.0.0/255.192.0.0", "169.254.0.0/255.255.0.0", "127.0.0.0/255.0.0.0"),
    *("fc00::/fe00::", "fe80::/ffc0::", "::1/ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
)
#: Ten years, because people install it on phones by hand.
_DAYS = 3650
_PEM = r"-----BEGIN {0}-----\n[A-Za-z0-9+/=\n]+-----END {0}-----\n"
_WHOLE = re.compile(_PEM.format("PRIVATE KEY") + f"({_PEM.format('CERTIFICATE')})")


def make_authority(names: Sequence[str], host: str) -> str:
    """Make a new key and its certificate, PEM; raise Problem if openssl cannot make them."""
    permitted_names = [
        *(f"permitted;DNS.{n} = {name}" for n, name in enumerate((*SUFFIXES, *names))),
        *(f"permitted;IP.{n} = {network}" for n, network in enumerate(NETWORKS)),
    ]
    return make_key_and_certificate(
        host,
        "basicConstraints = critical, CA:true",
        "keyUsage = critical, keyCertSign, cRLSign",
        "subjectKeyIdentifier = hash",
        "nameConstraints = critical, @permitted",
        "[permitted]",
        *permitted_names,
    )


def make_key_and_certificate(name: str, *extensions: str, signer: Path | None = None) -> str:
    """Make a new key and its certificate, PEM; raise Problem if openssl cannot make them.

    `extensions` are lines of its configuration. Without `signer`, the file of an authority, the
    certificate signs itself.
    """
    settings = f"""\
[req]
distinguished_name = name
x509_extensions = extensions
prompt = no
utf8 = yes
[name]
CN = Lockstep {name}
[extensions]
"""
    settings += "".join(f"{line}\n" for line in extensions)
    with tempfile.NamedTemporaryFile("w", prefix="lockstep-authority-", encoding="utf-8") as file:
        file.write(settings)
        file.flush()
        argv = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
        argv += ["-nodes", "-days", str(_DAYS), "-config", file.name, "-keyout", "-", "-out", "-"]
        argv += ["-CA", str(signer), "-CAkey", str(signer)] if signer else []
        result = subprocess.run(argv, capture_output=True, text=True, check=False)
    if result.returncode:
        raise errors.Problem(f"openssl: {result.stderr.strip()}")
    return result.stdout


def certificate_in_file_text(text: str) -> str:
    """Return the certificate in FILE's text; raise Problem if that is no key with certificate."""
    match = _WHOLE.fullmatch(text)
    if match is None:
        reason = f"expected a key and its certificate, found {len(text)} other characters"
        raise errors.Problem(reason)
    return match[1]


def main(argv: list[str]) -> int:
    """Run the command line; see the module's docstring."""
    taking = argv[:1] == ["--take"]
    words = argv[1:] if taking else argv
    if not words or words[0].startswith("-") or (taking and len(words) != 1):
        print((__doc__ or "").strip(), file=sys.stderr)
        return errors.EXIT_USAGE
    path = Path(words[0])
    try:
        is_present = path.exists() and not taking
        if is_present and not peer_tls.has_key_and_certificate(path):
            raise errors.Problem(
                f"{path} is damaged. Remedy: bring it back from a backup, or remove it: the deploy "
                "then makes another authority, and every device must trust that one"
            )
        if taking:
            text = sys.stdin.read().rstrip("\n") + "\n"
        elif is_present:
            text = path.read_text(encoding="ascii")
        else:
            text = make_authority(words[1:], socket.gethostname())
        public = certificate_in_file_text(text)
        # Existing files are written again: the mode may be wrong, or only one of them may be there.
        atomic_files.write(path, text, mode=0o600)
        atomic_files.write(path.parent.parent / "authority.crt", public, mode=0o644)
    except OSError as error:
        raise errors.Problem(f"{error.filename}: {error.strerror}") from error
    event_lines.say(f"{'kept' if is_present else 'took' if taking else 'made'} {path}")
    return errors.EXIT_DONE
