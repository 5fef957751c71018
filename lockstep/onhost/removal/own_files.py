"""Files and folders of ours on this host, by their first lines and the record."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from lockstep.onhost.core import layout
from lockstep.onhost.facts import files as file_facts
from lockstep.onhost.facts import reader_helpers
from lockstep.onhost.records import generations, original_state, ownership

_STATE, _PROGRAMS = "/var/lib/lockstep-deploy", "/usr/local/lib/lockstep"
#: Folders of ours that are removed with all in them; the record and the program follow later.
_CONTENTS = (
    *(path for path in ownership.HOMES if path not in (_STATE, _PROGRAMS, "/run/lockstep")),
    *ownership.MADE_FOR_UNITS,
)
#: Data that people brought or were given, in folders of ours.
DATA = (
    *("/etc/lockstep/gateway", "/etc/lockstep/secrets", "/var/lib/lockstep-gateway"),
    *(f"{_STATE}/backup", ownership.BACKUP_HOME),
)
#: Our entries in the hub's folder, beside the snapshots of models.
_BESIDE = ("lockstep-fetched", "lockstep-merged", "lockstep-verified")
_ENGINE = ("store", "uv-cache", "current", "[0-9a-f]" * 12)


def own_files_outside(paths: layout.Paths, scripts: str) -> list[str]:
    """Return our files and links outside our own folders; `scripts` also holds operators' files."""
    outside = {
        path
        for path in (*generations.known_paths(paths), ownership.UNMARKED_FILE)
        if not ownership.is_in_own_folder(path)
    }
    top = str(paths.root).rstrip("/")
    marked_paths = [
        path.removeprefix(top)
        for folder in ("/etc", scripts)
        for path in reader_helpers.marked_files(top + folder)
    ]
    found_here = {path for path in marked_paths if not ownership.is_in_own_folder(path)}
    link = paths.root / ownership.UV.lstrip("/")
    if link.is_symlink() and ownership.is_in_own_folder(str(link.readlink())):
        found_here.add(ownership.UV)
    judge = ownership.Ownership(root=paths.root)
    present_paths = {path for path in outside if os.path.lexists(paths.root / path.lstrip("/"))}
    found_here |= {path for path in present_paths if not judge.foreign_owner_of_file(path)}
    return sorted(found_here | {*_boot_links(paths.root, found_here)})


def _boot_links(root: Path, files_of_ours: Iterable[str]) -> Iterator[str]:
    """Yield the links by which systemd starts units that are among our files."""
    own = {path for path in files_of_ours if path.startswith(ownership.UNITS)}
    for link in (root / ownership.UNITS.lstrip("/")).glob("*.wants/*"):
        if link.is_symlink() and str(link.readlink()) in own:
            yield "/" + str(link.relative_to(root))


def replaced_foreign_files(paths: layout.Paths) -> list[str]:
    """Return foreign files that a deploy replaced by its own, with a copy of each on this host."""
    top = paths.root / ownership.ADOPTED_FOLDER.lstrip("/")
    return sorted("/" + str(path.relative_to(top)) for path in top.rglob("*") if path.is_file())


def foreign_in_own_folders(paths: layout.Paths, own: Mapping[str, Sequence[str]]) -> list[str]:
    """Return foreign files and folders in the folders in which we know each file of ours.

    `own` has these "folders", patterns of the "files" there that a deploy may ever have written,
    and beginnings of folders that only our programs fill ("inside").
    """
    top = str(paths.root).rstrip("/")
    known_paths = {top + path for path in generations.known_paths(paths)}
    for pattern in own["files"]:
        end = "/" if pattern.endswith("/") else ""
        known_paths |= {f"{path}{end}" for path in paths.root.glob(pattern.lstrip("/"))}
    inside = tuple(top + path for path in own["inside"])
    strange: list[str] = []
    for folder in own["folders"]:
        marked_paths = {*reader_helpers.marked_files(top + folder)}
        strange += file_facts.strangers(top + folder, known_paths | marked_paths, inside)
    return sorted(path.removeprefix(top) for path in strange)


