"""What a source tree at one commit needs, to run and to be built, read on this machine."""

from __future__ import annotations

import datetime
import email.parser
import posixpath
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from lockstep.core.errors import ResolveError
from lockstep.inventory.settings import Proxy, Sources
from lockstep.lock.moving import GitWanted
from lockstep.lock.packages import mirrored
from lockstep.lock.resolve.http import without_credentials
from lockstep.lock.resolve.program import Result, run, uv
from lockstep.onhost.fetch import git_login

# Fetching the tree of one commit of a large repository, or building its metadata.
LIMIT_S = 600.0
#: Where vLLM's setup.py reads what the CUDA build needs; the CUDA compiler is not asked.
CUDA_REQUIREMENTS = "requirements/cuda.txt"
#: Never wait for a human.
SILENT = {"GIT_TERMINAL_PROMPT": "0", "GIT_ASKPASS": "true", "SSH_ASKPASS": "true", "LC_ALL": "C"}
# The default of PEP 517.
_LEGACY: dict[str, Any] = {
    "requires": ["setuptools>=40.8.0"],
    "build-backend": "setuptools.build_meta:__legacy__",
}


@dataclass(frozen=True)
class Tree:
    """A source tree at one commit.

    Attributes:
        url: The repository.
        commit: The commit.
        name: Normalised name of the distribution that it is.
        needs: Requirements to run, without those of extras.
        builds: Requirements of its build.
        day: ISO date of the commit, in UTC.
    """

    url: str
    commit: str
    name: str
    needs: tuple[str, ...]
    builds: tuple[str, ...]
    day: str


def read_tree(
    item: GitWanted, commit: str, *, sources: Sources, proxy: Proxy, indexes: dict[str, str]
) -> Tree:
    """Name and requirements of a tree; nothing of it is installed.

    Taken from pyproject.toml where they stand there, else from vLLM's requirements for CUDA, else
    from the tree's own build backend, which runs on this machine in an environment of its own.

    Args:
        item: The repository and the branch that has the commit.
        commit: 40 hexadecimal digits.
        sources: Names mirrors.
        proxy: From the inventory.
        indexes: Variables that tell uv where packages come from.

    Raises:
        ResolveError: the commit cannot be fetched, or does not say what it needs.
    """
    with tempfile.TemporaryDirectory(prefix="lockstep-") as name:
        clone = _Clone(item, commit, Path(name), sources, proxy)
        project = _toml(clone.text("pyproject.toml") or "", clone.where)
        build = {**_LEGACY, **project.get("build-system", {})}
        said = project.get("project", {})
        dynamic = said.get("dynamic", ())
        cuda = clone.text(CUDA_REQUIREMENTS) if "dependencies" in dynamic else None
        if "name" in said and cuda is not None:
            title, needs = said["name"], _listed(clone, CUDA_REQUIREMENTS)
        elif "name" in said and "dependencies" not in dynamic:
            title, needs = said["name"], said.get("dependencies", [])
        else:
            title, needs = _built(clone, build, indexes)
        return Tree(
            item.url,
            commit,
            canonicalize_name(title),
            tuple(_normal(needs, clone.where)),
            tuple(_normal(build["requires"], clone.where)),
            clone.day(),
        )


