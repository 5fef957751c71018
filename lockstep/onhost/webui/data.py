"""The data of Open WebUI: the folder of its Docker volume, copied, compared and asked."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import sqlite3
import urllib.parse
from collections.abc import Iterator
from pathlib import Path

from lockstep.onhost.core import atomic, errors, layout, runner
from lockstep.onhost.docker import docker_api

DATABASE = "webui.db"
_HEADER = b"SQLite format 3\0"
# What SQLite keeps beside a database that is open; a copy by SQLite itself needs none of it.
_BESIDE = ("-wal", "-shm", "-journal")
_COPY_S = 3600.0
# How often a copy of living data begins anew, where a file was replaced while it was copied.
_TRIES = 3
# Lines of cp that are told.
_SAID = 3
#: What cp says of a file that the program removed meanwhile: it is none of its data any more.
_VANISHED = re.compile(r"cp: cannot (?:stat|open|access) .+: No such file or directory")
_REPLACED = re.compile(r"cp: skipping file .+, as it was replaced while being copied")


def folder(paths: layout.Paths, volume: str) -> Path | None:
    """Where a volume's files are; None where there is no such volume.

    Problem when Docker does not answer.
    """
    docker = docker_api.Docker(paths.docker_socket)
    try:
        found = docker.json("GET", f"/volumes/{urllib.parse.quote(volume, safe='')}", none=(404,))
    except docker_api.DockerError as error:
        raise errors.Problem(f"volume {volume}: {error}") from error
    return paths.root / str(found["Mountpoint"]).lstrip("/") if found else None


def copy(source: Path, to: Path, *, live: bool = False) -> None:
    """Copy a folder with owners, modes and times to a path that is not there yet.

    Args:
        source: The folder.
        to: Its copy. Whatever an earlier call left there half done is removed first.
        live: Whether a program may be writing: each SQLite database is then copied by SQLite, and
            a file may vanish meanwhile.

    Problem where anything else of it could not be copied: what is left is no copy.
    """
    for left in reversed(range(_TRIES)):
        remove(to)
        words = ["cp", "--archive", "--reflink=auto", "--", str(source), str(to)]
        done = runner.run(words, timeout=_COPY_S, env={**os.environ, "LC_ALL": "C"})
        lines = done.stderr.strip().splitlines()
        wrong = [line for line in lines if not (live and _VANISHED.fullmatch(line))]
        if not done.returncode or (lines and not wrong):
            break
        if not (left and live and wrong and all(map(_REPLACED.fullmatch, wrong))):
            said = "; ".join(wrong[:_SAID]) or f"cp ended with {done.returncode}"
            raise errors.Problem(f"{source} cannot be copied: {said}")
    if live:
        for database in databases(source):
            _copy_database(database, to / database.relative_to(source))
    _flush(to)


def remove(path: Path) -> None:
    """Remove a folder of ours with all that is in it, if it is there."""
    if path.exists():
        shutil.rmtree(path)


def replace(data: Path, by: Path) -> None:
    """Put a copy of `by` in the place of `data`; once more after a power cut, it does the same."""
    new, old = data.with_name(f"{data.name}.new"), data.with_name(f"{data.name}.old")
    copy(by, new)
    if data.exists():
        remove(old)
        data.rename(old)
    new.rename(data)
    atomic.flush(data.parent)
    remove(old)


def within(unpacked: Path) -> Path:
    """The data among the files of a backup. Problem where there are none."""
    found = next((path.parent for path in sorted(unpacked.rglob(DATABASE))), None)
    if found is None:
        raise errors.Problem("the backup holds no data of Open WebUI")
    return found


def databases(data: Path) -> list[Path]:
    """The SQLite databases below a folder."""
    return [path for path in sorted(data.rglob("*")) if _is_database(path)]


def fault(database: Path) -> str:
    """What SQLite finds wrong with a database; "" where it is whole."""
    try:
        with _opened(database) as connection:
            rows = connection.execute("PRAGMA integrity_check(3)").fetchall()
    except sqlite3.Error as error:
        return str(error)
    said = "; ".join(str(row[0]) for row in rows)
    return "" if said == "ok" else said


def chats_since(data: Path, since: float) -> int | None:
    """Chats that were begun or continued after a time (Unix, s); None where that is not told."""
    try:
        with _opened(data / DATABASE) as connection:
            query = "SELECT count(*) FROM chat WHERE updated_at > ?"
            return int(connection.execute(query, (since,)).fetchone()[0])
    except (sqlite3.Error, TypeError):
        return None


def _flush(folder: Path) -> None:
    """Have a copy on disk. Not by sync(2), which waits for whatever else is written to any disk."""
    for each in (folder, *folder.rglob("*")):
        if each.is_dir() or (each.is_file() and not each.is_symlink()):
            atomic.flush(each)


def _is_database(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return path.is_file() and file.read(len(_HEADER)) == _HEADER
    except OSError:
        return False


@contextlib.contextmanager
def _opened(database: Path) -> Iterator[sqlite3.Connection]:
    place = urllib.parse.quote(str(database))
    with contextlib.closing(sqlite3.connect(f"file:{place}?mode=ro", uri=True)) as connection:
        yield connection


def _copy_database(database: Path, to: Path) -> None:
    """Copy a database that may be in use. Problem when SQLite cannot."""
    state = database.stat()
    for ending in ("", *_BESIDE):
        to.with_name(to.name + ending).unlink(missing_ok=True)
    try:
        with _opened(database) as live, contextlib.closing(sqlite3.connect(to)) as new:
            live.backup(new)
    except sqlite3.Error as error:
        raise errors.Problem(f"{database} cannot be copied: {error}") from error
    to.chmod(state.st_mode & 0o7777)
    os.chown(to, state.st_uid, state.st_gid)
