"""The record of Open WebUI: the image that opened its data last, and the copies of its data.

The record is /var/lib/lockstep-deploy/webui.json, a copy the folder webui/NNNN beside it with
"about.json" and "data". On a host with backups, restic has the data instead.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path

from lockstep.onhost.core import layout
from lockstep.onhost.records import json_records, restic_client
from lockstep.onhost.records.restic_client import BackupSnapshot
from lockstep.onhost.webui import data

_REMEDY = "remove it, and it is written anew"
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
    return json_records.load_or_refuse(WebUiRecord, paths.webui, _REMEDY) or WebUiRecord()


def save(paths: layout.Paths, record: WebUiRecord) -> None:
    """Write the record."""
    json_records.save(paths.webui, record, mode=0o600)


def complete_copies(paths: layout.Paths) -> list[Snapshot]:
    """Return the complete copies, newest first."""
    snapshots = (
        json_records.load_or_refuse(Snapshot, path, _REMEDY)
        for path in paths.webui_kept.glob("[0-9]*/about.json")
    )
    return sorted(filter(None, snapshots), key=lambda snapshot: -snapshot.number)


def copied_data_folder(paths: layout.Paths, number: int) -> Path:
    """Return the folder of a copy's data."""
    return paths.webui_kept / f"{number:04}" / "data"


def keep_copy(paths: layout.Paths, source: Path, record: WebUiRecord) -> Snapshot:
    """Copy data that nobody has open, and mark the copy on disk once it is complete."""
    snapshot = Snapshot(_next_copy_number(paths), time.time(), record.image, record.generation)
    if restic_client.backup_settings(paths) is None:
        return make_folder_copy(paths, source, snapshot)
    own = restic_client.ResticRepository(paths)
    own.make_repository()
    tags = [TAG, f"generation={snapshot.generation}", f"image={snapshot.image}"]
    snapshot = replace(snapshot, repository=own.place, backup=own.save_snapshot([source], tags))
    _write_copy_description(paths, snapshot)
    return snapshot


def make_folder_copy(
    paths: layout.Paths, source: Path, snapshot: Snapshot | BackupSnapshot
) -> Snapshot:
    """Make a plain copy of data, described by a snapshot or a backup."""
    if isinstance(snapshot, BackupSnapshot):
        generation = int(snapshot.tag_value("generation") or 0)
        snapshot = Snapshot(
            _next_copy_number(paths), snapshot.at, snapshot.tag_value("image"), generation
        )
    folder = copied_data_folder(paths, snapshot.number).parent
    data.remove_folder(folder)
    folder.mkdir(parents=True, mode=0o700)
    data.copy_folder(source, folder / "data")
    _write_copy_description(paths, snapshot)
    return snapshot


def restore_copy(paths: layout.Paths, place: Path, number: int) -> None:
    """Replace the data by a copy; a repetition after a power cut has the same result."""
    snapshot_to_restore = next(
        (snapshot for snapshot in complete_copies(paths) if snapshot.number == number), None
    )
    if snapshot_to_restore is None or not snapshot_to_restore.backup:
        data.replace_folder(place, copied_data_folder(paths, number))
        return
    target_path = copied_data_folder(paths, number)
    data.remove_folder(target_path)
    restic_client.ResticRepository(paths, snapshot_to_restore.repository).restore_snapshot(
        snapshot_to_restore.backup, target_path
    )
    data.replace_folder(place, data.data_folder_in_backup(target_path))
    data.remove_folder(target_path)


def remove_oldest_copies(paths: layout.Paths) -> None:
    """Remove the oldest copies."""
    for snapshot in complete_copies(paths)[KEPT:]:
        if snapshot.backup:
            restic_client.ResticRepository(paths, snapshot.repository).forget_snapshot(
                snapshot.backup
            )
        data.remove_folder(copied_data_folder(paths, snapshot.number).parent)


def _next_copy_number(paths: layout.Paths) -> int:
    kept_snapshots = complete_copies(paths)
    return kept_snapshots[0].number + 1 if kept_snapshots else 1


def _write_copy_description(paths: layout.Paths, snapshot: Snapshot) -> None:
    folder = copied_data_folder(paths, snapshot.number).parent
    folder.mkdir(parents=True, mode=0o700, exist_ok=True)
    json_records.save(folder / "about.json", snapshot, mode=0o600)
