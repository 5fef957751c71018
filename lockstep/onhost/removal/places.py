"""Files and folders of ours on this host, by their first lines and the record."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from lockstep.onhost.core import layout
from lockstep.onhost.facts import files as file_facts
from lockstep.onhost.facts import reading
from lockstep.onhost.records import found, generations, ours

_STATE, _PROGRAMS = "/var/lib/lockstep-deploy", "/usr/local/lib/lockstep"
#: Folders of ours that leave with all in them; the record and the program come after them.
_CONTENTS = (
    *(path for path in ours.HOMES if path not in (_STATE, _PROGRAMS, "/run/lockstep")),
    *(*ours.MADE_FOR_UNITS, "/tmp/torchinductor_lockstep"),
)
#: What people brought or were given, in folders of ours.
DATA = (
    *("/etc/lockstep/gateway", "/etc/lockstep/secrets", "/var/lib/lockstep-gateway"),
    *(f"{_STATE}/backup", ours.BACKUP_HOME),
)
#: What beside the snapshots of models lies in the hub's folder and is ours.
_BESIDE = ("lockstep-fetched", "lockstep-merged", "lockstep-verified")
_ENGINE = ("store", "uv-cache", "current", "[0-9a-f]" * 12)


def files(paths: layout.Paths, scripts: str) -> list[str]:
    """Files and links of ours outside our own folders; operators have `scripts` of theirs, too."""
    recorded = {str(file["path"]) for each in generations.known(paths) for file in each["files"]}
    outside = {path for path in (*recorded, ours.UNMARKED) if not ours.in_homes(path)}
    found_here = {*_scanned(paths.root, "/etc"), *_scanned(paths.root, scripts)}
    link = paths.root / ours.UV.lstrip("/")
    if link.is_symlink() and ours.in_homes(str(link.readlink())):
        found_here.add(ours.UV)
    judge = ours.Ours(root=paths.root)
    there = {path for path in outside if os.path.lexists(paths.root / path.lstrip("/"))}
    found_here |= {path for path in there if not judge.file(path)}
    return sorted(found_here | {*_boot_links(paths.root, found_here)})


def _scanned(root: Path, folder: str) -> Iterator[str]:
    for at, folders, names in os.walk(root / folder.lstrip("/")):
        inside = "/" + os.path.relpath(at, root)
        folders[:] = [name for name in folders if not ours.in_homes(f"{inside}/{name}")]
        for name in names:
            path = Path(at, name)
            if not path.is_symlink() and ours.marked(path):
                yield f"{inside}/{name}"


def _boot_links(root: Path, files_of_ours: Iterable[str]) -> Iterator[str]:
    """Links by which systemd starts units that are among our files."""
    own = {path for path in files_of_ours if path.startswith(ours.UNITS)}
    for link in (root / ours.UNITS.lstrip("/")).glob("*.wants/*"):
        if link.is_symlink() and str(link.readlink()) in own:
            yield "/" + str(link.relative_to(root))


def originals(paths: layout.Paths) -> list[str]:
    """Files of others in whose place a deploy put its own, with a copy of each on this host."""
    top = paths.root / ours.ADOPTED.lstrip("/")
    return sorted("/" + str(path.relative_to(top)) for path in top.rglob("*") if path.is_file())


def foreign(paths: layout.Paths, own: Mapping[str, Sequence[str]]) -> list[str]:
    """Files and folders of others in the folders in which we know each file of ours.

    `own` has these "folders", patterns of the "files" there that a deploy may ever have written,
    and beginnings of folders that only our programs fill ("inside").
    """
    top = str(paths.root).rstrip("/")
    recorded = (str(file["path"]) for each in generations.known(paths) for file in each["files"])
    known = {top + path for path in recorded}
    for pattern in own["files"]:
        end = "/" if pattern.endswith("/") else ""
        known |= {f"{path}{end}" for path in paths.root.glob(pattern.lstrip("/"))}
    inside = tuple(top + path for path in own["inside"])
    strange: list[str] = []
    for folder in own["folders"]:
        marked = {path for path in reading.below(top + folder) if ours.marked(Path(path))}
        strange += file_facts.strangers(top + folder, known | marked, inside)
    return sorted(path.removeprefix(top) for path in strange)


def programs(paths: layout.Paths, strange: Iterable[str]) -> list[str]:
    """The folder of the programs, or what of it leads to nothing of others."""
    there = (paths.root / _PROGRAMS.lstrip("/")).exists()
    return _but(paths.root, _PROGRAMS, strange) if there else []


def contents(
    paths: layout.Paths,
    record: found.Found,
    engines: str,
    keeps_data: bool,
    strange: Sequence[str] = (),
) -> list[str]:
    """Folders that leave with all in them, and parts of those in which others' files stay."""
    found_here = [path for pattern in _CONTENTS for path in _glob(paths.root, pattern)]
    here = [path for path in found_here if path not in (_STATE, _PROGRAMS)]
    kept = [*(DATA if keeps_data else ()), *strange]
    every = [each for path in here for each in _but(paths.root, path, kept)]
    for path in (engines, "/root/.cache/uv", "/root/.cache/pip"):
        there = (paths.root / path.lstrip("/")).exists()
        if there and was_absent(record, path):
            every.append(path)
        elif there and path == engines:
            every += [each for name in _ENGINE for each in _glob(paths.root, f"{path}/{name}")]
    return list(dict.fromkeys(every))


