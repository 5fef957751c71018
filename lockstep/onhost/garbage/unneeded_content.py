"""Our content on this host that no kept generation and no running process needs.

Content is needed if its name (engine id, image digest, revision of a model: hexadecimal, and long
enough to be no accident) stands in a kept record, in a unit, in the deploy's configuration, or in
the start of a process or container. Only content that a deploy noted as its own is considered, so
nothing that an operator has put beside it counts.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from lockstep.onhost.core import atomic_files, errors, layout
from lockstep.onhost.docker import docker_api
from lockstep.onhost.garbage import freed_space
from lockstep.onhost.images import image_blob_store
from lockstep.onhost.records import generations
from lockstep.onhost.weights import own_snapshots

_ENGINE = re.compile(r"[0-9a-f]{12}")
_CONFIGURED_FILES = ("etc/lockstep/*.json", "etc/systemd/system/*.service")
_ENGINE_FILES = ("venv", "check.json", "unfinished")


@dataclass(frozen=True)
class UnneededItem:
    """One thing to remove, which frees `bytes`.

    `kind` is engine, image, weights, wheels or compiled.
    """

    kind: str
    name: str
    bytes: int
    places: tuple[Path, ...] = ()


@dataclass(frozen=True)
class CleanupPlan:
    """The items to remove, and the numbers of the records that go with them."""

    items: tuple[UnneededItem, ...]
    dropped_numbers: tuple[int, ...]

    @property
    def digest(self) -> str:
        """A digest of the names: equal if a second plan removes the same."""
        names = [[item.kind, item.name] for item in self.items]
        return hashlib.sha256(json.dumps([names, self.dropped_numbers]).encode()).hexdigest()


def plan_cleanup(paths: layout.Paths, docker: docker_api.Docker, keep: int) -> CleanupPlan:
    """Plan the removal if the `keep` newest generations stay; raise Problem without a record."""
    every = generations.readable_records(paths)
    if not every:
        raise errors.Problem(
            "there is no record of a generation here, so nothing is known to be superfluous. "
            "Remedy: deploy once"
        )
    stay = generations.distinct_records(every)[:keep]
    digests = {record["digest"] for record in stay}
    unfinished_record = generations.begun_record(paths)
    text = "\n".join([json.dumps([*stay, unfinished_record]), *_texts_in_use(paths, docker, every)])
    folders = _recorded_folders(paths, every, "engine", "folder")
    engines = list(_unneeded_engines(folders, text))
    items = [
        *engines,
        *_unneeded_unpacked_wheels(engines, folders),
        *_unneeded_wheels(engines, folders, text),
        *_unneeded_images(paths, docker, every, text),
        *(
            UnneededItem("weights", revision.name, revision.bytes, (revision.note, folder))
            for folder in _recorded_folders(paths, every, "weights", "cache_dir")
            for revision in own_snapshots.unneeded_revisions(folder, text)
        ),
        *_compiled_content(paths, docker, every, text),
    ]
    return CleanupPlan(
        tuple(items),
        tuple(record["number"] for record in every if record["digest"] not in digests),
    )


def _texts_in_use(
    paths: layout.Paths, docker: docker_api.Docker, every: list[generations.Record]
) -> Iterator[str]:
    """Yield texts that name content in use or about to be used."""
    files = [
        paths.begun_journal,
        paths.journal,
        *(path for part in _CONFIGURED_FILES for path in paths.root.glob(part)),
    ]
    for path in files:
        yield _text(path)
    for folder in _recorded_folders(paths, every, "engine", "folder"):
        if (folder / "current").is_symlink():
            yield str((folder / "current").readlink())
    for process in paths.proc.glob("[0-9]*"):
        yield _text(process / "cmdline")
        # An engine is started through `current`; its loaded files have the real name.
        yield _text(process / "maps")
    for container in docker.request_json("GET", "/containers/json", {"all": "1"}):
        yield json.dumps(container)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _recorded_folders(
    paths: layout.Paths, every: list[generations.Record], part: str, key: str
) -> list[Path]:
    """Return the folders that records name under a key of one part, once each."""
    folder_names = [str(record[part][key]) for record in every]
    return [paths.root / folder.lstrip("/") for folder in dict.fromkeys(folder_names)]


def _unneeded_engines(folders: list[Path], text: str) -> Iterator[UnneededItem]:
    for home in _unnamed_folders(folders, text):
        if any((home / name).exists() for name in _ENGINE_FILES):
            yield UnneededItem("engine", home.name, freed_space.freed_bytes([home]), (home,))


def _unnamed_folders(folders: list[Path], text: str) -> Iterator[Path]:
    """Yield subfolders named by an engine id or image digest that is not in `text`."""
    for folder in folders:
        for home in sorted(folder.glob("*")):
            # An engine could have put a link in its place.
            is_named = _ENGINE.fullmatch(home.name) and home.is_dir() and not home.is_symlink()
            if is_named and home.name not in text:
                yield home


def _unneeded_unpacked_wheels(
    engines: list[UnneededItem], folders: list[Path]
) -> Iterator[UnneededItem]:
    """Yield unpacked wheels that share files with no environment, once `engines` are gone."""
    gone_places = [place for item in engines for place in item.places]
    for folder in folders:
        every = sorted((folder / "uv-cache/archive-v0").glob("*"))
        old = freed_space.unshared_places(every, gone_places)
        # If no wheel is shared, the disk cannot share, and nothing can be concluded.
        if old and len(old) < len(every):
            # uv's entries for these wheels go as well: uv fails at an entry whose wheel is gone
            # (seen 2026-11-21).
            cache = folder / "uv-cache"
            entries = [place for place in cache.glob("*-v*") if place.name != "archive-v0"]
            yield UnneededItem(
                "wheels", str(cache), freed_space.freed_bytes(old, gone_places), (*old, *entries)
            )


def _unneeded_wheels(
    engines: list[UnneededItem], folders: list[Path], text: str
) -> Iterator[UnneededItem]:
    """Yield wheels and histories that no remaining engine and no configuration is made of."""
    gone_places = {place for item in engines for place in item.places}
    for folder in folders:
        homes = [home for home in folder.glob("*") if _ENGINE.fullmatch(home.name)]
        made_of = "\n".join(
            [text, *(_build_input_hashes(home) for home in homes if home not in gone_places)]
        )
        store = folder / "store"
        files = [path for path in store.glob("*") if path.is_file()]
        # Names of unfinished files have more around the hash.
        old = [path for path in files if path.name.strip(".").partition(".")[0] not in made_of]
        links = [path for path in (store / "wheels").glob("*") if path.resolve() in old]
        if old:
            size = sum(path.stat().st_size for path in old)
            yield UnneededItem("wheels", str(store), size, (*old, *links))


def _build_input_hashes(home: Path) -> str:
    """Return the hashes of the wheels and commits of the trees that an engine was built of."""
    return "\n".join(map(_text, [*home.glob("*.txt"), *home.glob("*/.git/HEAD")]))


def _unneeded_images(
    paths: layout.Paths, docker: docker_api.Docker, every: list[generations.Record], text: str
) -> Iterator[UnneededItem]:
    newest = paths.generations / f"{every[0]['number']:04}.json"
    for note in sorted(paths.pulled_images.glob("*.json")):
        name = noted_image(note)
        try:
            # A newer note belongs to a deploy that has not ended yet.
            fresh = note.stat().st_mtime > newest.stat().st_mtime
        except OSError:
            continue
        if not name or fresh or name.partition("@")[2] in text:
            continue
        try:
            size = int(docker.request_json("GET", f"/images/{name}/json").get("Size", 0))
        except docker_api.DockerError:
            size = 0
        layer_files = image_blob_store.unshared_files(paths.layers, name.rpartition(":")[2])
        size += sum(file.stat().st_size for file in layer_files)
        yield UnneededItem("image", name, size, (note,))


def noted_image(note: Path) -> str:
    """Return the image that a note of `pull_image` names; "" if that cannot be read."""
    return str((atomic_files.read_json(note) or {}).get("reference", ""))


def _compiled_content(
    paths: layout.Paths, docker: docker_api.Docker, every: list[generations.Record], text: str
) -> Iterator[UnneededItem]:
    """Yield what engines compiled for themselves, in folders named by engine id or image digest."""
    units = {Path(file["path"]).stem for record in every for file in record["files"]}
    folders = [paths.root / "var/lib/lockstep/.cache"]
    for volume in docker.request_json("GET", "/volumes")["Volumes"] or []:
        unit, mark, suffix = str(volume["Name"]).rpartition("-cache")
        # A volume of that name without our label belongs to somebody else.
        if mark and not suffix and unit in units and docker_api.is_ours(volume.get("Labels")):
            folders.append(paths.root / str(volume["Mountpoint"]).lstrip("/"))
    for home in _unnamed_folders([folder for folder in folders if not folder.is_symlink()], text):
        yield UnneededItem("compiled", str(home), freed_space.freed_bytes([home]), (home,))
