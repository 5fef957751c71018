"""The last load of each model on this host: bytes, seconds and disk, readable for everybody."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from lockstep.onhost.core import atomic_files, layout
from lockstep.onhost.records import json_records


@dataclass(frozen=True)
class LoadRecord:
    """The reading of one model's weights.

    Attributes:
        model: Its name.
        at: End of reading, Unix time.
        needs_bytes: Size of all of the model's files.
        bytes: Bytes of them read from disks, by the disks' counters; None if they are on none.
        seconds: Time from the first file's opening to the last read.
        device: MAJOR:MINOR of the file system with the weights.
        disk: The kernel's name of its disk.
        read_ahead_kib: Size of a read of a mapped file meanwhile; 0 if it is not known.
    """

    model: str
    at: float
    needs_bytes: int
    bytes: int | None
    seconds: float
    device: str
    disk: str
    read_ahead_kib: int


def last_load_by_model(paths: layout.Paths) -> dict[str, LoadRecord]:
    """Return the last load by model; empty without a readable record."""
    return json_records.load(dict[str, LoadRecord], paths.loads) or {}


def record_load(paths: layout.Paths, record: LoadRecord) -> None:
    """Store a load in place of the model's last one; raise OSError on failure."""
    records = {**last_load_by_model(paths), record.model: record}
    atomic_files.write_json(paths.loads, {name: asdict(load) for name, load in records.items()})