def _but(root: Path, path: str, kept: Iterable[str]) -> list[str]:
    """A folder as a whole, or what of it does not lead to one that is kept."""
    if path in kept:
        return []
    if not any(each.startswith(f"{path}/") for each in kept):
        return [path]
    return [part for each in _glob(root, f"{path}/*") for part in _but(root, each, kept)]


def beside_weights(paths: layout.Paths, record: found.Found, hub_cache: str) -> list[str]:
    """What a deploy keeps in the hub's folder about the models in it."""
    here = [each for name in _BESIDE for each in _glob(paths.root, f"{hub_cache}/{name}")]
    if was_absent(record, f"{hub_cache}/hub"):
        here += _glob(paths.root, f"{hub_cache}/hub/.locks")
    return here


def made_folders(paths: layout.Paths, record: found.Found) -> list[str]:
    """Folders that were not here before a deploy made them, the deepest first."""
    missing = [path for path, was in record.paths.items() if was is None]
    there = [path for path in missing if _folder(paths.root / path.lstrip("/"))]
    return sorted(there, key=lambda path: (-path.count("/"), path))


def was_absent(record: found.Found, path: str) -> bool:
    """Whether it is on record that nothing was there."""
    return record.paths.get(path, "unknown") is None


def changed_folders(
    paths: layout.Paths, record: found.Found, given: Mapping[str, str]
) -> dict[str, str]:
    """Folder → mode and owners before, of those to which a deploy gave others that it still has.

    `given` says what a deploy gives: folder → "folder", mode and owners.
    """
    if not record.whole:
        return {}
    changed = {}
    for path, now in given.items():
        was = record.paths.get(path) or ""
        if was.startswith("folder") and was != now == found.described(paths.root, path):
            changed[path] = was
    return changed


def records(paths: layout.Paths, keeps: bool, keeps_data: bool) -> list[str]:
    """The deploy's own records; but for what was here before, where something is kept."""
    if not paths.state.exists():
        return []
    before = (paths.found, paths.packages) if keeps else ()
    kept = ["/" + str(path.relative_to(paths.root)) for path in before]
    return _but(paths.root, _STATE, [*kept, *(DATA if keeps_data else ())])


def _folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()


def _glob(root: Path, pattern: str) -> list[str]:
    return sorted("/" + str(path.relative_to(root)) for path in root.glob(pattern.lstrip("/")))
