"""Packages that leave this host with what asked for them: noted before they come, purged after.

usage: packages note [--account NAME] PACKAGE...   before they are installed
       packages purge PACKAGE...

`note` remembers which of them, and whether the account that they make, this host did not have.
`purge` removes those with their configuration and data, what apt installed for them alone, and the
account. Of a package that was here before, nothing is removed.

exit codes: 0 done, 1 failed, 2 wrong use
"""

from __future__ import annotations

import json
import pwd
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field

from lockstep.onhost.core import atomic, errors, layout, output, program, runner

_REMOVED = re.compile(r"^Remv (\S+)", re.MULTILINE)
_LIMIT_S = 900.0


@dataclass
class Noted:
    """What this host did not have before.

    Attributes:
        packages: Those that a deploy named.
        accounts: Those that they make.
        before: Every package that was here when the first of them came.
    """

    packages: list[str] = field(default_factory=list)
    accounts: list[str] = field(default_factory=list)
    before: list[str] = field(default_factory=list)


def load(paths: layout.Paths) -> Noted:
    """The record; an empty one where there is none or it cannot be read."""
    try:
        return Noted(**json.loads(paths.packages.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return Noted()


def note(paths: layout.Paths, names: Sequence[str], account: str | None) -> None:
    """Remember what is not here yet. OSError where that fails."""
    kept = load(paths)
    listed = _said("dpkg-query", "-W", "-f", "${db:Status-Status} ${Package}\n").splitlines()
    here = {line.removeprefix("installed ") for line in listed if line.startswith("installed ")}
    new = [name for name in names if name not in here]
    if new and not kept.packages:
        kept.before = sorted(here)
    kept.packages += [name for name in new if name not in kept.packages]
    if account and new and not _is_account(account) and account not in kept.accounts:
        kept.accounts.append(account)
    atomic.write_json(paths.packages, asdict(kept), mode=0o600)


def purge(paths: layout.Paths, names: Sequence[str]) -> list[str]:
    """Remove those of the names that are noted; every package that went.

    Raises:
        Problem: apt or dpkg refuses.
        OSError: the record cannot be written.
    """
    kept = load(paths)
    leaving = [name for name in names if name in kept.packages]
    unneeded = _unneeded()
    _apt("purge", leaving)
    alone = sorted(_unneeded() - unneeded - set(kept.before))
    _apt("purge", alone)
    kept.packages = [name for name in kept.packages if name not in leaving]
    if not kept.packages:
        for account in filter(_is_account, kept.accounts):
            _run("userdel", account)
        kept.accounts, kept.before = [], []
    atomic.write_json(paths.packages, asdict(kept), mode=0o600)
    return [*leaving, *alone]


def _unneeded() -> set[str]:
    """Packages that apt installed for others, which are gone."""
    # By default apt keeps what a package that stays only recommends or suggests.
    needs = [f"-oAPT::AutoRemove::{kind}Important=false" for kind in ("Recommends", "Suggests")]
    return set(_REMOVED.findall(_said("apt-get", "--simulate", *needs, "autoremove")))


def _apt(verb: str, names: Sequence[str]) -> None:
    if names:
        _run("apt-get", "-q", "-y", verb, *names)


def _said(*argv: str) -> str:
    return runner.run(list(argv), timeout=_LIMIT_S).stdout


def _run(*argv: str) -> None:
    done = runner.run(list(argv), timeout=_LIMIT_S)
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip().splitlines()[-3:]
        raise errors.Problem(f"{' '.join(argv)} failed: {' / '.join(said)}")


def _is_account(name: str) -> bool:
    with suppress(KeyError):
        return bool(pwd.getpwnam(name))
    return False


def main(argv: list[str], paths: layout.Paths | None = None) -> int:
    """Command line; see the module's docstring."""
    paths = paths or layout.Paths()
    parser = program.parser(__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    for verb in ("note", "purge"):
        words = verbs.add_parser(verb)
        words.add_argument("packages", nargs="+", metavar="PACKAGE")
        if verb == "note":
            words.add_argument("--account", metavar="NAME")
    options = parser.parse_args(argv)
    if options.verb == "note":
        note(paths, options.packages, options.account)
    else:
        for name in purge(paths, options.packages):
            output.say(f"{name} is purged")
    return errors.EXIT_DONE
