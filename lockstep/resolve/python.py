"""Requirements to exact versions for the Spark's architecture, by uv's own resolver."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from packaging.requirements import Requirement
from packaging.version import InvalidVersion, Version

from lockstep.errors import ResolveError
from lockstep.moving import PythonWanted
from lockstep.packages import name_of
from lockstep.pins import PythonPin
from lockstep.resolve.http import without_credentials
from lockstep.resolve.program import Result, run
from lockstep.settings import Proxy, Sources

# DGX OS 7 is Ubuntu 24.04: glibc 2.39. uv's plain `aarch64-unknown-linux-gnu` means an older one,
# for which some CUDA wheels do not exist.
PLATFORM = "manylinux_2_39"
# A cold cache on a bad link: the metadata of some 200 packages.
LIMIT_S = 600.0
# Each step goes below the newest version of the step before; FlashInfer has about 40 releases.
MOST_STEPS = 40

# Packages that come from PyTorch's or FlashInfer's own index and from nowhere else: the package
# index has builds of the same version without CUDA.
_FROM_TORCH = ("torch", "torchvision")
_FROM_FLASHINFER = ("flashinfer-jit-cache",)


class NoSolution(ResolveError):
    """The requirements contradict each other, or what they name does not exist."""


def resolve_python(item: PythonWanted, *, sources: Sources, proxy: Proxy) -> PythonPin:
    """One version of each package, so that all fit and those that must agree do.

    Raises:
        ResolveError: no such versions, or an index cannot be asked.
    """
    bound: Version | None = None
    first: dict[str, Version] = {}
    for _ in range(MOST_STEPS):
        try:
            found = _compile(item, bound, sources, proxy)
        except NoSolution as fault:
            if bound is None:
                raise
            raise _disagreement(item, first, fault.found) from fault
        first = first or found
        versions = {Version(found[name].public) for name in item.agree}
        if len(versions) <= 1:
            exact = tuple(_exact(text, found[name_of(text)]) for text in item.asked)
            return PythonPin(exact, item.architecture, item.python)
        # The newest release may lack a part that follows later, or never: look below the oldest.
        bound = min(versions)
    raise _disagreement(item, first, f"nothing after {MOST_STEPS} steps")


def uv() -> str:
    """The uv beside this interpreter, else the one on PATH.

    Raises:
        ResolveError: there is none.
    """
    beside = Path(sys.executable).with_name("uv")
    found = str(beside) if beside.is_file() else shutil.which("uv")
    if found is None:
        raise ResolveError(
            "uv was not found",
            where=str(beside),
            remedy="Install it into this environment: `pip install uv`.",
        )
    return found


def _exact(asked: str, version: Version) -> str:
    requirement = Requirement(asked)
    extras = f"[{','.join(sorted(requirement.extras))}]" if requirement.extras else ""
    return f"{name_of(asked)}{extras}=={version}"


def _compile(
    item: PythonWanted, bound: Version | None, sources: Sources, proxy: Proxy
) -> dict[str, Version]:
    """Name → version of everything asked for, at most ``bound`` where versions must agree."""
    names = [name_of(text) for text in item.asked]
    limits = [f"{name}<={bound}" for name in item.agree] if bound else []
    with tempfile.TemporaryDirectory(prefix="lockstep-") as folder:
        project = Path(folder, "pyproject.toml")
        origin = _origin(names, sources)
        project.write_text(_project([*item.asked, *limits], origin), encoding="utf-8")
        argv = [uv(), "pip", "compile", "--quiet", "--no-header", "--no-annotate"]
        argv += ["--python-platform", f"{item.architecture}-{PLATFORM}"]
        argv += ["--python", sys.executable, "--python-version", item.python]
        argv += ["--color", "never", "--no-progress"]
        # An index of its own may also hold old versions of common packages: look further there.
        argv += ["--index-strategy", "unsafe-first-match"]
        argv += [] if item.with_dependencies else ["--no-deps", "--prerelease", "explicit"]
        for name in names:
            # What has no wheel for a Spark would be compiled there, or fail there.
            argv += ["--only-binary", name]
        result = run(
            [*argv, str(project)],
            proxy=proxy,
            environment=_environment(set(origin.values()), sources),
            limit_s=LIMIT_S,
            folder=Path(folder),
        )
    if result.code != 0:
        raise _failure(item, result)
    found = _versions(result.output)
    absent = [name for name in names if name not in found]
    if absent:
        raise ResolveError(
            "uv's answer lacks what was asked for", where=item.key, found=", ".join(absent)
        )
    return {name: found[name] for name in names}


def _origin(names: list[str], sources: Sources) -> dict[str, str]:
    """Package → name of the one index it may come from; the others may come from any."""
    origin: dict[str, str] = {}
    if sources.torch_index:
        origin |= {name: "torch" for name in names if name in _FROM_TORCH}
    if sources.flashinfer_index:
        origin |= {name: "flashinfer" for name in names if name in _FROM_FLASHINFER}
    return origin


def _project(requirements: list[str], origin: Mapping[str, str]) -> str:
    """A project for uv; JSON's texts and lists are TOML's too."""
    lines = [
        "[project]",
        'name = "lockstep-wanted"',
        'version = "0"',
        f"dependencies = {json.dumps(requirements)}",
        "[tool.uv.sources]",
        *(f"{name} = {{ index = {json.dumps(index)} }}" for name, index in origin.items()),
    ]
    return "\n".join(lines) + "\n"


def _environment(used: set[str], sources: Sources) -> dict[str, str]:
    """Which indexes uv asks: in variables, because their URLs may hold a password."""
    urls = {"torch": sources.torch_index, "flashinfer": sources.flashinfer_index}
    indexes = [f"{name}={urls[name]}" for name in sorted(used)]
    environment = {"UV_PYTHON_DOWNLOADS": "never"}
    if indexes:
        environment["UV_INDEX"] = " ".join([*indexes, os.environ.get("UV_INDEX", "")]).strip()
    if sources.python_index:
        environment["UV_DEFAULT_INDEX"] = sources.python_index
    return environment


def _versions(output: str) -> dict[str, Version]:
    """Name → version of the lines "name==version" of a requirements file."""
    found = {}
    for line in output.splitlines():
        text = line.partition(";")[0].partition("#")[0].strip()
        name, equal, version = text.partition("==")
        if equal:
            try:
                found[name_of(name)] = Version(version.strip().rstrip("\\").strip())
            except InvalidVersion as fault:
                raise ResolveError("uv's answer is no version", found=line[:80]) from fault
    return found


_NETWORK = re.compile(
    r"error sending request|Failed to fetch|Request failed|dns error|timed out|Connection|"
    r"status code|HTTP status|certificate",
    re.IGNORECASE,
)


def _failure(item: PythonWanted, result: Result) -> ResolveError:
    reason = _reason(result.errors) or f"exit code {result.code}"
    where = f"{item.key} for {item.architecture}, Python {item.python}"
    if "No solution found" not in result.errors and _NETWORK.search(result.errors):
        return ResolveError(
            "a package index cannot be asked",
            where=where,
            found=reason,
            remedy="Check sources.python_index, torch_index, flashinfer_index and the proxy.",
        )
    return NoSolution(
        "no versions exist that fit",
        where=where,
        found=reason,
        remedy="Change the requirement under engine or tools, or the index under sources.",
    )


def _disagreement(item: PythonWanted, newest: Mapping[str, Version], reason: str) -> ResolveError:
    versions = ", ".join(f"{name} {newest[name]}" for name in item.agree)
    return NoSolution(
        "no version exists in all parts that must agree",
        where=f"{item.key} for {item.architecture}, Python {item.python}",
        found=f"at best {versions}; below them: {reason}",
        remedy="Name an older vLLM or a version for all three (engine.flashinfer_version), "
        "or set engine.flashinfer to False.",
    )


def _reason(errors: str) -> str:
    """uv's explanation without its warnings, in one line."""
    lines = [line.strip() for line in without_credentials(errors).splitlines()]
    said = [line for line in lines if line and not line.startswith(("warning:", "error: No sol"))]
    text = " ".join(line.removeprefix("error: ").removeprefix("cause: ") for line in said)
    return text if len(text) <= 400 else f"{text[:397]}..."
