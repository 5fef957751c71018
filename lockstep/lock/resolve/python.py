"""Whole environments to exact wheels for the Spark's architecture, by uv's own resolver."""

from __future__ import annotations

import json
import re
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from packaging.requirements import Requirement
from packaging.version import Version

from lockstep.core.errors import ResolveError
from lockstep.inventory.settings import FORK_S_DAY, Sources
from lockstep.lock.moving import PythonItem
from lockstep.lock.packages import name_of
from lockstep.lock.pins import PythonPin, WheelPin
from lockstep.lock.resolve import pylock
from lockstep.lock.resolve.http import Network, without_credentials
from lockstep.lock.resolve.program import Result, uv
from lockstep.lock.resolve.source_tree import Tree

# uv's plain `aarch64-unknown-linux-gnu` means an older glibc, for which some CUDA wheels do not
# exist.
PLATFORM = "manylinux_{}_{}".format(*pylock.GLIBC)
# A cold cache on a bad link: the metadata of some 200 packages, and a whole wheel of gigabytes for
# its hash where an index gives none. uv itself gives up on a server that falls silent.
LIMIT_S = 3600.0
# Each step goes below the newest version of the step before; FlashInfer has about 40 releases.
MOST_STEPS = 40

# Packages that come only from PyTorch's or FlashInfer's own index: the package index has builds of
# the same version without CUDA. Nothing else comes from there, for these indexes mirror old
# versions of common packages (numpy, requests). The NVIDIA packages that torch's CUDA build needs
# are on the package index, in the versions that torch names exactly.
_FROM_TORCH = ("torch", "torchvision", "torchaudio", "triton")
_FROM_FLASHINFER = ("flashinfer-jit-cache",)


class NoSolution(ResolveError):
    """Requirements that contradict each other, or that name something that does not exist."""


@dataclass(frozen=True)
class EarlierLock:
    """The earlier lock of an environment, and its packages that are to move.

    Attributes:
        pin: Versions that are kept wherever the requirements allow it.
        moved_packages: Packages that take their newest version all the same.
    """

    pin: PythonPin | None = None
    moved_packages: frozenset[str] = frozenset()


def resolve_python(
    item: PythonItem,
    network: Network,
    trees: Sequence[Tree] = (),
    earlier_lock: EarlierLock = EarlierLock(),
) -> PythonPin:
    """Return every package of an environment, in versions that fit and agree where they must.

    Args:
        item: The environment that is asked for.
        network: The indexes.
        trees: The source trees of ``item``, in the same order.
        earlier_lock: The older lock whose versions are kept.

    Raises:
        ResolveError: no such versions, or an index cannot be asked.
    """
    question = _question(item, trees)
    own = _own(network.sources)
    newest_allowed: Version | None = None
    first: dict[str, Version] = {}
    for _ in range(MOST_STEPS):
        try:
            wheels = _compile(item, question, newest_allowed, earlier_lock, network)
        except NoSolution as fault:
            if newest_allowed is None:
                raise
            raise _disagreement(item, first, fault.found) from fault
        version_by_name = {wheel.name: Version(wheel.version) for wheel in wheels}
        absent = [name for name in question.names if name not in version_by_name]
        if absent:
            raise ResolveError(
                "uv's answer lacks what was asked for", where=item.key, found=", ".join(absent)
            )
        # uv uses an index of its own only for packages that are asked for by name.
        unnamed_packages = sorted(
            (own.keys() & version_by_name.keys()) - {name_of(t) for t in question.requirements}
        )
        if unnamed_packages:
            question = replace(question, requirements=(*question.requirements, *unnamed_packages))
            continue
        first = first or version_by_name
        versions = {Version(version_by_name[name].public) for name in item.agree}
        if len(versions) <= 1:
            commits = {tree.url: tree.commit for tree in trees}
            question_facts = (item.requirements, item.architecture, item.python)
            return PythonPin(*question_facts, wheels, commits, exclude_newer=item.exclude_newer)
        # The newest release may lack a part that follows later, or never: look below the oldest.
        newest_allowed = min(versions)
    raise _disagreement(item, first, f"nothing after {MOST_STEPS} steps")


