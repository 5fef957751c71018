"""A real git repository whose branch is one commit ahead of `main`, as a fork's is."""

import subprocess
from pathlib import Path

BRANCH = "fix/parsing"


def git(folder: Path, *words: str) -> str:
    identity = ("-c", "user.name=a", "-c", "user.email=a@b")
    argv = ("git", "-C", str(folder), *identity, *words)
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout.strip()


def commit(folder: Path, message: str = "new") -> str:
    """Make a commit that changes no file; returns its id."""
    git(folder, "commit", "--quiet", "--allow-empty", "-m", message)
    return git(folder, "rev-parse", "HEAD")


def fork(folder: Path) -> Path:
    """A fork in a new folder: `v1` is the upstream commit where it began, and it has one file."""
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
    """The part of an engine's specification for one commit of the fork."""
    return {"git": str(folder), "branch": BRANCH, "commit": git(folder, "rev-parse", of)}
