"""The host's restic repository: what is put into it, and taken out again.

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
from lockstep.onhost.core.config import read

PACKAGE = "restic"
_LIMIT_S = 3600.0
# Characters of what restic says that are shown.
_SAID = 600
#: restic's words where a folder holds no repository.
_NONE_THERE = "Is there a repository"


@dataclass(frozen=True)
class Config:
    """What the deploy wrote of it.

    Attributes:
        to: Other repositories that each night's backup goes to.
        keep: How many of which time stay: "daily", "weekly", "monthly".
        unit: Open WebUI's unit, and `volume` its volume; "" where it has none.
    """

    to: tuple[str, ...]
    keep: Mapping[str, int]
    unit: str
    volume: str


@dataclass(frozen=True)
class Saved:
    """One snapshot by restic's id, made `at` (Unix time, s).

    Of its tags one is ours, the others are "generation=NUMBER" and "image=IMAGE".
    """

    id: str
    at: float
    tags: tuple[str, ...]

    def tag(self, name: str) -> str:
        """The value of a tag; "" where there is none."""
        found = (tag.partition("=")[2] for tag in self.tags if tag.startswith(f"{name}="))
        return next(found, "")


def config(paths: layout.Paths) -> Config | None:
    """What the deploy wrote; None where the inventory has no backup."""
    return read(Config, paths.backup) if paths.backup.exists() else None


class NoneYet(errors.Problem):
    """There is no repository in a place: no backup has come to it."""


class Repository:
    """One repository; the host's own where no other place is named.

    All methods: Problem where restic fails, with what it said.
    """

    def __init__(self, paths: layout.Paths, place: str = "") -> None:
        self.paths = paths
        self.place = place or str(paths.backup_kept)
        self.password = paths.secrets / "backup.key"

    def make(self) -> None:
        """Make password and repository where they are missing."""
        if make_secrets.make(self.password, make_secrets.api_key):
            self._new_password()
        self._init()

    def save(self, what: Sequence[Path], tags: Sequence[str], exclude: Sequence[Path] = ()) -> str:
        """Put files and folders in; the id of the snapshot."""
        words = [word for tag in tags for word in ("--tag", tag)]
        words += [word for path in exclude for word in ("--exclude", str(path))]
        with self._alone():
            out = self._run("backup", "--json", *words, "--", *map(str, what))
        for line in reversed(out.splitlines()):
            said = json.loads(line)
            if said.get("message_type") == "summary":
                return str(said["snapshot_id"])
        raise errors.Problem(f"restic named no snapshot in {self.place}")

    def saved(self) -> list[Saved]:
        """All snapshots, newest first. NoneYet where no backup was made or came here."""
        if self.place == str(self.paths.backup_kept) and not (Path(self.place) / "config").exists():
            raise NoneYet(f"backup in {self.place}: there is none yet")
        found = json.loads(self._run("snapshots", "--json")) or []
        made = [
            Saved(each["id"], _unix(each["time"]), tuple(each.get("tags") or ())) for each in found
        ]
        return sorted(made, key=lambda each: -each.at)

    def unpack(self, snapshot: str, to: Path) -> None:
        """Write a snapshot's files, each with its whole path, below a folder."""
        self._run("restore", snapshot, "--target", str(to))

    def copy_from(self, other: Repository) -> None:
        """Take over the snapshots of another one that are not here yet."""
        source = {
            "RESTIC_FROM_REPOSITORY": other.place,
            "RESTIC_FROM_PASSWORD_FILE": str(other.password),
        }
        self._init(source)
        with self._alone():
            self._run("copy", more=source)

    def forget(self, snapshot: str) -> None:
        """Forget one snapshot; its space is free after the next night."""
        with self._alone():
            self._run("forget", snapshot)

    def forget_old(self, tag: str, keep: Mapping[str, int]) -> None:
        """Forget the snapshots with a tag that a policy does not keep, and free their space."""
        words = [word for name, n in keep.items() if n for word in (f"--keep-{name}", str(n))]
        with self._alone():
            self._run("forget", "--prune", "--group-by", "", "--tag", tag, *words)

    def check(self) -> str:
        """Read every byte of the repository; the words of `restic check` where it is whole."""
        return self._run("check", "--read-data")

    def _init(self, more: Mapping[str, str] | None = None) -> None:
        done = self._done(("cat", "config"), {})
        if done.returncode == 0:
            # Locks of processes that were killed; those of living ones stay.
            self._run("unlock")
            return
        if _NONE_THERE not in done.stderr:
            raise self._problem(done.stderr)
        self._run("init", *(("--copy-chunker-params",) if more else ()), more=more)

    def _new_password(self) -> None:
        """Refuse a password that was just made for a repository that is older: it fits nothing."""
        if (Path(self.place) / "config").exists():
            self.password.unlink()
            raise errors.Problem(
                f"{self.place} was made with another password. Remedy: put that into "
                f"{self.password}, with mode 0600"
            )

    def _alone(self) -> AbstractContextManager[None]:
        return file_lock.held(self.paths.run / "backup.lock")

    def _run(self, *words: str, more: Mapping[str, str] | None = None) -> str:
        done = self._done(words, more or {})
        if done.returncode:
            raise self._problem(done.stderr)
        return done.stdout

    def _done(
        self, words: Sequence[str], more: Mapping[str, str]
    ) -> subprocess.CompletedProcess[str]:
        own = {
            "RESTIC_REPOSITORY": self.place,
            "RESTIC_PASSWORD_FILE": str(self.password),
            "RESTIC_CACHE_DIR": str(self.paths.backup_cache),
        }
        return runner.run(["restic", *words], timeout=_LIMIT_S, env={**os.environ, **own, **more})

    def _problem(self, said: str) -> errors.Problem:
        if _NONE_THERE in said:
            return NoneYet(f"backup in {self.place}: there is none yet")
        if not self.password.exists():
            said = (
                "this host has no password of a backup; the first backup makes one. "
                f"Remedy after a wipe: put the old one into {self.password}, with mode 0600"
            )
        return errors.Problem(f"backup in {self.place}: {_shortened(said)}")

    @property
    def on_this_disk(self) -> bool:
        """Whether it lies where the host's own does, so that one lost disk takes both."""
        if not self.place.startswith("/"):
            return False
        mine, own = (_existing(path) for path in (Path(self.place), self.paths.backup_kept))
        return mine.stat().st_dev == own.stat().st_dev


def _shortened(said: str) -> str:
    """The last whole lines of what restic says: the reason is at the end."""
    lines: list[str] = []
    for line in reversed(said.splitlines()):
        if lines and len(" ".join((line, *lines))) > _SAID:
            break
        lines.insert(0, line.strip())
    return " ".join(lines)[-_SAID:]


def _existing(path: Path) -> Path:
    """A folder, or the one in which it is to come."""
    return path if path.exists() else _existing(path.parent)


def _unix(text: str) -> float:
    """restic's time as Unix time, seconds."""
    return datetime.datetime.fromisoformat(text).timestamp()