@dataclass(frozen=True)
class _Question:
    """A question to uv.

    Attributes:
        requirements: Requirements to resolve.
        names: Names that must be in the answer.
        excluded_packages: Names that must not be in the answer.
        until: Last day whose uploads count, None for no limit.
        exact: Names that the inventory asks for in one version, whenever that was uploaded.
    """

    requirements: tuple[str, ...]
    names: tuple[str, ...]
    excluded_packages: tuple[str, ...]
    until: str | None
    exact: tuple[str, ...]


def _question(item: PythonItem, trees: Sequence[Tree]) -> _Question:
    """Return the requirements of the inventory and of the source trees in one.

    Requirements of the inventory win over those of a tree; a tree's extras of the package are kept.
    """
    requirements_by_name = {name_of(text): Requirement(text) for text in item.requirements}
    other_packages: list[str] = []
    # A tree is no package of an index, and another package must not bring it from one.
    own = {tree.name for tree in trees} if not item.build else set()
    for text in (text for tree in trees for text in (tree.builds if item.build else tree.needs)):
        need = Requirement(text)
        name = name_of(text)
        if need.marker and not need.marker.evaluate(_markers(item)):
            continue
        if name in requirements_by_name:
            requirements_by_name[name].extras |= need.extras
        elif name not in own:
            other_packages.append(text)
    requirements = (*map(str, requirements_by_name.values()), *dict.fromkeys(other_packages))
    until = item.exclude_newer
    if until == FORK_S_DAY:
        until = max((tree.day for tree in trees), default=None)
    exact = [name_of(text) for text in item.requirements if "==" in text]
    return _Question(
        requirements, tuple(requirements_by_name), tuple(sorted(own)), until, tuple(exact)
    )


def _markers(item: PythonItem) -> dict[str, str]:
    return {
        "python_version": item.python,
        "python_full_version": f"{item.python}.0",
        "platform_machine": item.architecture,
        "platform_system": "Linux",
        "sys_platform": "linux",
        "os_name": "posix",
        "implementation_name": "cpython",
        "platform_python_implementation": "CPython",
        "extra": "",
    }


def _compile(
    item: PythonItem,
    question: _Question,
    newest_allowed: Version | None,
    earlier_lock: EarlierLock,
    network: Network,
) -> tuple[WheelPin, ...]:
    """Return every package, at most ``newest_allowed`` where versions must agree."""
    limits = [f"{name}<={newest_allowed}" for name in item.agree] if newest_allowed else []
    with tempfile.TemporaryDirectory(prefix="lockstep-") as name:
        folder = Path(name)
        project = _project([*question.requirements, *limits], network.sources)
        (folder / "pyproject.toml").write_text(project, encoding="utf-8")
        argv = ["pip", "compile", "--quiet", "--no-header", "--format", "pylock.toml"]
        argv += ["--python-platform", f"{item.architecture}-{PLATFORM}"]
        argv += ["--python", sys.executable, "--python-version", item.python]
        argv += ["--color", "never", "--no-progress", "--output-file", "pylock.toml"]
        if question.until:
            argv += ["--exclude-newer", f"{question.until}T23:59:59Z"]
            # The indexes of PyTorch and FlashInfer have no upload dates, and uv then takes no file.
            for package in dict.fromkeys((*_own(network.sources), *question.exact)):
                argv += ["--exclude-newer-package", f"{package}=false"]
        # A package without a wheel for a Spark would be compiled there, or fail there.
        argv += ["--only-binary", ":all:"]
        if question.excluded_packages:
            (folder / "excluded.txt").write_text(
                "\n".join(question.excluded_packages), encoding="utf-8"
            )
            argv += ["--excludes", "excluded.txt"]
        if earlier_lock.pin:
            # uv keeps the versions of the file that it is to write.
            (folder / "pylock.toml").write_text(
                pylock.preferences(earlier_lock.pin), encoding="utf-8"
            )
            argv += [
                word
                for moved_package in sorted(earlier_lock.moved_packages)
                for word in ("-P", moved_package)
            ]
        result = uv([*argv, "pyproject.toml"], network, limit_s=LIMIT_S, folder=folder)
        if result.returncode != 0:
            raise _failure(item, result)
        return pylock.wheels((folder / "pylock.toml").read_text(encoding="utf-8"), item)


