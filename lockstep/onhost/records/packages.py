"""Packages that a deploy installs: noted before they come, purged when nothing asks for them.

usage: packages note PACKAGE[=ACCOUNT]...   before they are installed
       packages prepare PACKAGE...          between the two
       packages settle                      after they were installed
       packages purge PACKAGE...

`note` remembers which of them, and whether the ACCOUNT that one makes, this host did not have.
`prepare` reads the archive's lists and makes sure that apt can install them. It refuses where
packages of others are half installed: apt would go on with them, and one that downloads a snap
while it is configured takes hours. What a run of ours that was cut off left, apt goes on with:
what was to come is on record until `settle` says that all has.
`purge` removes those with their configuration and data, what apt installed for them alone, and the
account. Of a package that was here before, nothing is removed.

exit codes: 0 done, 1 failed, 2 wrong use
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace

from lockstep.onhost.core import atomic, errors, layout, output, program, runner
from lockstep.onhost.records import ours

_REMOVED = re.compile(r"^(?:Remv|Purg) (\S+)", re.MULTILINE)
_COMING = re.compile(r"^Inst (\S+)", re.MULTILINE)
_UNMET = re.compile(r"^ (\S+) : ((?:Pre)?Depends: .+)$", re.MULTILINE)
# With a source that does not answer apt-get warns, and takes the lists of before (apt 2.6 to 3.0).
_FAULT = re.compile(r"^(?:E: |W: (?:Failed to fetch|GPG error|An error occurred during)).*://")
# What dpkg has begun with and not ended. One that waits for triggers is installed.
_UNFINISHED = ("half-installed", "unpacked", "half-configured")
_LIMIT_S = 900.0
# Where a dpkg was killed, apt demands that its journal is worked off. Each dpkg that writes does
# that; `--configure -a`, which apt names, would go on with everybody's packages besides.
MERGE = ("sh", "-c", "dpkg --set-selections < /dev/null")
# As a deploy installs: a package that conflicts with one of the system's (docker.io with docker-ce)
# is refused. What a cut-off run of ours left is put right along with it.
INSTALL = ("install", "--fix-broken", "--no-remove", "--no-install-recommends")


@dataclass
class Noted:
    """What this host did not have before.

    Attributes:
        packages: Those that a deploy installed.
        accounts: Account → packages that make it.
        before: Every package that was here when the first of them came.
        coming: All that apt installs in the run that is under way, or in one that was cut off.
    """

    packages: list[str] = field(default_factory=list)
    accounts: dict[str, list[str]] = field(default_factory=dict)
    before: list[str] = field(default_factory=list)
    coming: list[str] = field(default_factory=list)


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


def unfinished_packages(paths: layout.Paths, names: Sequence[str]) -> dict[str, str]:
    """Packages of others that block apt → in what state they are, and what they wait for.

    `names` are what a deploy installs: those, and what an earlier run brought with them, are ours.
    """
    kept = load(paths)
    own = {*names, *kept.packages, *kept.coming}
    found = {name: status for name, status in _listed().items() if status in _UNFINISHED}
    # Nothing is changed, so no lock is taken: somebody may hold it.
    checked = runner.run(["apt-get", "-q", "-oDebug::NoLocking=1", "check"], timeout=_LIMIT_S)
    for name, why in _UNMET.findall(checked.stdout):
        name = name.partition(":")[0]
        found[name] = "; ".join(filter(None, (found.get(name), why)))
    return {name: state for name, state in found.items() if name not in own}


def states_text(unfinished: Mapping[str, str]) -> str:
    """Packages and their states, the first of many."""
    each = [f"{name} ({state})" for name, state in unfinished.items()]
    more = f" and {len(each) - _SHOWN} more" if len(each) > _SHOWN else ""
    return ", ".join(each[:_SHOWN]) + more


_SHOWN = 4
#: How an operator finishes packages of others.
CURE = (
    "`sudo dpkg --configure -a` and `sudo apt-get install --fix-broken` there finish them. Some "
    "of Firefox and Thunderbird download snaps meanwhile, which can take hours (`snap changes`). "
    "Those that nobody uses can go instead: `sudo apt-get remove NAME` shows first what goes along."
)


def prepare_install(paths: layout.Paths, names: Sequence[str]) -> None:
    """Read the archive's lists, and note what apt will install. Problem where it cannot.

    A source that fails is named, and is no obstacle while the others have everything.
    """
    _refuse_unfinished(paths, names)
    runner.must(*MERGE, timeout=_LIMIT_S)
    code, faults = _update_lists()
    simulated = runner.run(["apt-get", "-q", "--simulate", *INSTALL, *names], timeout=_LIMIT_S)
    # One that was refused a lock names no source.
    if code != 0 and (simulated.returncode != 0 or not faults):
        said = "; ".join(faults) or f"apt-get update ended with {code}"
        cures = dict.fromkeys(_cure(paths, fault) for fault in faults)
        raise errors.Problem(
            f"the archive's lists could not be read ({said}), and apt cannot install "
            f"{', '.join(names)} without. Remedy: {' '.join(cures) or _DEAD}"
        )
    for fault in faults:
        output.say(f"{DEAD_SOURCE}{fault}. {_cure(paths, fault)}")
    if unknown := _UNKNOWN.findall(simulated.stdout + simulated.stderr):
        raise errors.Problem(
            f"no source of apt has {', '.join(map(_with_near_name, dict.fromkeys(unknown)))}. "
            "Remedy: correct `packages` of the inventory or of group data, or add its source"
        )
    kept = load(paths)
    kept.coming = sorted(set(_COMING.findall(simulated.stdout)))
    atomic.write_json(paths.packages, asdict(kept), mode=0o600)


#: How the line about a source that fails begins.
DEAD_SOURCE = "warning: a source of apt fails: "
_LOGIN = re.compile(r"(?<=://)[^/@]*@")
_UNKNOWN = re.compile(r"^E: Unable to locate package (\S+)", re.MULTILINE)
_DEAD = (
    "`grep -r SERVER /etc/apt/sources.list*` there finds its file: correct the source or its key, "
    "or disable it."
)


def _with_near_name(name: str) -> str:
    import difflib  # Programs on a host start without it.

    near = difflib.get_close_matches(name, _said("apt-cache", "pkgnames").split(), 1, 0.8)
    return f"{name} (did you mean {near[0]}?)" if near else name


def _cure(paths: layout.Paths, fault: str) -> str:
    """What to do about a source, with the file in which it stands."""
    failing = [word.rstrip("/") for word in fault.split() if "://" in word]
    folder = paths.root / "etc/apt"
    files = []
    for file in (folder / "sources.list", *sorted((folder / "sources.list.d").glob("*"))):
        words = file.read_text(errors="replace").split() if file.is_file() else []
        sources = [_LOGIN.sub("", word).rstrip("/") for word in words if "://" in word]
        if any(url.startswith(each) or each.startswith(url) for url in failing for each in sources):
            files.append(str(file))
    if not files:
        return _DEAD
    return f"It stands in {', '.join(files)}: correct the source or its key, or disable it."


def _refuse_unfinished(paths: layout.Paths, names: Sequence[str]) -> None:
    if foreign := unfinished_packages(paths, names):
        raise errors.Problem(
            f"packages that are not Lockstep's block apt: {states_text(foreign)}. {CURE}"
        )


def _update_lists() -> tuple[int, list[str]]:
    """How `apt-get update` ended, its output passed on, and what it said of sources that fail."""
    faults = []
    argv = ("apt-get", "-q", "update")
    with subprocess.Popen(
        argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    ) as running:
        for line in running.stdout or ():
            output.say(line.rstrip("\n"))
            if _FAULT.search(line):
                faults.append(line[3:].strip())
    return running.returncode, faults


def settle(paths: layout.Paths) -> None:
    """Forget what was to come: it is here. OSError where the record cannot be written."""
    atomic.write_json(paths.packages, asdict(replace(load(paths), coming=[])), mode=0o600)


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
        _refuse_unfinished(paths, names)
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
    for verb, form in (
        ("note", "PACKAGE[=ACCOUNT]"),
        ("prepare", "PACKAGE"),
        ("purge", "PACKAGE"),
    ):
        verbs.add_parser(verb).add_argument("packages", nargs="+", metavar=form)
    verbs.add_parser("settle")
    options = parser.parse_args(argv)
    if options.verb == "settle":
        settle(paths)
    elif options.verb == "note":
        note(paths, options.packages)
    elif options.verb == "prepare":
        prepare_install(paths, options.packages)
    else:
        for name in purge(paths, options.packages):
            output.say(f"{name} is purged")
    return errors.EXIT_DONE
