"""Planning of a removal, from the records and the present state of the host."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from lockstep.onhost.core import errors, layout, runner
from lockstep.onhost.docker import docker_api
from lockstep.onhost.garbage import unneeded_content
from lockstep.onhost.records import (
    generations,
    original_state,
    ownership,
    package_changes,
)
from lockstep.onhost.removal import own_files
from lockstep.onhost.removal.items import DATA, WEIGHTS, RemovalPlan
from lockstep.onhost.systemd import units
from lockstep.onhost.weights import own_snapshots as hub

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


def make_removal_plan(
    paths: layout.Paths, docker: docker_api.Docker | None, settings: RemovalSettings
) -> RemovalPlan:
    """Make the plan of this host; `docker` is None if it has none."""
    record = original_state.load(paths) or original_state.Baseline(whole=False)
    plan = RemovalPlan()
    files = own_files.own_files_outside(paths, settings.scripts)
    _plan_units(paths, files, plan)
    if docker is not None:
        _plan_docker_items(paths, docker, settings, plan)
    if _is_success(["nft", "list", "table", *_TABLE]):
        plan.add_removals("firewall", " ".join(_TABLE))
    _plan_weights(paths, record, settings, plan)
    returning = own_files.replaced_foreign_files(paths)
    leaving = [path for path in files if path not in returning]
    plan.add_removals("file", *leaving)
    _plan_packages(paths, record, settings, plan)
    _plan_originals(paths, record, returning, plan)
    if any(path.startswith(_NETPLAN) for path in leaving):
        plan.add_staying("addresses of the fast link, until the next boot", "a login may need them")
    _plan_settings(paths, record, plan)
    _plan_accounts(record, settings, plan)
    keeps_data = DATA in settings.keep
    strange = own_files.foreign_in_own_folders(paths, settings.own)
    plan.add_removals(
        "content",
        *own_files.folders_to_remove_whole(paths, record, settings.engines, keeps_data, strange),
    )
    contents = plan.names_to_remove("content")
    made_folders = own_files.made_folders(paths, record)
    plan.add_removals("folder", *(path for path in made_folders if path not in contents))
    for path, was in own_files.changed_folders(paths, record, settings.folders).items():
        plan.add_removals("original", path, detail=was)
    plan.add_removals("program", *own_files.program_folders(paths, strange))
    plan.add_removals("record", *own_files.own_records(paths, bool(settings.keep), keeps_data))
    for path in strange:
        plan.add_staying(path, "Lockstep did not write it")
    _plan_staying_things(plan, bool(settings.keep), keeps_data, record)
    return plan.in_action_order()


def _plan_units(paths: layout.Paths, files: Sequence[str], plan: RemovalPlan) -> None:
    """Plan our units, those that start others first; systemd stops none of a template's own."""
    names = [PurePosixPath(path).name for path in files if path.startswith(ownership.UNITS)]
    own = {name for name in names if name.endswith(_UNITS) and "@." not in name}
    own |= {
        name
        for name, unit in units.units_by_name(units.loaded_units("lockstep-*")).items()
        if name.endswith(_UNITS) and (unit.is_transient or _template_of_instance(name) in names)
    }
    models = {PurePosixPath(path).name for path in generations.known_paths(paths)}
    states = units.units_by_name(sorted(own & models)).items()
    plan.add_removals("model", *(name for name, unit in states if unit.up))
    order = {".timer": 0, ".socket": 1, ".service": 2}
    plan.add_removals(
        "unit", *sorted(own, key=lambda name: (order[PurePosixPath(name).suffix], name))
    )


def _template_of_instance(name: str) -> str:
    """Return the template of an instance: "a@.service" of "a@b.service"; else ""."""
    stem, at, instance = name.partition("@")
    return f"{stem}@.{instance.rpartition('.')[2]}" if at else ""


def _plan_docker_items(
    paths: layout.Paths, docker: docker_api.Docker, settings: RemovalSettings, plan: RemovalPlan
) -> None:
    for container in docker.request_json("GET", "/containers/json", {"all": "1"}):
        if docker_api.is_ours(container.get("Labels")):
            plan.add_removals("container", str(container["Names"][0]).lstrip("/"))
    for volume in docker.request_json("GET", "/volumes")["Volumes"] or []:
        name = str(volume["Name"])
        if not docker_api.is_ours(volume.get("Labels")):
            continue
        if DATA in settings.keep and not name.endswith("-cache"):
            plan.add_staying(f"volume {name}", "as --keep data says")
        else:
            plan.add_removals("volume", name)
    for note in sorted(paths.pulled_images.glob("*.json")):
        if reference := unneeded_content.noted_image(note):
            plan.add_removals("image", reference, detail=str(note))


def _plan_weights(
    paths: layout.Paths,
    record: original_state.Baseline,
    settings: RemovalSettings,
    plan: RemovalPlan,
) -> None:
    cache = paths.root / f"{settings.hub_cache}/hub".lstrip("/")
    notes = sorted(hub.notes_folder(cache).glob("*@*"))
    if WEIGHTS in settings.keep:
        if notes:
            plan.add_staying(f"{settings.hub_cache}: {len(notes)} models", "--keep weights")
        return
    for note in notes:
        plan.add_removals("weights", note.name.replace("--", "/", 1), detail=str(note))
    for path in own_files.notes_in_hub_folder(paths, record, settings.hub_cache):
        # A second run finds what could not go by these notes.
        plan.add_removals("folder" if path.endswith("-fetched") else "content", path)
    noted_models = {note.name.partition("@")[0] for note in notes}
    for home in sorted(cache.glob("models--*")):
        if home.name.removeprefix("models--") not in noted_models:
            plan.add_staying(str(home), "a model that no deploy fetched")


