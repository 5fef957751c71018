"""Data of Open WebUI: copies, checks and queries of its Docker volume's folder."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import sqlite3
import urllib.parse
from collections.abc import Iterator
from pathlib import Path

from lockstep.onhost.core import atomic_files, errors, layout, runner
from lockstep.onhost.docker import docker_api

DATABASE = "webui.db"
_HEADER = b"SQLite format 3\0"
# SQLite's files beside an open database; a copy by SQLite itself needs none of them.
_BESIDE = ("-wal", "-shm", "-journal")
_COPY_S = 3600.0
# Attempts to copy living data, if a file is replaced during the copy.
_TRIES = 3
# Lines of cp that are shown.
_SAID = 3
#: cp's message for a file that the program has since removed: it is no longer part of the data.
_VANISHED = re.compile(r"cp: cannot (?:stat|open|access) .+: No such file or directory")
_REPLACED = re.compile(r"cp: skipping file .+, as it was replaced while being copied")


def volume_folder(paths: layout.Paths, volume: str) -> Path | None:
    """Return the folder of a volume's files; None without the volume.

    Raises:
        errors.Problem: Docker does not answer.
    """
    docker = docker_api.Docker(paths.docker_socket)
    try:
        volume_facts = docker.request_json(
            "GET", f"/volumes/{urllib.parse.quote(volume, safe='')}", none=(404,)
        )
    except docker_api.DockerError as error:
        raise errors.Problem(f"volume {volume}: {error}") from error
    return paths.root / str(volume_facts["Mountpoint"]).lstrip("/") if volume_facts else None


def copy_folder(source: Path, to: Path, *, live: bool = False) -> None:
    """Copy a folder with owners, modes and times to a path that is not there yet.

    Args:
        source: The folder.
        to: Its copy. Anything that an earlier call left there half done is removed first.
        live: Whether a program may be writing: each SQLite database is then copied by SQLite, and a
            file may vanish meanwhile.

    Raises:
        errors.Problem: Anything else could not be copied, so the result is no copy.
    """
    for tries_left in reversed(range(_TRIES)):
        remove_folder(to)
        words = ["cp", "--archive", "--reflink=auto", "--", str(source), str(to)]
        result = runner.run(words, timeout=_COPY_S, env={**os.environ, "LC_ALL": "C"})
        lines = result.stderr.strip().splitlines()
        wrong = [line for line in lines if not (live and _VANISHED.fullmatch(line))]
        if not result.returncode or (lines and not wrong):
            break
        if not (tries_left and live and wrong and all(map(_REPLACED.fullmatch, wrong))):
            reason = "; ".join(wrong[:_SAID]) or f"cp ended with {result.returncode}"
            raise errors.Problem(f"{source} cannot be copied: {reason}")
    if live:
        for database in databases(source):
            _copy_database(database, to / database.relative_to(source))
    _flush_folder(to)


def remove_folder(path: Path) -> None:
    """Remove a folder of ours with all that is in it, if it is there."""
    if path.exists():
        shutil.rmtree(path)


def replace_folder(data: Path, by: Path) -> None:
    """Replace `data` by a copy of `by`; a repetition after a power cut has the same result."""
    new, old = data.with_name(f"{data.name}.new"), data.with_name(f"{data.name}.old")
    copy_folder(by, new)
    if data.exists():
        remove_folder(old)
        data.rename(old)
    new.rename(data)
    atomic_files.flush(data.parent)
    remove_folder(old)


def data_folder_in_backup(backup_folder: Path) -> Path:
    """Return the data's folder among the files of a backup; raise Problem without one."""
    target_path = next((path.parent for path in sorted(backup_folder.rglob(DATABASE))), None)
    if target_path is None:
        raise errors.Problem("the backup holds no data of Open WebUI")
    return target_path


def databases(data: Path) -> list[Path]:
    """Return the SQLite databases below a folder."""
    return [path for path in sorted(data.rglob("*")) if _is_database(path)]


def database_faults(database: Path) -> str:
    """Return the faults that SQLite finds in a database; "" if it is intact."""
    try:
        with _open_read_only(database) as connection:
            rows = connection.execute("PRAGMA integrity_check(3)").fetchall()
    except sqlite3.Error as error:
        return str(error)
    reasons = "; ".join(str(row[0]) for row in rows)
    return "" if reasons == "ok" else reasons


def count_chats_since(data: Path, since: float) -> int | None:
    """Count chats that were begun or continued after a time (Unix, s); None if unknown."""
    try:
        with _open_read_only(data / DATABASE) as connection:
            query = "SELECT count(*) FROM chat WHERE updated_at > ?"
            return int(connection.execute(query, (since,)).fetchone()[0])
    except (sqlite3.Error, TypeError):
        return None


def _flush_folder(folder: Path) -> None:
    """Flush a copy to disk. sync(2) would wait for all other writes to any disk."""
    for target_path in (folder, *folder.rglob("*")):
        if target_path.is_dir() or (target_path.is_file() and not target_path.is_symlink()):
            atomic_files.flush(target_path)


def _is_database(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return path.is_file() and file.read(len(_HEADER)) == _HEADER
    except OSError:
        return False


@contextlib.contextmanager
def _open_read_only(database: Path) -> Iterator[sqlite3.Connection]:
    place = urllib.parse.quote(str(database))
    with contextlib.closing(sqlite3.connect(f"file:{place}?mode=ro", uri=True)) as connection:
        yield connection


def _copy_database(database: Path, to: Path) -> None:
    """Copy a database that may be in use; raise Problem if SQLite cannot."""
    state = database.stat()
    for ending in ("", *_BESIDE):
        to.with_name(to.name + ending).unlink(missing_ok=True)
    try:
        with _open_read_only(database) as live, contextlib.closing(sqlite3.connect(to)) as new:
            live.backup(new)
    except sqlite3.Error as error:
        raise errors.Problem(f"{database} cannot be copied: {error}") from error
    to.chmod(state.st_mode & 0o7777)
    os.chown(to, state.st_uid, state.st_gid)
