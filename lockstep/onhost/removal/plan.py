"""Planning of a removal, from the records and the present state of the host."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from lockstep.onhost.core import errors, layout, runner
from lockstep.onhost.docker import docker_api
from lockstep.onhost.garbage import unneeded_content
from lockstep.onhost.records import baseline, generations, ownership, packages
from lockstep.onhost.removal import places
from lockstep.onhost.removal.items import DATA, WEIGHTS, RemovalPlan
from lockstep.onhost.systemd import units
from lockstep.onhost.weights import hub_cache as hub

_UNITS = (".service", ".socket", ".timer")
_TABLE = ("inet", "lockstep")
_NETPLAN = "/etc/netplan/"


@dataclass(frozen=True)
class RemovalSettings:
    """Settings of a host in the inventory.

    Attributes:
        keep: Of `WEIGHTS` and `DATA`.
        scripts: Folder of scripts.
        engines: Folder of engine environments.
        hub_cache: Folder of the hub's cache.
        packages: Package that it names → the package's own unit that a deploy masks, or "".
        accounts: Service accounts → their homes.
        group: The operators' group.
        folders: Folder → "folder", mode and owners that a deploy gives it.
        own: Patterns that tell foreign files in our folders, in the form of `places.foreign`.
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


def make(
    paths: layout.Paths, docker: docker_api.Docker | None, settings: RemovalSettings
) -> RemovalPlan:
    """Make the plan of this host; `docker` is None if it has none."""
    record = baseline.load(paths) or baseline.Baseline(whole=False)
    plan = RemovalPlan()
    files = places.files(paths, settings.scripts)
    _units(paths, files, plan)
    if docker is not None:
        _dockers(paths, docker, settings, plan)
    if _runs(["nft", "list", "table", *_TABLE]):
        plan.go("firewall", " ".join(_TABLE))
    _weights(paths, record, settings, plan)
    returning = places.originals(paths)
    leaving = [path for path in files if path not in returning]
    plan.go("file", *leaving)
    _packages(paths, record, settings, plan)
    _originals(paths, returning, plan)
    if any(path.startswith(_NETPLAN) for path in leaving):
        plan.stay("addresses of the fast link, until the next boot", "a login may need them")
    _settings(paths, record, plan)
    _accounts(record, settings, plan)
    keeps_data = DATA in settings.keep
    strange = places.foreign(paths, settings.own)
    plan.go("content", *places.contents(paths, record, settings.engines, keeps_data, strange))
    contents = plan.names("content")
    made_folders = places.made_folders(paths, record)
    plan.go("folder", *(path for path in made_folders if path not in contents))
    for path, was in places.changed_folders(paths, record, settings.folders).items():
        plan.go("original", path, detail=was)
    plan.go("program", *places.programs(paths, strange))
    plan.go("record", *places.records(paths, bool(settings.keep), keeps_data))
    for path in strange:
        plan.stay(path, "Lockstep did not write it")
    _always(plan, bool(settings.keep), keeps_data, record)
    return plan.in_action_order()


def _units(paths: layout.Paths, files: Sequence[str], plan: RemovalPlan) -> None:
    """Plan our units, those that start others first; systemd stops none of a template's own."""
    names = [PurePosixPath(path).name for path in files if path.startswith(ownership.UNITS)]
    own = {name for name in names if name.endswith(_UNITS) and "@." not in name}
    result = runner.run(
        ["systemctl", "list-units", "--all", "--plain", "--no-legend", "lockstep-*"]
    )
    loaded_names = [line.split()[0] for line in result.stdout.splitlines() if line.strip()]
    own |= {
        name
        for name, unit in units.show(loaded_names).items()
        if name.endswith(_UNITS) and (unit.transient or _template(name) in names)
    }
    models = {
        PurePosixPath(file["path"]).name
        for record in generations.known_records(paths)
        for file in record["files"]
    }
    hot = (name for name in sorted(own & models) if _runs(["systemctl", "is-active", name]))
    plan.go("model", *hot)
    order = {".timer": 0, ".socket": 1, ".service": 2}
    plan.go("unit", *sorted(own, key=lambda name: (order[PurePosixPath(name).suffix], name)))


def _template(name: str) -> str:
    """Return the template of an instance: "a@.service" of "a@b.service"; else ""."""
    stem, at, instance = name.partition("@")
    return f"{stem}@.{instance.rpartition('.')[2]}" if at else ""


def _dockers(
    paths: layout.Paths, docker: docker_api.Docker, settings: RemovalSettings, plan: RemovalPlan
) -> None:
    for container in docker.json("GET", "/containers/json", {"all": "1"}):
        if docker_api.is_ours(container.get("Labels")):
            plan.go("container", str(container["Names"][0]).lstrip("/"))
    for volume in docker.json("GET", "/volumes")["Volumes"] or []:
        name = str(volume["Name"])
        if not docker_api.is_ours(volume.get("Labels")):
            continue
        if DATA in settings.keep and not name.endswith("-cache"):
            plan.stay(f"volume {name}", "as --keep data says")
        else:
            plan.go("volume", name)
    for note in sorted(paths.pulled_images.glob("*.json")):
        if reference := unneeded_content.reference(note):
            plan.go("image", reference, detail=str(note))


