"""A real git repository whose branch is one commit ahead of `main`, as a fork's is."""

from __future__ import annotations

import subprocess
from pathlib import Path

BRANCH = "fix/parsing"


def git(folder: Path, *words: str) -> str:
    """What git says."""
    who = ("-c", "user.name=a", "-c", "user.email=a@b")
    argv = ("git", "-C", str(folder), *who, *words)
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout.strip()


def commit(folder: Path, message: str = "new") -> str:
    """The id of a new commit, which changes no file."""
    git(folder, "commit", "--quiet", "--allow-empty", "-m", message)
    return git(folder, "rev-parse", "HEAD")


def fork(folder: Path) -> Path:
    """A fork in a new folder: `v1` is where it left upstream, and it has one file."""
    folder.mkdir(parents=True)
    git(folder, "init", "--quiet", "--template=", "--initial-branch", "main")
    commit(folder, "upstream")
    git(folder, "tag", "v1")
    git(folder, "checkout", "--quiet", "-b", BRANCH)
    (folder / "setup.py").write_text("ours")
    git(folder, "add", ".")
    commit(folder, "ours")
    return folder


def source(folder: Path, of: str = "HEAD") -> dict[str, str]:
    """What an engine's specification says of one commit of it."""
    return {"git": str(folder), "branch": BRANCH, "commit": git(folder, "rev-parse", of)}
