"""The host's restic repository: saving and restoring of files.

restic reads the password from its file, by the environment's RESTIC_PASSWORD_FILE; it is in no
argument.
"""

from __future__ import annotations

import datetime
import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from lockstep.onhost.access import make_secrets
from lockstep.onhost.core import errors, file_lock, layout, runner
from lockstep.onhost.core.config import read_dataclass

PACKAGE = "restic"
_LIMIT_S = 3600.0
# Characters of restic's output that are shown.
_MOST_OUTPUT = 600
#: restic's message for a folder without a repository.
_NONE_THERE = "Is there a repository"
#: restic's message if a lock of another process is in the way.
_LOCKED = "repository is already locked"


@dataclass(frozen=True)
class Config:
    """Backup settings as the deploy wrote them.

    Attributes:
        to: Other repositories that each night's backup goes to.
        keep: Snapshots to keep of each period: "daily", "weekly", "monthly".
        unit: Open WebUI's unit, and `volume` its volume; "" without one.
    """

    to: tuple[str, ...]
    keep: Mapping[str, int]
    unit: str
    volume: str


@dataclass(frozen=True)
class BackupSnapshot:
    """One snapshot by restic's id, made `at` (Unix time, s).

    One of its tags is ours, the others are "generation=NUMBER" and "image=IMAGE".
    """

    id: str
    at: float
    tags: tuple[str, ...]

    def tag_value(self, name: str) -> str:
        """Return the value of a tag, or ""."""
        values = (tag.partition("=")[2] for tag in self.tags if tag.startswith(f"{name}="))
        return next(values, "")


def backup_settings(paths: layout.Paths) -> Config | None:
    """Return the settings; None if the inventory has no backup."""
    return read_dataclass(Config, paths.backup) if paths.backup.exists() else None


class NoBackupYet(errors.Problem):
    """A place without a repository: no backup has come to it."""


class RepositoryInUse(errors.Problem):
    """Another process of restic holds a repository; this tells nothing of its content."""