def _plan_packages(
    paths: layout.Paths,
    record: original_state.Baseline,
    settings: RemovalSettings,
    plan: RemovalPlan,
) -> None:
    package_record = package_changes.load(paths)
    staying = (
        package_changes.needed_packages(package_record.packages) if package_record.packages else []
    )
    plan.add_removals("package", *(name for name in package_record.packages if name not in staying))
    for name in staying:
        plan.add_staying(f"package {name}", "a package of somebody else's needs it")
    earlier_names, untold = [], []
    for name, unit in settings.packages.items():
        if name in package_record.packages:
            mask = paths.root / f"{ownership.UNITS}{unit}".lstrip("/")
            if unit and mask.is_symlink() and str(mask.readlink()) == "/dev/null":
                plan.add_removals("mask", unit)
        elif name in package_record.earlier_packages:
            earlier_names.append(name)
        else:
            untold.append(name)
    if earlier_names:
        plan.add_staying(f"packages {', '.join(earlier_names)}", "they were here before")
    if untold and record.whole:
        plan.add_staying(f"packages {', '.join(untold)}", "no deploy installed them")
    elif untold:
        plan.unknown.append(
            f"Whether an earlier version of Lockstep installed {', '.join(untold)}: they stay."
        )


def _plan_originals(
    paths: layout.Paths,
    record: original_state.Baseline,
    returning: Sequence[str],
    plan: RemovalPlan,
) -> None:
    leaving = plan.names_to_remove("package")
    for path in returning:
        is_shipped = path in ownership.CONFFILES and PurePosixPath(path).name in leaving
        was = record.paths.get(path) or ""
        is_known = record.whole and was.startswith("file ")
        # It is removed with its package.
        kind = "file" if is_shipped else "original"
        plan.add_removals(kind, path, detail=was if is_known else "")
    for path in ownership.CONFFILES:
        stays = path not in returning and PurePosixPath(path).name not in leaving
        if stays and ownership.is_marked(paths.root / path.lstrip("/")):
            plan.unknown.append(
                f"What {path} said before: `apt-get install --reinstall -o "
                f"Dpkg::Options::=--force-confmiss {PurePosixPath(path).name}` brings its "
                "package's own text."
            )


def _plan_settings(paths: layout.Paths, record: original_state.Baseline, plan: RemovalPlan) -> None:
    for key, was in record.sysctls.items():
        if (
            record.whole
            and was is not None
            and original_state.present_kernel_setting(paths.root, key) != was
        ):
            plan.add_removals("setting", key, detail=was)
    drop_in = paths.root / "etc/sysctl.d/60-lockstep.conf"
    if drop_in.exists() and not record.whole:
        plan.unknown.append(
            "The values of the kernel settings before: those of Lockstep hold until the next boot."
        )


def _plan_accounts(
    record: original_state.Baseline, settings: RemovalSettings, plan: RemovalPlan
) -> None:
    account_groups = record.accounts
    kept_accounts = {
        name for name, home in settings.accounts.items() if _is_home_kept(home, settings.keep)
    }
    for name, home in settings.accounts.items():
        have = original_state.groups_of(name)
        if have is None:
            continue
        # An earlier version's account is known by its home, which no other account has.
        is_made = account_groups[name] is None if record.whole and name in account_groups else None
        if name in kept_accounts:
            plan.add_staying(f"account {name}", "what is kept belongs to it")
        elif is_made or (is_made is None and ownership.home_of(name) == home):
            plan.add_removals("account", name)
        else:
            plan.add_staying(f"account {name}", "it was here before")
    gone_accounts = plan.names_to_remove("account")
    if (
        original_state.members_of_group(settings.group) is not None
        and record.groups.get(settings.group) is None
    ):
        plan.add_removals("group", settings.group)
    for name, was in account_groups.items():
        now = original_state.groups_of(name)
        if name in gone_accounts or now is None or not record.whole:
            continue
        for group in ((set(now) - set(was or ())) & set(record.groups)) - {settings.group}:
            plan.add_removals("member", f"{name} of {group}", detail=f"{name} {group}")
    if not record.whole:
        plan.unknown.append(
            "Whether people were in the group docker before: memberships stay as they are."
        )


def _is_home_kept(home: str, keep: Sequence[str]) -> bool:
    of_data = home in (ownership.GATEWAY_HOME, ownership.BACKUP_HOME)
    return (home == ownership.HOME and WEIGHTS in keep) or (of_data and DATA in keep)


def _plan_staying_things(
    plan: RemovalPlan, keeps: bool, keeps_data: bool, record: original_state.Baseline
) -> None:
    if not record.whole:
        plan.unknown.insert(
            0,
            "What was here before the first deploy: an earlier version of Lockstep deployed it "
            "and kept no record of that. Empty folders that it made may stay.",
        )
    if keeps:
        plan.add_staying("the record of what was here before", "the next deploy goes on with it")
    if keeps_data:
        plan.add_staying(", ".join(own_files.DATA), "as --keep data says")
    plan.add_staying(
        "lines in the journal and in logs of apt and dpkg, packages that apt fetched and its "
        "lists, numbers of accounts that were given out, kernel modules until the next boot",
        "the system's own records",
    )


def _is_success(argv: Sequence[str]) -> bool:
    """Tell whether a program is there and succeeds."""
    try:
        return runner.run(list(argv)).returncode == 0
    except errors.Problem:
        return False
