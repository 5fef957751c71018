"""The repository of the lab's git server, with the same commits on every machine."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from lab.core.cache import Report, build_once, fingerprint

FORK_BRANCH = "fix_mistral_parsing"
DEFAULT_BRANCH = "main"
_FORK_SOURCE = Path(__file__).parent.parent / "content" / "fork"
_SERVER_CONFIG = (
    ("uploadpack.allowAnySHA1InWant", "true"),
    ("uploadpack.allowReachableSHA1InWant", "true"),
    ("uploadpack.allowFilter", "true"),
    ("gc.auto", "0"),
)


def git(*arguments: str, cwd: Path) -> str:
    """Run git with fixed author, dates and configuration, so that commits are reproducible."""
    fixed_variables = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    for role in ("AUTHOR", "COMMITTER"):
        fixed_variables[f"GIT_{role}_NAME"] = "Lockstep lab"
        fixed_variables[f"GIT_{role}_EMAIL"] = "lab@lockstep.invalid"
        fixed_variables[f"GIT_{role}_DATE"] = "2026-03-01T12:00:00+0000"
    command = ["git", "-c", "core.autocrlf=false", *arguments]
    result = subprocess.run(
        command,
        cwd=cwd,
        env=os.environ | fixed_variables,
        check=True,
        capture_output=True,
        text=True,
    )
    return result.stdout.strip()


def git_repositories(cache: Path, report: Report) -> Path:
    """The folder with the bare repository ``vllm.git``."""
    name = fingerprint((_FORK_SOURCE, Path(__file__)))
    return build_once(cache / f"git-{name}", _build, report, "git repositories")


def _build(folder: Path) -> None:
    with tempfile.TemporaryDirectory(dir=folder.parent) as name:
        _publish(_fork(Path(name) / "vllm"), folder / "vllm.git")


def _fork(tree: Path) -> Path:
    tree.mkdir()
    git("init", "--quiet", f"--initial-branch={DEFAULT_BRANCH}", cwd=tree)
    _write_fork(tree, "none")
    _commit(tree, "Stand-in of the engine's repository")
    _write_fork(tree, DEFAULT_BRANCH)
    _commit(tree, "Name the branch in the marker")
    git("checkout", "--quiet", "-b", FORK_BRANCH, cwd=tree)
    _write_fork(tree, FORK_BRANCH)
    _commit(tree, "Fix the parsing of Mistral's tool calls")
    git("checkout", "--quiet", DEFAULT_BRANCH, cwd=tree)
    return tree


def _write_fork(tree: Path, branch: str) -> None:
    shutil.copytree(
        _FORK_SOURCE, tree, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__")
    )
    (tree / "gitignore").rename(tree / ".gitignore")
    (tree / "setup.py.in").rename(tree / "setup.py")
    marker = tree / "src" / "vllm_fork" / "__init__.py"
    marker.write_text(marker.read_text().replace("@BRANCH@", branch))


def _commit(tree: Path, message: str) -> None:
    git("add", "--all", "--force", cwd=tree)
    git("commit", "--quiet", "--message", message, cwd=tree)


def _publish(tree: Path, target: Path) -> None:
    git("clone", "--quiet", "--bare", "--no-hardlinks", str(tree), str(target), cwd=tree)
    git("repack", "--quiet", "-a", "-d", cwd=target)
    for key, value in _SERVER_CONFIG:
        git("config", key, value, cwd=target)
    (target / "git-daemon-export-ok").touch()
