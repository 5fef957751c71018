"""Packages that a deploy installs: noted before the installation, purged when no longer needed.

usage: packages note PACKAGE[=ACCOUNT]...   before they are installed
       packages prepare PACKAGE...          between the two
       packages settle                      after they were installed
       packages purge PACKAGE...

`note` records which of them, and whether the ACCOUNT that one makes, this host did not have.
`prepare` reads the archive's lists and makes sure that apt can install them. It refuses if foreign
packages are half installed: apt would go on with them, and one that downloads a snap while it is
configured takes hours. apt completes what a run of ours that was cut off left: those packages stay
on record until `settle` says that all are installed. `purge` removes those with their configuration
and data, what apt installed for them alone, and the account. Nothing is removed of a package that
was here before.

exit codes: 0 done, 1 failed, 2 wrong use
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace

from lockstep.onhost.core import (
    atomic_files,
    errors,
    event_lines,
    layout,
    program_command_lines,
    runner,
)
from lockstep.onhost.records import json_records, ownership

_REMOVAL_LINE = re.compile(r"^(?:Remv|Purg) (\S+)", re.MULTILINE)
_COMING = re.compile(r"^Inst (\S+)", re.MULTILINE)
_UNMET = re.compile(r"^ (\S+) : ((?:Pre)?Depends: .+)$", re.MULTILINE)
# apt-get only warns about a source that does not answer, and uses its earlier lists (apt 2.6 to
# 3.0).
_FAULT = re.compile(r"^(?:E: |W: (?:Failed to fetch|GPG error|An error occurred during)).*://")
# States that dpkg has begun and not ended. A package that waits for triggers is installed.
_UNFINISHED_STATES = ("half-installed", "unpacked", "half-configured")
_LIMIT_S = 900.0
# After a killed dpkg, apt demands that its journal is processed. Each dpkg that writes does that;
# `--configure -a`, which apt suggests, would configure everybody's packages too.
MERGE = ("sh", "-c", "dpkg --set-selections < /dev/null")
# As a deploy installs: a package that conflicts with one of the system's (docker.io with docker-ce)
# is refused. Leftovers of a cut-off run of ours are repaired along with it.
INSTALL = ("install", "--fix-broken", "--no-remove", "--no-install-recommends")


@dataclass
class PackageRecord:
    """Packages and accounts that this host did not have before.

    Attributes:
        packages: Those that a deploy installed.
        accounts: Account → packages that make it.
        earlier_packages: Every package that was here when the first of them came.
        coming: All that apt installs in the present run, or in one that was cut off.
    """

    packages: list[str] = field(default_factory=list)
    accounts: dict[str, list[str]] = field(default_factory=dict)
    earlier_packages: list[str] = field(default_factory=list)
    coming: list[str] = field(default_factory=list)


def load(paths: layout.Paths) -> PackageRecord:
    """Return the record, empty if it is missing; raise Problem if it is unusable."""
    remedy = "remove it; the packages that it names then stay when Lockstep goes"
    return json_records.load_or_refuse(PackageRecord, paths.packages, remedy) or PackageRecord()


def record_new_packages(paths: layout.Paths, names: Sequence[str]) -> None:
    """Record PACKAGE or PACKAGE=ACCOUNT that is not here yet; raise OSError on failure."""
    record = load(paths)
    installed_names = {name for name, status in _package_states().items() if status == "installed"}
    new = [
        package.partition("=")
        for package in names
        if package.partition("=")[0] not in installed_names
    ]
    if new and not record.earlier_packages:
        record.earlier_packages = sorted(installed_names)
    for name, _, account in new:
        if name not in record.packages:
            record.packages.append(name)
        if account and (account in record.accounts or ownership.home_of(account) is None):
            makers = record.accounts.setdefault(account, [])
            makers += [] if name in makers else [name]
    json_records.save(paths.packages, record, mode=0o600)


def foreign_unfinished_packages(paths: layout.Paths, names: Sequence[str]) -> dict[str, str]:
    """Return foreign packages that block apt → their state, and what they wait for.

    `names` are the packages of the deploy: those, and what an earlier run brought with them, are
    ours.
    """
    record = load(paths)
    own = {*names, *record.packages, *record.coming}
    states = {
        name: status for name, status in _package_states().items() if status in _UNFINISHED_STATES
    }
    # Nothing is changed, so it needs no lock, which somebody may hold.
    check_result = runner.run(["apt-get", "-q", "-oDebug::NoLocking=1", "check"], timeout=_LIMIT_S)
    for name, why in _UNMET.findall(check_result.stdout):
        name = name.partition(":")[0]
        states[name] = "; ".join(filter(None, (states.get(name), why)))
    return {name: state for name, state in states.items() if name not in own}


def states_text(states: Mapping[str, str]) -> str:
    """Format packages and their states, at most the first of many."""
    descriptions = [f"{name} ({state})" for name, state in states.items()]
    more = f" and {len(descriptions) - _MOST_SHOWN} more" if len(descriptions) > _MOST_SHOWN else ""
    return ", ".join(descriptions[:_MOST_SHOWN]) + more


_MOST_SHOWN = 4
#: Advice to operators on finishing foreign packages.
CURE = (
    "`sudo dpkg --configure -a` and `sudo apt-get install --fix-broken` there finish them. Some "
    "of Firefox and Thunderbird download snaps meanwhile, which can take hours (`snap changes`). "
    "Those that nobody uses can go instead: `sudo apt-get remove NAME` shows first what goes along."
)


def prepare_install(paths: layout.Paths, names: Sequence[str]) -> None:
    """Read the archive's lists, and record what apt will install; raise Problem if it cannot.

    A failing source is named, and is no obstacle while the others have everything.
    """
    _refuse_unfinished(paths, names)
    runner.run_or_raise(*MERGE, timeout=_LIMIT_S)
    code, faults = _update_lists()
    simulation = runner.run(["apt-get", "-q", "--simulate", *INSTALL, *names], timeout=_LIMIT_S)
    # A run that was refused a lock names no source.
    if code != 0 and (simulation.returncode != 0 or not faults):
        fault_text = "; ".join(faults) or f"apt-get update ended with {code}"
        cures = dict.fromkeys(_failing_source_remedy(paths, fault) for fault in faults)
        raise errors.Problem(
            f"the archive's lists could not be read ({fault_text}), and apt cannot install "
            f"{', '.join(names)} without. Remedy: {' '.join(cures) or _DEAD}"
        )
    for fault in faults:
        warning = f"warning: a source of apt fails: {fault}. {_failing_source_remedy(paths, fault)}"
        event_lines.say(event_lines.EventLine("news", warning))
    if unknown := _UNKNOWN.findall(simulation.stdout + simulation.stderr):
        names_text = ", ".join(map(_name_with_suggestion, dict.fromkeys(unknown)))
        raise errors.Problem(
            f"no source of apt has {names_text}. "
            "Remedy: correct `packages` of the inventory or of group data, or add its source"
        )
    record = load(paths)
    record.coming = sorted(set(_COMING.findall(simulation.stdout)))
    json_records.save(paths.packages, record, mode=0o600)


_LOGIN = re.compile(r"(?<=://)[^/@]*@")
_UNKNOWN = re.compile(r"^E: Unable to locate package (\S+)", re.MULTILINE)
_DEAD = (
    "`grep -r SERVER /etc/apt/sources.list*` there finds its file: correct the source or its key, "
    "or disable it."
)


def _name_with_suggestion(name: str) -> str:
    import difflib  # Imported here, so that programs on a host start without it.

    near = difflib.get_close_matches(name, _program_output("apt-cache", "pkgnames").split(), 1, 0.8)
    return f"{name} (did you mean {near[0]}?)" if near else name


def _failing_source_remedy(paths: layout.Paths, fault: str) -> str:
    """Return the remedy for a failing source, with the file that names it."""
    failing = [word.rstrip("/") for word in fault.split() if "://" in word]
    folder = paths.root / "etc/apt"
    files = []
    for file in (folder / "sources.list", *sorted((folder / "sources.list.d").glob("*"))):
        words = file.read_text(errors="replace").split() if file.is_file() else []
        sources = [_LOGIN.sub("", word).rstrip("/") for word in words if "://" in word]
        if any(
            url.startswith(source) or source.startswith(url)
            for url in failing
            for source in sources
        ):
            files.append(str(file))
    if not files:
        return _DEAD
    return f"It stands in {', '.join(files)}: correct the source or its key, or disable it."


def _refuse_unfinished(paths: layout.Paths, names: Sequence[str]) -> None:
    if foreign := foreign_unfinished_packages(paths, names):
        raise errors.Problem(
            f"packages that are not Lockstep's block apt: {states_text(foreign)}. {CURE}"
        )


def _update_lists() -> tuple[int, list[str]]:
    """Run `apt-get update` and pass its output on; return its exit code and failing sources."""
    faults = []
    argv = ("apt-get", "-q", "update")
    with subprocess.Popen(
        argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    ) as running:
        for line in running.stdout or ():
            event_lines.say(line.rstrip("\n"))
            if _FAULT.search(line):
                faults.append(line[3:].strip())
    return running.returncode, faults


def clear_coming_packages(paths: layout.Paths) -> None:
    """Clear the list of coming packages; raise OSError if the record cannot be written."""
    atomic_files.write_json(paths.packages, asdict(replace(load(paths), coming=[])), mode=0o600)


def purge_recorded_packages(paths: layout.Paths, names: Sequence[str]) -> list[str]:
    """Remove the recorded packages among the names; return every package that went.

    A package that a foreign one needs by now stays, and stays recorded.

    Raises:
        errors.Problem: apt or dpkg refuses.
        OSError: The record cannot be written.
    """
    record = load(paths)
    known_packages = _package_states()
    recorded_names = [name for name in names if name in record.packages]
    leaving = _removable_packages([name for name in recorded_names if name in known_packages])
    # By default apt keeps what a package that stays only recommends or suggests.
    needs = [f"-oAPT::AutoRemove::{kind}Important=false" for kind in ("Recommends", "Suggests")]
    with_them = (
        _simulated_removals(*needs, "--auto-remove", "purge", *leaving) if leaving else set()
    )
    alone = (
        with_them
        - _simulated_removals(*needs, "autoremove")
        - set(record.earlier_packages)
        - set(leaving)
    )
    # After a cut-off run, only this record tells the next one whose they were.
    record.packages += sorted(alone - set(record.packages))
    json_records.save(paths.packages, record, mode=0o600)
    purged_names = [*leaving, *sorted(alone)]
    if purged_names:
        _refuse_unfinished(paths, names)
        runner.run_or_raise("apt-get", "-q", "-y", "purge", *purged_names, timeout=_LIMIT_S)
    never = {name for name in recorded_names if name not in known_packages}
    record.packages = [name for name in record.packages if name not in {*purged_names, *never}]
    for account, makers in list(record.accounts.items()):
        if not set(makers) & set(record.packages):
            if ownership.home_of(account) is not None:
                runner.run_or_raise("userdel", account, timeout=_LIMIT_S)
            del record.accounts[account]
    json_records.save(paths.packages, record, mode=0o600)
    return purged_names


def needed_packages(names: Sequence[str]) -> list[str]:
    """Return the packages that cannot go without one that is not among the names."""
    known_packages = _package_states()
    present_names = [name for name in names if name in known_packages]
    free = _removable_packages(present_names)
    return [name for name in present_names if name not in free]


def _removable_packages(names: Sequence[str]) -> list[str]:
    """Return the packages that go without any that is not among the names."""
    every = list(names)
    if not every or _simulated_removals("purge", *every) <= set(every):
        return every
    free = [name for name in every if _simulated_removals("purge", name) <= set(every)]
    return free if free == every else _removable_packages(free)


def _simulated_removals(*words: str) -> set[str]:
    """Return the packages that apt would remove."""
    return set(_REMOVAL_LINE.findall(_program_output("apt-get", "--simulate", *words)))


def _package_states() -> dict[str, str]:
    """Return the status of every package known to dpkg."""
    lines = _program_output(
        "dpkg-query", "-W", "-f", "${db:Status-Status} ${Package}\n"
    ).splitlines()
    pairs = (line.split() for line in lines if not line.startswith("not-installed "))
    return {name: status for status, name in pairs}


def _program_output(*argv: str) -> str:
    return runner.run(list(argv), timeout=_LIMIT_S).stdout


def main(argv: list[str], paths: layout.Paths | None = None) -> int:
    """Run the command line; see the module's docstring."""
    paths = paths or layout.Paths()
    parser = program_command_lines.parser(__doc__)
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
        clear_coming_packages(paths)
    elif options.verb == "note":
        record_new_packages(paths, options.packages)
    elif options.verb == "prepare":
        prepare_install(paths, options.packages)
    else:
        for name in purge_recorded_packages(paths, options.packages):
            event_lines.say(f"{name} is purged")
    return errors.EXIT_DONE