def program_folders(paths: layout.Paths, strange: Iterable[str]) -> list[str]:
    """Return the folder of the programs, or the parts of it that hold nothing foreign."""
    is_present = (paths.root / _PROGRAMS.lstrip("/")).exists()
    return _removable_parts_of_folder(paths.root, _PROGRAMS, strange) if is_present else []


def folders_to_remove_whole(
    paths: layout.Paths,
    record: original_state.Baseline,
    engines: str,
    keeps_data: bool,
    strange: Sequence[str] = (),
) -> list[str]:
    """Return folders to remove with all in them, and the parts of those that hold foreign files."""
    found_here = [path for pattern in _CONTENTS for path in _glob(paths.root, pattern)]
    present_paths = [path for path in found_here if path not in (_STATE, _PROGRAMS)]
    kept_paths = [*(DATA if keeps_data else ()), *strange]
    every = [
        part
        for path in present_paths
        for part in _removable_parts_of_folder(paths.root, path, kept_paths)
    ]
    for path in (engines, "/root/.cache/uv", "/root/.cache/pip"):
        is_present = (paths.root / path.lstrip("/")).exists()
        if is_present and was_absent(record, path):
            every.append(path)
        elif is_present and path == engines:
            every += [part for name in _ENGINE for part in _glob(paths.root, f"{path}/{name}")]
    return list(dict.fromkeys(every))


def _removable_parts_of_folder(root: Path, path: str, kept_paths: Iterable[str]) -> list[str]:
    """Return a folder as a whole, or the parts of it that hold nothing to keep."""
    if path in kept_paths:
        return []
    if not any(entry.startswith(f"{path}/") for entry in kept_paths):
        return [path]
    return [
        part
        for entry in _glob(root, f"{path}/*")
        for part in _removable_parts_of_folder(root, entry, kept_paths)
    ]


def notes_in_hub_folder(
    paths: layout.Paths, record: original_state.Baseline, hub_cache: str
) -> list[str]:
    """Return the deploy's own entries in the hub's folder, about the models in it."""
    entries = [entry for name in _BESIDE for entry in _glob(paths.root, f"{hub_cache}/{name}")]
    if was_absent(record, f"{hub_cache}/hub"):
        entries += _glob(paths.root, f"{hub_cache}/hub/.locks")
    return entries


def made_folders(paths: layout.Paths, record: original_state.Baseline) -> list[str]:
    """Return folders that a deploy made, the deepest first."""
    missing = [path for path, was in record.paths.items() if was is None]
    present_folders = [path for path in missing if _is_folder(paths.root / path.lstrip("/"))]
    return sorted(present_folders, key=lambda path: (-path.count("/"), path))


def was_absent(record: original_state.Baseline, path: str) -> bool:
    """Tell whether the record says that nothing was there."""
    return record.paths.get(path, "unknown") is None


def changed_folders(
    paths: layout.Paths,
    record: original_state.Baseline,
    wanted_folders: Mapping[str, str],
) -> dict[str, str]:
    """Return mode and owners before of folders to which a deploy gave others that they still have.

    `wanted_folders` has those that a deploy gives: folder → "folder", mode and owners.
    """
    if not record.whole:
        return {}
    earlier_states = {}
    for path, now in wanted_folders.items():
        was = record.paths.get(path) or ""
        if was.startswith("folder") and was != now == original_state.describe_path(
            paths.root, path
        ):
            earlier_states[path] = was
    return earlier_states


def own_records(paths: layout.Paths, keeps: bool, keeps_data: bool) -> list[str]:
    """Return the deploy's own records, without the baseline if something is kept."""
    if not paths.state.exists():
        return []
    baseline_files = (paths.baseline, paths.packages) if keeps else ()
    kept_paths = ["/" + str(path.relative_to(paths.root)) for path in baseline_files]
    return _removable_parts_of_folder(
        paths.root, _STATE, [*kept_paths, *(DATA if keeps_data else ())]
    )


def _is_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()


def _glob(root: Path, pattern: str) -> list[str]:
    return sorted("/" + str(path.relative_to(root)) for path in root.glob(pattern.lstrip("/")))
