"""What leaves a host, what stays, and what cannot be known: from the records and what is here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from lockstep.onhost.core import errors, layout, runner
from lockstep.onhost.docker import docker_api
from lockstep.onhost.garbage import unneeded
from lockstep.onhost.records import found, generations, ours, packages
from lockstep.onhost.removal import places
from lockstep.onhost.removal.items import DATA, WEIGHTS, Plan
from lockstep.onhost.systemd import units
from lockstep.onhost.weights import hub_cache as hub

_UNITS = (".service", ".socket", ".timer")
_TABLE = ("inet", "lockstep")
_NETPLAN = "/etc/netplan/"


@dataclass(frozen=True)
class Asked:
    """What the inventory says of a host.

    Attributes:
        keep: Of `WEIGHTS` and `DATA`.
        scripts: Folder of scripts.
        engines: Folder of engine environments.
        hub_cache: Folder of the hub's cache.
        packages: Package that it names → the package's own unit that a deploy masks, or "".
        accounts: Service accounts → their homes.
        group: The operators' group.
        folders: Folder → "folder", mode and owners that a deploy gives it.
        own: How files of others in our folders are known, as `places.foreign` has it.
    """

    keep: Sequence[str]
    scripts: str
    engines: str
    hub_cache: str
    packages: Mapping[str, str]
    accounts: Mapping[str, str]
    group: str
    folders: Mapping[str, str]
    own: Mapping[str, Sequence[str]]


def make(paths: layout.Paths, docker: docker_api.Docker | None, asked: Asked) -> Plan:
    """The plan of this host; Docker is None where it has none."""
    record = found.load(paths) or found.Found(whole=False)
    plan = Plan()
    files = places.files(paths, asked.scripts)
    _units(paths, files, plan)
    if docker is not None:
        _dockers(paths, docker, asked, plan)
    if _runs(["nft", "list", "table", *_TABLE]):
        plan.go("firewall", " ".join(_TABLE))
    _weights(paths, record, asked, plan)
    returning = places.originals(paths)
    leaving = [path for path in files if path not in returning]
    plan.go("file", *leaving)
    _packages(paths, record, asked, plan)
    _originals(paths, returning, plan)
    if any(path.startswith(_NETPLAN) for path in leaving):
        plan.stay("addresses of the fast link, until the next boot", "a login may need them")
    _settings(paths, record, plan)
    _accounts(record, asked, plan)
    keeps_data = DATA in asked.keep
    strange = places.foreign(paths, asked.own)
    plan.go("content", *places.contents(paths, record, asked.engines, keeps_data, strange))
    contents = plan.names("content")
    made = places.made_folders(paths, record)
    plan.go("folder", *(path for path in made if path not in contents))
    for path, was in places.changed_folders(paths, record, asked.folders).items():
        plan.go("original", path, detail=was)
    plan.go("program", *places.programs(paths, strange))
    plan.go("record", *places.records(paths, bool(asked.keep), keeps_data))
    for path in strange:
        plan.stay(path, "Lockstep did not write it")
    _always(plan, bool(asked.keep), keeps_data, record)
    return plan.ordered()


def _units(paths: layout.Paths, files: Sequence[str], plan: Plan) -> None:
    """Our units, what starts others first; systemd stops none of a template's own."""
    names = [PurePosixPath(path).name for path in files if path.startswith(ours.UNITS)]
    own = {name for name in names if name.endswith(_UNITS) and "@." not in name}
    said = runner.run(["systemctl", "list-units", "--all", "--plain", "--no-legend", "lockstep-*"])
    loaded = [line.split()[0] for line in said.stdout.splitlines() if line.strip()]
    own |= {
        name
        for name, unit in units.show(loaded).items()
        if name.endswith(_UNITS) and (unit.transient or _template(name) in names)
    }
    models = {
        PurePosixPath(file["path"]).name
        for each in generations.known(paths)
        for file in each["files"]
    }
    hot = (name for name in sorted(own & models) if _runs(["systemctl", "is-active", name]))
    plan.go("model", *hot)
    order = {".timer": 0, ".socket": 1, ".service": 2}
    plan.go("unit", *sorted(own, key=lambda name: (order[PurePosixPath(name).suffix], name)))


def _template(name: str) -> str:
    """The template of a unit that is an instance of one: "a@.service" of "a@b.service"."""
    stem, at, rest = name.partition("@")
    return f"{stem}@.{rest.rpartition('.')[2]}" if at else ""


def _dockers(paths: layout.Paths, docker: docker_api.Docker, asked: Asked, plan: Plan) -> None:
    for each in docker.json("GET", "/containers/json", {"all": "1"}):
        if docker_api.ours(each.get("Labels")):
            plan.go("container", str(each["Names"][0]).lstrip("/"))
    for volume in docker.json("GET", "/volumes")["Volumes"] or []:
        name = str(volume["Name"])
        if not docker_api.ours(volume.get("Labels")):
            continue
        if DATA in asked.keep and not name.endswith("-cache"):
            plan.stay(f"volume {name}", "as --keep data says")
        else:
            plan.go("volume", name)
    for note in sorted(paths.pulled.glob("*.json")):
        if reference := unneeded.reference(note):
            plan.go("image", reference, detail=str(note))


