"""Make the ssh keys for backups to another Spark on the host; only public halves leave it.

usage: backup-key make PRIVATE PUBLIC
       backup-key host-key NAME PUBLIC
       backup-key take PUBLIC

`make` makes the pair in PRIVATE, for root alone, if it is missing, and writes its public half to
PUBLIC. `host-key` writes this host's own host key there, as a line of ssh's known hosts for NAME.
`take` writes standard input, which another host has made. Prints no key.

exit codes: 0 the files are there, 1 they cannot be made, 2 wrong use
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from lockstep.onhost.core import (
    atomic_files,
    errors,
    event_lines,
    layout,
    program_command_lines,
    runner,
)

_PUBLIC = r"ssh-ed25519 [A-Za-z0-9+/]{68}(?: [\w.@-]+)?"
#: A public half, or a line of ssh's known hosts.
_LINE = re.compile(rf"(?:[\w.-]+ )?{_PUBLIC}\n?", re.ASCII)


def make_key_pair(private: Path, public: Path) -> None:
    """Make a pair once, and write its public half; raise Problem if ssh-keygen cannot."""
    if not private.exists():
        new = private.with_name(f"{private.name}.new")
        _remove_key_pair(new)
        _run_ssh_keygen("-q", "-t", "ed25519", "-N", "", "-C", "lockstep-backup", "-f", str(new))
        new.replace(private)
        _remove_key_pair(new)
        event_lines.say(f"made {private}")
    private.chmod(0o600)
    atomic_files.write(public, _run_ssh_keygen("-y", "-f", str(private)), mode=0o644)


def write_known_hosts_line(name: str, public: Path, paths: layout.Paths) -> None:
    """Write the host key by which other hosts know this host."""
    words = paths.host_key.read_text(encoding="utf-8").split()[:2]
    atomic_files.write(public, single_key(f"{name} {' '.join(words)}"), mode=0o644)


def single_key(text: str) -> str:
    """Return one public key alone on its line; raise Problem for any other text."""
    if not _LINE.fullmatch(text):
        raise errors.Problem(f"this is no public key but {len(text)} other characters")
    return text.strip() + "\n"


def main(argv: list[str], paths: layout.Paths | None = None) -> int:
    """Run the command line; see the module's docstring."""
    parser = program_command_lines.parser(__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    for verb, more in (("make", ["private"]), ("host-key", ["name"]), ("take", [])):
        subparser = verbs.add_parser(verb)
        for argument in (*more, "public"):
            subparser.add_argument(argument)
    options = parser.parse_args(argv)
    public = Path(options.public)
    try:
        if options.verb == "make":
            make_key_pair(Path(options.private), public)
        elif options.verb == "host-key":
            write_known_hosts_line(options.name, public, paths or layout.Paths())
        else:
            atomic_files.write(public, single_key(sys.stdin.read()), mode=0o644)
    except OSError as error:
        raise errors.Problem(f"{error.filename}: {error.strerror}") from error
    event_lines.say(f"wrote {public}")
    return errors.EXIT_DONE


def _run_ssh_keygen(*words: str) -> str:
    result = runner.run(["ssh-keygen", *words])
    if result.returncode:
        raise errors.Problem(f"ssh-keygen failed: {result.stderr.strip()[-300:]}")
    return result.stdout


def _remove_key_pair(new: Path) -> None:
    for path in (new, new.with_name(f"{new.name}.pub")):
        path.unlink(missing_ok=True)