def _own(sources: Sources) -> dict[str, str]:
    """Return package → address of the only index it may come from, and others may not."""
    own: dict[str, str] = {}
    if sources.torch_index:
        own |= dict.fromkeys(_FROM_TORCH, sources.torch_index)
    if sources.flashinfer_index:
        own |= dict.fromkeys(_FROM_FLASHINFER, sources.flashinfer_index)
    return own


def _project(requirements: list[str], sources: Sources) -> str:
    """Return the project file for uv's private folder: an address may hold a password.

    Texts and lists of JSON are valid in TOML too.
    """
    own = _own(sources)
    names = {url: f"own-{number}" for number, url in enumerate(dict.fromkeys(own.values()))}
    lines = [
        "[project]",
        'name = "lockstep-wanted"',
        'version = "0"',
        f"dependencies = {json.dumps(requirements)}",
        "[tool.uv.sources]",
        *(f"{package} = {{ index = {json.dumps(names[url])} }}" for package, url in own.items()),
    ]
    for url, name in names.items():
        lines += ["[[tool.uv.index]]", f"name = {json.dumps(name)}", f"url = {json.dumps(url)}"]
        lines += ["explicit = true"]
    return "\n".join(lines) + "\n"


_NETWORK = re.compile(
    r"error sending request|Failed to fetch|Request failed|dns error|timed out|Connection|"
    r"status code|HTTP status|certificate",
    re.IGNORECASE,
)


def _failure(item: PythonItem, result: Result) -> ResolveError:
    reason = _reason(result.stderr) or f"exit code {result.returncode}"
    where = _where(item)
    if "No solution found" not in result.stderr and _NETWORK.search(result.stderr):
        return ResolveError(
            "a package index cannot be asked",
            where=where,
            found=reason,
            remedy="Check sources.python_index, torch_index, flashinfer_index and the proxy.",
        )
    remedy = "Change the requirement under engine or tools, or the index under sources."
    if "exclude-newer" in result.stderr:
        remedy = (
            "Set engine.exclude_newer to a later day, or to None where the index does not say when "
            "a file was uploaded."
        )
    return NoSolution("no versions exist that fit", where=where, found=reason, remedy=remedy)


def _disagreement(item: PythonItem, newest: Mapping[str, Version], reason: str) -> ResolveError:
    versions = ", ".join(f"{name} {newest[name]}" for name in item.agree)
    return NoSolution(
        "no version exists in all parts that must agree",
        where=_where(item),
        found=f"at best {versions}; below them: {reason}",
        remedy="Name an older vLLM or a version for all three (engine.flashinfer_version), "
        "or set engine.flashinfer to False.",
    )


def _where(item: PythonItem) -> str:
    return f"environment {item.key} for {item.architecture}, Python {item.python}"


def _reason(errors: str) -> str:
    """Return uv's explanation without its warnings, in one line."""
    lines = [line.strip() for line in without_credentials(errors).splitlines()]
    messages = [
        line for line in lines if line and not line.startswith(("warning:", "error: No sol"))
    ]
    text = " ".join(line.removeprefix("error: ").removeprefix("cause: ") for line in messages)
    return text if len(text) <= 400 else f"{text[:397]}..."
