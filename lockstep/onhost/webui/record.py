"""What is on record of Open WebUI: which image opened its data last, and the copies of its data.

The record is /var/lib/lockstep-deploy/webui.json, a copy the folder webui/NNNN beside it with
"about.json" and "data". Where the host has backups, restic has the data instead.
"""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TypeVar

from lockstep.onhost.core import atomic, errors, layout, schema
from lockstep.onhost.records import restic
from lockstep.onhost.records.restic import Saved
from lockstep.onhost.webui import data

T = TypeVar("T")
#: Copies that stay beside those that an update still needs.
KEPT = 3
#: Of copies from before updates, in a backup.
TAG = "update"


@dataclass(frozen=True)
class Snapshot:
    """A copy of the data.

    Attributes:
        number: Its own; the folder's name.
        at: When it was made, seconds of Unix time.
        image: The image that had the data open before.
        generation: The generation of this host then.
        repository: Where restic has it; "" for a plain copy, as of a host without backups.
        backup: restic's id of it.
    """

    number: int
    at: float
    image: str
    generation: int
    repository: str = ""
    backup: str = ""

    @property
    def date(self) -> str:
        """When it was made, in UTC."""
        return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(self.at))


@dataclass(frozen=True)
class Update:
    """An update that has not ended yet.

    Attributes:
        to: Its image.
        snapshot: Number of the copy from before it.
        use: Number of the copy that `to` is to be given first; None: the data as they are.
        failed: Why image and data are to return; "" while that is open.
    """

    to: str
    snapshot: int
    use: int | None = None
    failed: str = ""


@dataclass(frozen=True)
class Wanted:
    """The number of a copy that an image is to be given when it comes in the place of another one.

    From `until` (Unix time, s) on that is no longer so.
    """

    image: str
    number: int
    until: float


@dataclass(frozen=True)
class Record:
    """The record.

    Attributes:
        image: The image that opened the data last; "" where none is on record.
        unit: Lines of the unit's file then.
        generation: The generation of this host then.
        update: What is under way.
        wanted: What a rollback asked for.
        last: How the last update that failed ended.
    """

    image: str = ""
    unit: tuple[str, ...] = ()
    generation: int = 0
    update: Update | None = None
    wanted: Wanted | None = None
    last: str = ""


def load(paths: layout.Paths) -> Record:
    """The record; an empty one where there is none. Problem when it cannot be read."""
    return _read(Record, paths.webui) if paths.webui.exists() else Record()


def _read(kind: type[T], path: Path) -> T:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise errors.Problem(f"{path}: {error}") from error
    return schema.build(kind, found, where=str(path), error=_unusable)


def save(paths: layout.Paths, record: Record) -> None:
    """Write the record."""
    atomic.write_json(paths.webui, asdict(record), mode=0o600)


def snapshots(paths: layout.Paths) -> list[Snapshot]:
    """The copies, newest first; what is half made is none."""
    found = paths.webui_kept.glob("[0-9]*/about.json")
    return sorted((_read(Snapshot, path) for path in found), key=lambda each: -each.number)


def kept_data(paths: layout.Paths, number: int) -> Path:
    """The folder of a copy's data."""
    return paths.webui_kept / f"{number:04}" / "data"


def keep(paths: layout.Paths, source: Path, record: Record) -> Snapshot:
    """Copy data that nobody has open, and say so on disk when all of it is there."""
    made = Snapshot(_next(paths), time.time(), record.image, record.generation)
    if restic.config(paths) is None:
        return take(paths, source, made)
    own = restic.Repository(paths)
    own.make()
    tags = [TAG, f"generation={made.generation}", f"image={made.image}"]
    made = replace(made, repository=own.place, backup=own.save([source], tags))
    _say(paths, made)
    return made


def take(paths: layout.Paths, source: Path, made: Snapshot | Saved) -> Snapshot:
    """Make a plain copy of data, as what is said or what a backup says of them."""
    if isinstance(made, Saved):
        generation = int(made.tag("generation") or 0)
        made = Snapshot(_next(paths), made.at, made.tag("image"), generation)
    folder = kept_data(paths, made.number).parent
    data.remove(folder)
    folder.mkdir(parents=True, mode=0o700)
    data.copy(source, folder / "data")
    _say(paths, made)
    return made


def put_back(paths: layout.Paths, place: Path, number: int) -> None:
    """Put a copy in the place of the data; once more after a power cut, it does the same."""
    made = next((each for each in snapshots(paths) if each.number == number), None)
    if made is None or not made.backup:
        data.replace(place, kept_data(paths, number))
        return
    unpacked = kept_data(paths, number)
    data.remove(unpacked)
    restic.Repository(paths, made.repository).unpack(made.backup, unpacked)
    data.replace(place, data.within(unpacked))
    data.remove(unpacked)


def forget_old(paths: layout.Paths) -> None:
    """Remove the oldest copies."""
    for each in snapshots(paths)[KEPT:]:
        if each.backup:
            restic.Repository(paths, each.repository).forget(each.backup)
        data.remove(kept_data(paths, each.number).parent)


def _next(paths: layout.Paths) -> int:
    known = snapshots(paths)
    return known[0].number + 1 if known else 1


def _say(paths: layout.Paths, made: Snapshot) -> None:
    folder = kept_data(paths, made.number).parent
    folder.mkdir(parents=True, mode=0o700, exist_ok=True)
    atomic.write_json(folder / "about.json", asdict(made), mode=0o600)


def _unusable(what: str, *, where: str, **_: object) -> errors.Problem:
    return errors.Problem(f"{where}: {what}")
