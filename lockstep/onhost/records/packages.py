"""Packages that a deploy installs: noted before they come, purged when nothing asks for them.

usage: packages note PACKAGE[=ACCOUNT]...   before they are installed
       packages purge PACKAGE...

`note` remembers which of them, and whether the ACCOUNT that one makes, this host did not have.
`purge` removes those with their configuration and data, what apt installed for them alone, and the
account. Of a package that was here before, nothing is removed.

exit codes: 0 done, 1 failed, 2 wrong use
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field

from lockstep.onhost.core import atomic, errors, layout, output, program, runner
from lockstep.onhost.records import ours

_REMOVED = re.compile(r"^(?:Remv|Purg) (\S+)", re.MULTILINE)
_LIMIT_S = 900.0


@dataclass
class Noted:
    """What this host did not have before.

    Attributes:
        packages: Those that a deploy installed.
        accounts: Account → packages that make it.
        before: Every package that was here when the first of them came.
    """

    packages: list[str] = field(default_factory=list)
    accounts: dict[str, list[str]] = field(default_factory=dict)
    before: list[str] = field(default_factory=list)


def load(paths: layout.Paths) -> Noted:
    """The record; an empty one where there is none or it cannot be read."""
    try:
        kept = Noted(**json.loads(paths.packages.read_text(encoding="utf-8")))
        # Until 2026-11-23 it had one account of all packages that it named.
        kept.accounts = {name: list(of) for name, of in _accounts(kept).items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return Noted()
    return kept


def _accounts(kept: Noted) -> dict[str, list[str]]:
    listed: object = kept.accounts
    return dict.fromkeys(listed, kept.packages) if isinstance(listed, list) else kept.accounts


def note(paths: layout.Paths, names: Sequence[str]) -> None:
    """Remember what is not here yet, of PACKAGE or PACKAGE=ACCOUNT. OSError where that fails."""
    kept = load(paths)
    here = {name for name, status in _listed().items() if status == "installed"}
    new = [each.partition("=") for each in names if each.partition("=")[0] not in here]
    if new and not kept.before:
        kept.before = sorted(here)
    for name, _, account in new:
        if name not in kept.packages:
            kept.packages.append(name)
        if account and (account in kept.accounts or ours.home_of(account) is None):
            makers = kept.accounts.setdefault(account, [])
            makers += [] if name in makers else [name]
    atomic.write_json(paths.packages, asdict(kept), mode=0o600)


def purge(paths: layout.Paths, names: Sequence[str]) -> list[str]:
    """Remove those of the names that are noted; every package that went.

    One that a package of somebody else's needs by now stays, and stays noted. Problem when apt or
    dpkg refuses, OSError when the record cannot be written.
    """
    kept = load(paths)
    known = _listed()
    noted = [name for name in names if name in kept.packages]
    leaving = _free([name for name in noted if name in known])
    # By default apt keeps what a package that stays only recommends or suggests.
    needs = [f"-oAPT::AutoRemove::{kind}Important=false" for kind in ("Recommends", "Suggests")]
    with_them = _taken(*needs, "--auto-remove", "purge", *leaving) if leaving else set()
    alone = with_them - _taken(*needs, "autoremove") - set(kept.before) - set(leaving)
    # A run that is cut off leaves them to the next one: nothing else tells whose they were.
    kept.packages += sorted(alone - set(kept.packages))
    atomic.write_json(paths.packages, asdict(kept), mode=0o600)
    gone = [*leaving, *sorted(alone)]
    if gone:
        runner.must("apt-get", "-q", "-y", "purge", *gone, timeout=_LIMIT_S)
    never = {name for name in noted if name not in known}
    kept.packages = [name for name in kept.packages if name not in {*gone, *never}]
    for account, makers in list(kept.accounts.items()):
        if not set(makers) & set(kept.packages):
            if ours.home_of(account) is not None:
                runner.must("userdel", account, timeout=_LIMIT_S)
            del kept.accounts[account]
    atomic.write_json(paths.packages, asdict(kept), mode=0o600)
    return gone


def needed(names: Sequence[str]) -> list[str]:
    """Those that cannot go without a package that is not among them."""
    known = _listed()
    here = [name for name in names if name in known]
    free = _free(here)
    return [name for name in here if name not in free]


def _free(names: Sequence[str]) -> list[str]:
    """Packages that go without any that is not among them."""
    every = list(names)
    if not every or _taken("purge", *every) <= set(every):
        return every
    free = [name for name in every if _taken("purge", name) <= set(every)]
    return free if free == every else _free(free)


def _taken(*words: str) -> set[str]:
    """Packages that apt would remove."""
    return set(_REMOVED.findall(_said("apt-get", "--simulate", *words)))


def _listed() -> dict[str, str]:
    """Package → its status, of every one that dpkg has something of."""
    said = _said("dpkg-query", "-W", "-f", "${db:Status-Status} ${Package}\n").splitlines()
    pairs = (line.split() for line in said if not line.startswith("not-installed "))
    return {name: status for status, name in pairs}


def _said(*argv: str) -> str:
    return runner.run(list(argv), timeout=_LIMIT_S).stdout


def main(argv: list[str], paths: layout.Paths | None = None) -> int:
    """Command line; see the module's docstring."""
    paths = paths or layout.Paths()
    parser = program.parser(__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    for verb, form in (("note", "PACKAGE[=ACCOUNT]"), ("purge", "PACKAGE")):
        verbs.add_parser(verb).add_argument("packages", nargs="+", metavar=form)
    options = parser.parse_args(argv)
    if options.verb == "note":
        note(paths, options.packages)
    else:
        for name in purge(paths, options.packages):
            output.say(f"{name} is purged")
    return errors.EXIT_DONE