class ResticRepository:
    """One repository; the host's own unless another place is named.

    All methods raise Problem with restic's message if it fails.
    """

    def __init__(self, paths: layout.Paths, place: str = "") -> None:
        self.paths = paths
        self.place = place or str(paths.backup_kept)
        self.password = paths.secrets / "backup.key"

    def make_repository(self) -> None:
        """Make password and repository if they are missing."""
        if make_secrets.make_secret_file(self.password, make_secrets.new_api_key):
            self._refuse_new_password()
        self._init_if_missing()

    def save_snapshot(
        self, sources: Sequence[Path], tags: Sequence[str], exclude: Sequence[Path] = ()
    ) -> str:
        """Save files and folders; return the id of the snapshot."""
        words = [word for tag in tags for word in ("--tag", tag)]
        words += [word for path in exclude for word in ("--exclude", str(path))]
        with self._hold_repository_lock():
            out = self._run("backup", "--json", *words, "--", *map(str, sources))
        for line in reversed(out.splitlines()):
            message = json.loads(line)
            if message.get("message_type") == "summary":
                return str(message["snapshot_id"])
        raise errors.Problem(f"restic named no snapshot in {self.place}")

    def snapshots(self) -> list[BackupSnapshot]:
        """Return all snapshots, newest first; raise NoBackupYet if none was made or came here."""
        if self.place == str(self.paths.backup_kept) and not (Path(self.place) / "config").exists():
            raise NoBackupYet(f"backup in {self.place}: there is none yet")
        documents = json.loads(self._run("snapshots", "--json")) or []
        found_snapshots = [
            BackupSnapshot(
                snapshot["id"], _unix_time(snapshot["time"]), tuple(snapshot.get("tags") or ())
            )
            for snapshot in documents
        ]
        return sorted(found_snapshots, key=lambda snapshot: -snapshot.at)

    def restore_snapshot(self, snapshot: str, to: Path) -> None:
        """Restore a snapshot's files, each with its whole path, below a folder."""
        self._run("restore", snapshot, "--target", str(to))

    def copy_missing_snapshots(self, source_repository: ResticRepository) -> None:
        """Copy the missing snapshots from another repository."""
        source = {
            "RESTIC_FROM_REPOSITORY": source_repository.place,
            "RESTIC_FROM_PASSWORD_FILE": str(source_repository.password),
        }
        self._init_if_missing(source)
        with self._hold_repository_lock():
            self._run("copy", more=source)

    def forget_snapshot(self, snapshot: str) -> None:
        """Forget one snapshot; its space is free after the next night."""
        with self._hold_repository_lock():
            self._run("forget", snapshot)

    def forget_snapshots_beyond_policy(self, tag: str, keep: Mapping[str, int]) -> None:
        """Forget the snapshots with a tag that a policy does not keep, and free their space."""
        words = [word for name, n in keep.items() if n for word in (f"--keep-{name}", str(n))]
        with self._hold_repository_lock():
            self._run("forget", "--prune", "--group-by", "", "--tag", tag, *words)

    def verify_every_byte(self) -> str:
        """Read every byte of the repository; return the words of `restic check` if it is intact."""
        return self._run("check", "--read-data")

    def _init_if_missing(self, more: Mapping[str, str] | None = None) -> None:
        result = self._run_restic(("cat", "config"), {})
        if result.returncode == 0:
            return
        if _NONE_THERE not in result.stderr:
            raise self._problem(result.stderr)
        self._run("init", *(("--copy-chunker-params",) if more else ()), more=more)

    def _refuse_new_password(self) -> None:
        """Refuse a new password for an older repository, which it cannot open."""
        if (Path(self.place) / "config").exists():
            self.password.unlink()
            raise errors.Problem(
                f"{self.place} was made with another password. Remedy: put that into "
                f"{self.password}, with mode 0600"
            )

    def _hold_repository_lock(self) -> AbstractContextManager[None]:
        return file_lock.hold_lock(self.paths.run / "backup.lock")

    def _run(self, *words: str, more: Mapping[str, str] | None = None) -> str:
        result = self._run_restic(words, more or {})
        if result.returncode and _LOCKED in result.stderr:
            # Removes locks of killed processes; those of living ones stay.
            self._run_restic(("unlock",), {})
            result = self._run_restic(words, more or {})
        if result.returncode:
            raise self._problem(result.stderr)
        return result.stdout

    def _run_restic(
        self, words: Sequence[str], more: Mapping[str, str]
    ) -> subprocess.CompletedProcess[str]:
        own = {
            "RESTIC_REPOSITORY": self.place,
            "RESTIC_PASSWORD_FILE": str(self.password),
            "RESTIC_CACHE_DIR": str(self.paths.backup_cache),
        }
        return runner.run(["restic", *words], timeout=_LIMIT_S, env={**os.environ, **own, **more})

    def _problem(self, message: str) -> errors.Problem:
        if _NONE_THERE in message:
            return NoBackupYet(f"backup in {self.place}: there is none yet")
        if _LOCKED in message:
            return RepositoryInUse(
                f"backup in {self.place}: another process of restic uses it. Remedy: wait until "
                f"that has ended, then again. {_shorten(message)}"
            )
        if not self.password.exists():
            message = (
                "this host has no password of a backup; the first backup makes one. Remedy "
                f"after a wipe: put the old one into {self.password}, with mode 0600"
            )
        return errors.Problem(f"backup in {self.place}: {_shorten(message)}")

    @property
    def is_on_host_disk(self) -> bool:
        """True if it is on the disk of the host's own, so that one lost disk takes both."""
        if not self.place.startswith("/"):
            return False
        place_folder, own = (
            _nearest_existing_folder(path) for path in (Path(self.place), self.paths.backup_kept)
        )
        return place_folder.stat().st_dev == own.stat().st_dev


def _shorten(message: str) -> str:
    """Return the last whole lines of restic's output, which have the reason."""
    lines: list[str] = []
    for line in reversed(message.splitlines()):
        if lines and len(" ".join((line, *lines))) > _MOST_OUTPUT:
            break
        lines.insert(0, line.strip())
    return " ".join(lines)[-_MOST_OUTPUT:]


def _nearest_existing_folder(path: Path) -> Path:
    """Return a folder, or its nearest existing parent."""
    return path if path.exists() else _nearest_existing_folder(path.parent)


def _unix_time(text: str) -> float:
    """Convert restic's time to Unix time, seconds."""
    return datetime.datetime.fromisoformat(text).timestamp()