def _weights(
    paths: layout.Paths, record: baseline.Baseline, settings: RemovalSettings, plan: RemovalPlan
) -> None:
    cache = paths.root / f"{settings.hub_cache}/hub".lstrip("/")
    notes = sorted(hub.notes(cache).glob("*@*"))
    if WEIGHTS in settings.keep:
        if notes:
            plan.stay(f"{settings.hub_cache}: {len(notes)} models", "--keep weights")
        return
    for note in notes:
        plan.go("weights", note.name.replace("--", "/", 1), detail=str(note))
    for path in places.beside_weights(paths, record, settings.hub_cache):
        # A second run finds what could not go by these notes.
        plan.go("folder" if path.endswith("-fetched") else "content", path)
    noted_models = {note.name.partition("@")[0] for note in notes}
    for home in sorted(cache.glob("models--*")):
        if home.name.removeprefix("models--") not in noted_models:
            plan.stay(str(home), "a model that no deploy fetched")


def _packages(
    paths: layout.Paths, record: baseline.Baseline, settings: RemovalSettings, plan: RemovalPlan
) -> None:
    package_record = packages.load(paths)
    staying = packages.needed_packages(package_record.packages) if package_record.packages else []
    plan.go("package", *(name for name in package_record.packages if name not in staying))
    for name in staying:
        plan.stay(f"package {name}", "a package of somebody else's needs it")
    earlier_names, untold = [], []
    for name, unit in settings.packages.items():
        if name in package_record.packages:
            mask = paths.root / f"{ownership.UNITS}{unit}".lstrip("/")
            if unit and mask.is_symlink() and str(mask.readlink()) == "/dev/null":
                plan.go("mask", unit)
        elif name in package_record.earlier_packages:
            earlier_names.append(name)
        else:
            untold.append(name)
    if earlier_names:
        plan.stay(f"packages {', '.join(earlier_names)}", "they were here before")
    if untold and record.whole:
        plan.stay(f"packages {', '.join(untold)}", "no deploy installed them")
    elif untold:
        plan.unknown.append(
            f"Whether an earlier version of Lockstep installed {', '.join(untold)}: they stay."
        )


def _originals(paths: layout.Paths, returning: Sequence[str], plan: RemovalPlan) -> None:
    leaving = plan.names("package")
    for path in returning:
        is_shipped = path in ownership.CONFFILES and PurePosixPath(path).name in leaving
        # It is removed with its package.
        plan.go("file" if is_shipped else "original", path)
    for path in ownership.CONFFILES:
        stays = path not in returning and PurePosixPath(path).name not in leaving
        if stays and ownership.is_marked(paths.root / path.lstrip("/")):
            plan.unknown.append(
                f"What {path} said before: `apt-get install --reinstall -o "
                f"Dpkg::Options::=--force-confmiss {PurePosixPath(path).name}` brings its "
                "package's own text."
            )


def _settings(paths: layout.Paths, record: baseline.Baseline, plan: RemovalPlan) -> None:
    for key, was in record.sysctls.items():
        if record.whole and was is not None and baseline.setting(paths.root, key) != was:
            plan.go("setting", key, detail=was)
    drop_in = paths.root / "etc/sysctl.d/60-lockstep.conf"
    if drop_in.exists() and not record.whole:
        plan.unknown.append(
            "The values of the kernel settings before: those of Lockstep hold until the next boot."
        )


def _accounts(record: baseline.Baseline, settings: RemovalSettings, plan: RemovalPlan) -> None:
    account_groups = record.accounts
    kept_accounts = {
        name for name, home in settings.accounts.items() if _keeps(home, settings.keep)
    }
    for name, home in settings.accounts.items():
        have = baseline.groups_of(name)
        if have is None:
            continue
        # An earlier version's account is known by its home, which no other account has.
        is_made = account_groups[name] is None if record.whole and name in account_groups else None
        if name in kept_accounts:
            plan.stay(f"account {name}", "what is kept belongs to it")
        elif is_made or (is_made is None and ownership.home_of(name) == home):
            plan.go("account", name)
        else:
            plan.stay(f"account {name}", "it was here before")
    gone_accounts = plan.names("account")
    if baseline.members(settings.group) is not None and record.groups.get(settings.group) is None:
        plan.go("group", settings.group)
    for name, was in account_groups.items():
        now = baseline.groups_of(name)
        if name in gone_accounts or now is None or not record.whole:
            continue
        for group in ((set(now) - set(was or ())) & set(record.groups)) - {settings.group}:
            plan.go("member", f"{name} of {group}", detail=f"{name} {group}")
    if not record.whole:
        plan.unknown.append(
            "Whether people were in the group docker before: memberships stay as they are."
        )


def _keeps(home: str, keep: Sequence[str]) -> bool:
    of_data = home in (ownership.GATEWAY_HOME, ownership.BACKUP_HOME)
    return (home == ownership.HOME and WEIGHTS in keep) or (of_data and DATA in keep)


def _always(plan: RemovalPlan, keeps: bool, keeps_data: bool, record: baseline.Baseline) -> None:
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
    """Tell whether a program is there and succeeds."""
    try:
        return runner.run(list(argv)).returncode == 0
    except errors.Problem:
        return False
