"""The record of Open WebUI: the image that opened its data last, and the copies of its data.

The record is /var/lib/lockstep-deploy/webui.json, a copy the folder webui/NNNN beside it with
"about.json" and "data". On a host with backups, restic has the data instead.
"""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TypeVar

from lockstep.onhost.core import atomic, errors, layout, schema
from lockstep.onhost.records import restic
from lockstep.onhost.records.restic import BackupSnapshot
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
        at: Time of the copy, seconds of Unix time.
        image: The image that had the data open before.
        generation: The generation of this host then.
        repository: The restic repository with it; "" for a plain copy, as of a host without
            backups.
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
        """Time of the copy, in UTC."""
        return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(self.at))


@dataclass(frozen=True)
class Update:
    """An update that has not ended yet.

    Attributes:
        to: Its image.
        snapshot: Number of the copy from before it.
        use: Number of the copy that `to` is to be given first; None: the data as they are.
        failure: Reason why image and data are to return; "" while that is open.
    """

    to: str
    snapshot: int
    use: int | None = None
    failure: str = ""


@dataclass(frozen=True)
class WantedCopy:
    """The number of a copy that an image is given when it replaces another one.

    It is valid until `until` (Unix time, s).
    """

    image: str
    number: int
    until: float


@dataclass(frozen=True)
class WebUiRecord:
    """The record.

    Attributes:
        image: The image that opened the data last; "" if none is on record.
        unit: Lines of the unit's file then.
        generation: The generation of this host then.
        update: The update under way.
        wanted_copy: The copy requested by a rollback.
        last: How the last update that failed ended.
    """

    image: str = ""
    unit: tuple[str, ...] = ()
    generation: int = 0
    update: Update | None = None
    wanted_copy: WantedCopy | None = None
    last: str = ""


def load(paths: layout.Paths) -> WebUiRecord:
    """Return the record, empty if missing; raise Problem if it is unreadable."""
    return _read(WebUiRecord, paths.webui) if paths.webui.exists() else WebUiRecord()


def _read(kind: type[T], path: Path) -> T:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise errors.Problem(f"{path}: {error}") from error
    return schema.build(kind, document, where=str(path), error=_unusable)


def save(paths: layout.Paths, record: WebUiRecord) -> None:
    """Write the record."""
    atomic.write_json(paths.webui, asdict(record), mode=0o600)


def snapshots(paths: layout.Paths) -> list[Snapshot]:
    """Return the complete copies, newest first."""
    snapshot_files = paths.webui_kept.glob("[0-9]*/about.json")
    return sorted(
        (_read(Snapshot, path) for path in snapshot_files), key=lambda snapshot: -snapshot.number
    )


def kept_data(paths: layout.Paths, number: int) -> Path:
    """Return the folder of a copy's data."""
    return paths.webui_kept / f"{number:04}" / "data"


def keep(paths: layout.Paths, source: Path, record: WebUiRecord) -> Snapshot:
    """Copy data that nobody has open, and mark the copy on disk once it is complete."""
    snapshot = Snapshot(_next(paths), time.time(), record.image, record.generation)
    if restic.config(paths) is None:
        return take(paths, source, snapshot)
    own = restic.ResticRepository(paths)
    own.make()
    tags = [TAG, f"generation={snapshot.generation}", f"image={snapshot.image}"]
    snapshot = replace(snapshot, repository=own.place, backup=own.save([source], tags))
    _say(paths, snapshot)
    return snapshot


def take(paths: layout.Paths, source: Path, snapshot: Snapshot | BackupSnapshot) -> Snapshot:
    """Make a plain copy of data, described by a snapshot or a backup."""
    if isinstance(snapshot, BackupSnapshot):
        generation = int(snapshot.tag("generation") or 0)
        snapshot = Snapshot(_next(paths), snapshot.at, snapshot.tag("image"), generation)
    folder = kept_data(paths, snapshot.number).parent
    data.remove(folder)
    folder.mkdir(parents=True, mode=0o700)
    data.copy(source, folder / "data")
    _say(paths, snapshot)
    return snapshot


def put_back(paths: layout.Paths, place: Path, number: int) -> None:
    """Replace the data by a copy; a repetition after a power cut has the same result."""
    snapshot_to_restore = next(
        (snapshot for snapshot in snapshots(paths) if snapshot.number == number), None
    )
    if snapshot_to_restore is None or not snapshot_to_restore.backup:
        data.replace(place, kept_data(paths, number))
        return
    target_path = kept_data(paths, number)
    data.remove(target_path)
    restic.ResticRepository(paths, snapshot_to_restore.repository).unpack(
        snapshot_to_restore.backup, target_path
    )
    data.replace(place, data.within(target_path))
    data.remove(target_path)


def forget_old(paths: layout.Paths) -> None:
    """Remove the oldest copies."""
    for snapshot in snapshots(paths)[KEPT:]:
        if snapshot.backup:
            restic.ResticRepository(paths, snapshot.repository).forget(snapshot.backup)
        data.remove(kept_data(paths, snapshot.number).parent)


def _next(paths: layout.Paths) -> int:
    kept_snapshots = snapshots(paths)
    return kept_snapshots[0].number + 1 if kept_snapshots else 1


def _say(paths: layout.Paths, snapshot: Snapshot) -> None:
    folder = kept_data(paths, snapshot.number).parent
    folder.mkdir(parents=True, mode=0o700, exist_ok=True)
    atomic.write_json(folder / "about.json", asdict(snapshot), mode=0o600)


def _unusable(description: str, *, where: str, **_: object) -> errors.Problem:
    return errors.Problem(f"{where}: {description}")
