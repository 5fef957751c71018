"""The requirements of a source tree at one commit, to run and to be built, read on this machine."""

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
from lockstep.lock.moving import GitItem
from lockstep.lock.resolve.git import GitRepository
from lockstep.lock.resolve.http import Network
from lockstep.lock.resolve.program import uv

# Time for building the metadata of a large repository.
LIMIT_S = 600.0
#: File of the CUDA build's requirements in vLLM's setup.py; the CUDA compiler is not asked.
CUDA_REQUIREMENTS = "requirements/cuda.txt"
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
        name: Normalised name of its distribution.
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


def read_tree(item: GitItem, commit: str, network: Network) -> Tree:
    """Return the name and requirements of a tree at one commit; nothing of it is installed.

    They are taken from pyproject.toml where they stand there, else from vLLM's requirements for
    CUDA, else from the tree's own build backend, which runs on this machine in an environment of
    its own.

    Raises:
        ResolveError: the commit cannot be fetched, or does not say what it needs.
    """
    with tempfile.TemporaryDirectory(prefix="lockstep-") as name:
        clone = _Clone(item, commit, Path(name), network)
        project = _toml(clone.text("pyproject.toml") or "", clone.where)
        build = {**_LEGACY, **project.get("build-system", {})}
        project_table = project.get("project", {})
        dynamic = project_table.get("dynamic", ())
        cuda = clone.text(CUDA_REQUIREMENTS) if "dependencies" in dynamic else None
        if "name" in project_table and cuda is not None:
            title, needs = project_table["name"], _requirements_of_file(clone, CUDA_REQUIREMENTS)
        elif "name" in project_table and "dependencies" not in dynamic:
            title, needs = project_table["name"], project_table.get("dependencies", [])
        else:
            title, needs = _metadata_of_build(clone, build)
        return Tree(
            item.url,
            commit,
            canonicalize_name(title),
            tuple(_normal(needs, clone.where)),
            tuple(_normal(build["requires"], clone.where)),
            clone.day(),
        )


class _Clone(GitRepository):
    """One commit of a repository."""

    def __init__(self, item: GitItem, commit: str, folder: Path, network: Network) -> None:
        super().__init__(folder, network)
        self.commit = commit
        self.fetch("origin", item, commit, history=False)

    def text(self, path: str) -> str | None:
        """Return a file of the commit, None where it has none of that name."""
        if not self.git_output("ls-tree", "--name-only", self.commit, "--", path).strip():
            return None
        return self.git_output("show", f"{self.commit}:{path}")

    def day(self) -> str:
        """Return the date of the commit."""
        seconds = self.git_output("show", "--no-patch", "--format=%ct", self.commit)
        return datetime.datetime.fromtimestamp(int(seconds), datetime.UTC).date().isoformat()


def _requirements_of_file(clone: _Clone, path: str) -> list[str]:
    """Return the requirements of a file, with those of the files that it includes."""
    requirements: list[str] = []
    for line in (clone.text(path) or "").splitlines():
        text = line.partition(" #")[0].strip()
        option, _, value = text.partition(" ")
        if option in ("-r", "--requirement"):
            requirements += _requirements_of_file(
                clone, posixpath.join(posixpath.dirname(path), value.strip())
            )
        elif text and not text.startswith(("#", "-")):
            requirements.append(text)
    return requirements


# Run with the tree's build requirements; its arguments are the tree's folder and one for the
# answer.
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


def _metadata_of_build(clone: _Clone, build: dict[str, Any]) -> tuple[str, list[str]]:
    """Return the name and requirements that the tree's build backend gives."""
    clone.git_output("checkout", "--quiet", "--detach", clone.commit)
    tree = clone.folder
    with tempfile.TemporaryDirectory(prefix="lockstep-") as name:
        answer = Path(name, "answer")
        argv = ["run", "--quiet", "--no-project", "--isolated", "--python", sys.executable]
        argv += [word for need in build["requires"] for word in ("--with", need)]
        paths = [str(tree / path) for path in build.get("backend-path", ())]
        backend = str(build.get("build-backend", _LEGACY["build-backend"]))
        argv += ["python", "-c", _METADATA, str(tree), str(answer), backend, *paths]
        result = uv(argv, clone.network, limit_s=LIMIT_S, folder=Path(name))
        if result.returncode != 0:
            last = (result.stderr.strip().splitlines() or [f"exit code {result.returncode}"])[-1]
            raise ResolveError(
                "the source tree does not say what it needs",
                where=clone.where,
                found=last[:160],
                remedy="Its build backend runs on this machine; see what it lacks there.",
            )
        message = email.parser.Parser().parsestr((answer / "METADATA").read_text(encoding="utf-8"))
    return str(message["Name"]), [str(text) for text in message.get_all("Requires-Dist", [])]


def _normal(needs: Sequence[str], where: str) -> list[str]:
    versions = []
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
            versions.append(str(requirement))
    return versions


def _toml(text: str, where: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as fault:
        raise ResolveError(
            "pyproject.toml cannot be read", where=where, found=str(fault)[:80]
        ) from fault
