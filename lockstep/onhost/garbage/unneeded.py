"""Finds our content on this host that no kept generation and no running process needs.

Something is needed where its name (engine id, image digest, revision of a model: hexadecimal, and
long enough to be no accident) stands in a kept record, in a unit, in what the deploy configured,
or in what a process or container was started with. Only what a deploy noted as its own is looked
at: it never counts what an operator has put beside it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from lockstep.onhost.core import atomic, errors, layout
from lockstep.onhost.docker import docker_api
from lockstep.onhost.garbage import disk_use
from lockstep.onhost.images import image_store
from lockstep.onhost.records import generations
from lockstep.onhost.weights import hub_cache

_ENGINE = re.compile(r"[0-9a-f]{12}")
_CONFIGURED = ("etc/lockstep/*.json", "etc/systemd/system/*.service")
_ENGINE_FILES = ("venv", "check.json", "unfinished")


@dataclass(frozen=True)
class Item:
    """One thing to remove; `bytes` come free.

    `kind` is engine, image, weights, wheels or compiled.
    """

    kind: str
    name: str
    bytes: int
    places: tuple[Path, ...] = ()

    @property
    def id(self) -> str:
        """How it is named between two calls."""
        return f"{self.kind} {self.name}"


@dataclass(frozen=True)
class Plan:
    """What to remove, and which records stay or go with it."""

    items: tuple[Item, ...]
    kept: tuple[int, ...]
    dropped: tuple[int, ...]


def plan(paths: layout.Paths, docker: docker_api.Docker, keep: int) -> Plan:
    """What nothing needs when the `keep` newest generations stay. Problem without a record."""
    every = generations.records(paths)
    if not every:
        raise errors.Problem(
            "there is no record of a generation here, so nothing is known to be superfluous. "
            "Remedy: deploy once"
        )
    stay = generations.distinct(every)[:keep]
    digests = {record["digest"] for record in stay}
    begun = generations.begun(paths)
    text = "\n".join([json.dumps([*stay, begun]), *_mentions(paths, docker, every)])
    folders = _folders(paths, every, "engine", "folder")
    engines = list(_engines(folders, text))
    items = [
        *engines,
        *_wheels(engines, folders),
        *_kept(engines, folders, text),
        *_images(paths, docker, every, text),
        *(
            Item("weights", found.name, found.bytes, (found.note, folder))
            for folder in _folders(paths, every, "weights", "cache_dir")
            for found in hub_cache.unneeded(folder, text)
        ),
        *_compiled(paths, docker, every, text),
    ]
    return Plan(
        tuple(items),
        tuple(record["number"] for record in every if record["digest"] in digests),
        tuple(record["number"] for record in every if record["digest"] not in digests),
    )


def _mentions(
    paths: layout.Paths, docker: docker_api.Docker, every: list[generations.Record]
) -> Iterator[str]:
    """Texts that name what is in use or about to be."""
    files = [paths.before, *(path for part in _CONFIGURED for path in paths.root.glob(part))]
    for path in files:
        yield _text(path)
    for folder in _folders(paths, every, "engine", "folder"):
        if (folder / "current").is_symlink():
            yield str((folder / "current").readlink())
    for process in paths.proc.glob("[0-9]*"):
        yield _text(process / "cmdline")
        # An engine is started through `current`; what it has loaded has the real name.
        yield _text(process / "maps")
    for container in docker.json("GET", "/containers/json", {"all": "1"}):
        yield json.dumps(container)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _folders(
    paths: layout.Paths, every: list[generations.Record], part: str, key: str
) -> list[Path]:
    """Folders that records name under a key of one part, once each."""
    found = [str(record[part][key]) for record in every]
    return [paths.root / folder.lstrip("/") for folder in dict.fromkeys(found)]


def _engines(folders: list[Path], text: str) -> Iterator[Item]:
    for home in _homes(folders, text):
        if any((home / name).exists() for name in _ENGINE_FILES):
            yield Item("engine", home.name, disk_use.freed([home]), (home,))


def _homes(folders: list[Path], text: str) -> Iterator[Path]:
    """Folders in these that are named by an engine id or image digest, and not in `text`."""
    for folder in folders:
        for home in sorted(folder.glob("*")):
            # An engine could have put a link in its place.
            named = _ENGINE.fullmatch(home.name) and home.is_dir() and not home.is_symlink()
            if named and home.name not in text:
                yield home


def _wheels(engines: list[Item], folders: list[Path]) -> Iterator[Item]:
    """Unpacked wheels that no environment shares its files with, once `engines` are gone."""
    gone = [place for item in engines for place in item.places]
    for folder in folders:
        every = sorted((folder / "uv-cache/archive-v0").glob("*"))
        old = disk_use.unshared(every, gone)
        # Where nothing is shared, the disk cannot share, and nothing can be told.
        if old and len(old) < len(every):
            # uv's entries for them as well: uv fails at one whose wheel is gone (seen 2026-11-21).
            cache = folder / "uv-cache"
            entries = [place for place in cache.glob("*-v*") if place.name != "archive-v0"]
            yield Item("wheels", str(cache), disk_use.freed(old, gone), (*old, *entries))


def _kept(engines: list[Item], folders: list[Path], text: str) -> Iterator[Item]:
    """Wheels and histories that neither the configuration nor an engine that stays is made of."""
    gone = {place for item in engines for place in item.places}
    for folder in folders:
        homes = [home for home in folder.glob("*") if _ENGINE.fullmatch(home.name)]
        made_of = "\n".join([text, *(_made_of(home) for home in homes if home not in gone)])
        store = folder / "store"
        files = [path for path in store.glob("*") if path.is_file()]
        # Unfinished ones have more around the hash.
        old = [path for path in files if path.name.strip(".").partition(".")[0] not in made_of]
        links = [path for path in (store / "wheels").glob("*") if path.resolve() in old]
        if old:
            size = sum(path.stat().st_size for path in old)
            yield Item("wheels", str(store), size, (*old, *links))


def _made_of(home: Path) -> str:
    """Hashes of the wheels and commits of the trees that an engine was built of."""
    return "\n".join(map(_text, [*home.glob("*.txt"), *home.glob("*/.git/HEAD")]))


def _images(
    paths: layout.Paths, docker: docker_api.Docker, every: list[generations.Record], text: str
) -> Iterator[Item]:
    newest = paths.generations / f"{every[0]['number']:04}.json"
    for note in sorted(paths.pulled.glob("*.json")):
        name = reference(note)
        try:
            # Of a deploy that has not come to its end yet.
            fresh = note.stat().st_mtime > newest.stat().st_mtime
        except OSError:
            continue
        if not name or fresh or name.partition("@")[2] in text:
            continue
        try:
            size = int(docker.json("GET", f"/images/{name}/json").get("Size", 0))
        except docker_api.DockerError:
            size = 0
        kept = image_store.alone(paths.layers, name.rpartition(":")[2])
        size += sum(file.stat().st_size for file in kept)
        yield Item("image", name, size, (note,))


def reference(note: Path) -> str:
    """The image that a note of `pull_image` names; "" where that cannot be read."""
    return str((atomic.read_json(note) or {}).get("reference", ""))


def _compiled(
    paths: layout.Paths, docker: docker_api.Docker, every: list[generations.Record], text: str
) -> Iterator[Item]:
    """What engines compiled for themselves, in folders named by engine id or image digest."""
    units = {Path(file["path"]).stem for record in every for file in record["files"]}
    folders = [paths.root / "var/lib/lockstep/.cache"]
    for volume in docker.json("GET", "/volumes")["Volumes"] or []:
        unit, mark, rest = str(volume["Name"]).rpartition("-cache")
        # One of that name without our label is somebody else's.
        if mark and not rest and unit in units and docker_api.ours(volume.get("Labels")):
            folders.append(paths.root / str(volume["Mountpoint"]).lstrip("/"))
    for home in _homes([folder for folder in folders if not folder.is_symlink()], text):
        yield Item("compiled", str(home), disk_use.freed([home]), (home,))