class _Clone:
    """One commit of a repository; its files are fetched when they are asked for."""

    def __init__(
        self, item: GitWanted, commit: str, folder: Path, sources: Sources, proxy: Proxy
    ) -> None:
        url, self._login = git_login.apart(mirrored(item.url, sources))
        self.where = f"{url} at {commit[:12]}"
        self.folder = folder
        self.proxy = proxy
        self.commit = commit
        self._git("init", "--quiet")
        self._git("remote", "add", "origin", url)
        self._git("config", "remote.origin.promisor", "true")
        self._git("config", "remote.origin.partialclonefilter", "blob:none")
        fetch = ("fetch", "--quiet", "--filter=blob:none")
        # Some servers give only what a branch points at; the branch may have moved on meanwhile.
        for what in (("--depth=1", "origin", commit), ("origin", item.branch)):
            done = self._git(*fetch, *what, must=False)
            if self._git("cat-file", "-e", f"{commit}^{{commit}}", must=False).code == 0:
                return
        raise ResolveError(
            "the commit cannot be fetched",
            where=self.where,
            found=(done.errors.strip().splitlines() or ["not on the branch"])[-1][:160],
            remedy="Lock again: `lockstep lock` resolves the branch anew.",
        )

    def text(self, path: str) -> str | None:
        """A file of the commit, None where it has none of that name."""
        if not self._git("ls-tree", "--name-only", self.commit, "--", path).output.strip():
            return None
        return self._git("show", f"{self.commit}:{path}").output

    def day(self) -> str:
        """The commit's date."""
        seconds = self._git("show", "--no-patch", "--format=%ct", self.commit).output
        return datetime.datetime.fromtimestamp(int(seconds), datetime.UTC).date().isoformat()

    def check_out(self) -> Path:
        """The whole tree as files."""
        self._git("checkout", "--quiet", "--detach", self.commit)
        return self.folder

    def _git(self, *words: str, must: bool = True) -> Result:
        argv = ["git", "-C", str(self.folder), *words]
        done = run(argv, proxy=self.proxy, environment=SILENT | self._login, limit_s=LIMIT_S)
        if must and done.code != 0:
            raise ResolveError(
                f"git {words[0]} failed",
                where=self.where,
                found=without_credentials(done.errors).strip()[-160:],
                remedy="Check the network and proxy, or name a mirror under sources.git.",
            )
        return done


def _listed(clone: _Clone, path: str) -> list[str]:
    """Requirements of a requirements file, with those of the files that it includes."""
    found: list[str] = []
    for line in (clone.text(path) or "").splitlines():
        text = line.partition(" #")[0].strip()
        option, _, value = text.partition(" ")
        if option in ("-r", "--requirement"):
            found += _listed(clone, posixpath.join(posixpath.dirname(path), value.strip()))
        elif text and not text.startswith(("#", "-")):
            found.append(text)
    return found


# Run with the tree's build requirements; the folder of the tree and one for the answer are given.
_METADATA = """\
import importlib, os, shutil, sys
tree, answer, backend, *more = sys.argv[1:]
os.chdir(tree)
sys.path[:0] = more
module, _, attribute = backend.partition(":")
if attribute == "__legacy__":
    sys.path.insert(0, tree)
found = importlib.import_module(module)
for part in filter(None, attribute.split(".")):
    found = getattr(found, part)
os.mkdir(answer)
name = found.prepare_metadata_for_build_wheel(answer)
shutil.copy(os.path.join(answer, name, "METADATA"), os.path.join(answer, "METADATA"))
"""


def _built(clone: _Clone, build: dict[str, Any], indexes: dict[str, str]) -> tuple[str, list[str]]:
    """Name and requirements as the tree's build backend says them."""
    tree = clone.check_out()
    with tempfile.TemporaryDirectory(prefix="lockstep-") as name:
        answer = Path(name, "answer")
        argv = [uv(), "run", "--quiet", "--no-project", "--isolated", "--python", sys.executable]
        argv += [word for need in build["requires"] for word in ("--with", need)]
        paths = [str(tree / path) for path in build.get("backend-path", ())]
        backend = str(build.get("build-backend", _LEGACY["build-backend"]))
        argv += ["python", "-c", _METADATA, str(tree), str(answer), backend, *paths]
        done = run(argv, proxy=clone.proxy, environment=indexes, limit_s=LIMIT_S, folder=Path(name))
        if done.code != 0:
            raise ResolveError(
                "the source tree does not say what it needs",
                where=clone.where,
                found=(done.errors.strip().splitlines() or [f"exit code {done.code}"])[-1][:160],
                remedy="Its build backend runs on this machine; see what it lacks there.",
            )
        said = email.parser.Parser().parsestr((answer / "METADATA").read_text(encoding="utf-8"))
    return str(said["Name"]), [str(text) for text in said.get_all("Requires-Dist", [])]


def _normal(needs: Sequence[str], where: str) -> list[str]:
    found = []
    for text in needs:
        try:
            requirement = Requirement(text)
        except InvalidRequirement as fault:
            raise ResolveError(
                "the source tree needs something that is no requirement",
                where=where,
                found=repr(text)[:80],
            ) from fault
        if "extra ==" not in str(requirement.marker or ""):
            found.append(str(requirement))
    return found


def _toml(text: str, where: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as fault:
        raise ResolveError(
            "pyproject.toml cannot be read", where=where, found=str(fault)[:80]
        ) from fault