def _weights(paths: layout.Paths, record: found.Found, asked: Asked, plan: Plan) -> None:
    cache = paths.root / f"{asked.hub_cache}/hub".lstrip("/")
    notes = sorted(hub.notes(cache).glob("*@*"))
    if WEIGHTS in asked.keep:
        if notes:
            plan.stay(f"{asked.hub_cache}: {len(notes)} models", "--keep weights")
        return
    for note in notes:
        plan.go("weights", note.name.replace("--", "/", 1), detail=str(note))
    for path in places.beside_weights(paths, record, asked.hub_cache):
        # What could not go is found by the notes again.
        plan.go("folder" if path.endswith("-fetched") else "content", path)
    noted = {note.name.partition("@")[0] for note in notes}
    for home in sorted(cache.glob("models--*")):
        if home.name.removeprefix("models--") not in noted:
            plan.stay(str(home), "a model that no deploy fetched")


def _packages(paths: layout.Paths, record: found.Found, asked: Asked, plan: Plan) -> None:
    noted = packages.load(paths)
    staying = packages.needed(noted.packages) if noted.packages else []
    plan.go("package", *(name for name in noted.packages if name not in staying))
    for name in staying:
        plan.stay(f"package {name}", "a package of somebody else's needs it")
    before, untold = [], []
    for name, unit in asked.packages.items():
        if name in noted.packages:
            mask = paths.root / f"{ours.UNITS}{unit}".lstrip("/")
            if unit and mask.is_symlink() and str(mask.readlink()) == "/dev/null":
                plan.go("mask", unit)
        elif name in noted.before:
            before.append(name)
        else:
            untold.append(name)
    if before:
        plan.stay(f"packages {', '.join(before)}", "they were here before")
    if untold and record.whole:
        plan.stay(f"packages {', '.join(untold)}", "no deploy installed them")
    elif untold:
        plan.unknown.append(
            f"Whether an earlier version of Lockstep installed {', '.join(untold)}: they stay."
        )


def _originals(paths: layout.Paths, returning: Sequence[str], plan: Plan) -> None:
    leaving = plan.names("package")
    for path in returning:
        shipped = path in ours.CONFFILES and PurePosixPath(path).name in leaving
        # It leaves with its package.
        plan.go("file" if shipped else "original", path)
    for path in ours.CONFFILES:
        stays = path not in returning and PurePosixPath(path).name not in leaving
        if stays and ours.marked(paths.root / path.lstrip("/")):
            plan.unknown.append(
                f"What {path} said before: `apt-get install --reinstall -o "
                f"Dpkg::Options::=--force-confmiss {PurePosixPath(path).name}` brings its "
                "package's own text."
            )


def _settings(paths: layout.Paths, record: found.Found, plan: Plan) -> None:
    for key, was in record.sysctls.items():
        if record.whole and was is not None and found.setting(paths.root, key) != was:
            plan.go("setting", key, detail=was)
    drop_in = paths.root / "etc/sysctl.d/60-lockstep.conf"
    if drop_in.exists() and not record.whole:
        plan.unknown.append(
            "The values of the kernel settings before: those of Lockstep hold until the next boot."
        )


def _accounts(record: found.Found, asked: Asked, plan: Plan) -> None:
    known = record.accounts
    kept = {name for name, home in asked.accounts.items() if _keeps(home, asked.keep)}
    for name, home in asked.accounts.items():
        have = found.groups_of(name)
        if have is None:
            continue
        # Of an earlier version the home tells: no other account has it.
        made = known[name] is None if record.whole and name in known else None
        if name in kept:
            plan.stay(f"account {name}", "what is kept belongs to it")
        elif made or (made is None and ours.home_of(name) == home):
            plan.go("account", name)
        else:
            plan.stay(f"account {name}", "it was here before")
    gone = plan.names("account")
    if found.members(asked.group) is not None and record.groups.get(asked.group) is None:
        plan.go("group", asked.group)
    for name, was in known.items():
        now = found.groups_of(name)
        if name in gone or now is None or not record.whole:
            continue
        for group in ((set(now) - set(was or ())) & set(record.groups)) - {asked.group}:
            plan.go("member", f"{name} of {group}", detail=f"{name} {group}")
    if not record.whole:
        plan.unknown.append(
            "Whether people were in the group docker before: memberships stay as they are."
        )


def _keeps(home: str, keep: Sequence[str]) -> bool:
    of_data = home in (ours.GATEWAY_HOME, ours.BACKUP_HOME)
    return (home == ours.HOME and WEIGHTS in keep) or (of_data and DATA in keep)


def _always(plan: Plan, keeps: bool, keeps_data: bool, record: found.Found) -> None:
    if not record.whole:
        plan.unknown.insert(
            0,
            "What was here before the first deploy: an earlier version of Lockstep deployed it "
            "and kept no record of that. Empty folders that it made may stay.",
        )
    if keeps:
        plan.stay("the record of what was here before", "the next deploy goes on with it")
    if keeps_data:
        plan.stay(", ".join(places.DATA), "as --keep data says")
    plan.stay(
        "lines in the journal and in logs of apt and dpkg, packages that apt fetched and its "
        "lists, numbers of accounts that were given out, kernel modules until the next boot",
        "the system's own records",
    )


def _runs(argv: Sequence[str]) -> bool:
    """Whether a program is there and succeeds."""
    try:
        return runner.run(list(argv)).returncode == 0
    except errors.Problem:
        return False
