"""Drift of the engines and of Lockstep's tools: their contents, and their answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any

from lockstep.files.managed_file import TOOLS_VENV, UV_VENV
from lockstep.files.remote_exec import Reader
from lockstep.host.desired_state import DesiredState
from lockstep.host.specs import TREES, engine_check_hash
from lockstep.onhost.core import passed_engine_checks
from lockstep.onhost.facts import environments
from lockstep.resources.fact_comparison import DriftRow, Expectation, Kind, SubjectView, any_value
from lockstep.system.tools import same_version

#: The facts about the engines of a host if they could not be read.
UNASKED: dict[str, Any] = {"check": None, "images": {}}
_TAKEN, _NOT_ASKED = "takes the recipes", "not asked about these recipes"


def _stash(row: DriftRow) -> tuple[str, ...]:
    """Return the command that stashes changes and new files of a checkout, as its owner."""
    git = 'exec sudo -u "$(stat -c %U "$0")" git -C "$0" "$@"'
    author = ("-c", "user.name=lockstep", "-c", "user.email=lockstep@localhost")
    return ("sh", "-c", git, row.item, *author, "stash", "--include-untracked")


def _rebuild(row: DriftRow) -> tuple[str, ...]:
    """Return the command that removes the file's environment; the next deploy rebuilds it.

    The command also removes uv's cache, whose files are the same files under another name.
    """
    venv = row.item.partition("/lib/python")[0]
    engine = venv.removesuffix("/venv")
    cache = "/root/.cache/uv" if engine == venv else f"{engine.rpartition('/')[0]}/uv-cache"
    return ("rm", "-rf", venv, cache)


KINDS = {
    # The deploy's own reader; `facts` draws the facts from its answer.
    "engine": Kind(environments.read, "error", "deploy"),
    "image answer": Kind(environments.read, "error", "deploy", scope="nothing"),
    "checkout": Kind(environments.checkout_changes, "error", mend=_stash, scope="nothing"),
    "engine package": Kind(environments.packages_and_changed_files, "error", "deploy", scope="odd"),
    "changed package file": Kind(
        environments.packages_and_changed_files, "error", mend=_rebuild, scope="odd"
    ),
    "tools": Kind(environments.packages_and_changed_files),
    "tools package": Kind(environments.packages_and_changed_files, "warning", "deploy"),
}


def questions(desired_state: DesiredState) -> dict[Reader, dict[str, Any]]:
    """See `subjects.questions`."""
    venvs = {"tools": TOOLS_VENV, "uv": UV_VENV}
    home = desired_state.engine_question["home"]
    if desired_state.engine_spec:
        venvs["engine"] = f"{home}/venv"
    return {
        environments.read: desired_state.engine_question,
        environments.checkout_changes: {"sources": [f"{home}/{name}" for name in TREES]},
        environments.packages_and_changed_files: {"venvs": venvs},
    }


def facts(desired_state: DesiredState, engines: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """Return the state of a host's engines, and their answers to the recipes, as facts.

    `engines` is the answer of `environments.read`. The facts of `UNASKED` are {}.
    """
    if engines == UNASKED:
        return {}
    states: dict[str, str] = {}
    if engines["current"]:
        states["current"] = PurePosixPath(engines["current"]).name
    if engines["environment"]["python"]:
        states["python"] = engines["environment"]["python"]
        states["installation"] = "whole"
    if engines["unfinished"]:
        states["installation"] = "cut off"
    for name, commit in engines["commits"].items():
        if commit:
            origin = engines["environment"]["origins"].get(name) or {}
            states[f"{name} commit"] = commit
            states[f"{name} from"] = origin.get("url") or "an index"
    silent = desired_state.unchecked_digests(engines["images"])
    answers = {}
    for digest, (reference, _) in desired_state.engine_images.items():
        is_asked = engines["images"].get(digest) and digest not in silent
        answers[reference] = _TAKEN if is_asked else _NOT_ASKED
    if desired_state.engine_spec:
        is_asked = passed_engine_checks.has_passed(
            engines["check"], engine_check_hash(desired_state.engine_spec)
        )
        states["answer"] = _TAKEN if is_asked else _NOT_ASKED
    return {"engine": states, "image answer": answers}


def expectations(desired_state: DesiredState, host_view: SubjectView) -> Iterator[Expectation]:
    """See `subjects.all_expectations`."""
    for venv, environment in desired_state.tool_environments.items():
        for name, version in environment.versions.items():
            yield Expectation("tools package", f"{venv} {name}", version, _spelt(version))
    for reference, _ in desired_state.engine_images.values():
        yield Expectation("image answer", reference, _TAKEN)
    spec = desired_state.engine_spec
    if spec is None:
        return
    yield Expectation("engine", "current", spec["id"])
    yield Expectation("engine", "installation", "whole")
    yield Expectation("engine", "python", spec["python"])
    for name in TREES:
        source = spec[name]
        if source:
            # The build derives its version from the commit.
            yield any_value("engine package", name)
            yield Expectation("engine", f"{name} commit", source["commit"])
            yield Expectation("engine", f"{name} from", f"file://{spec['home']}/{name}")
            yield Expectation("checkout", f"{spec['home']}/{name}", "clean")
    for name, version in spec["expected"].items():
        yield Expectation("engine package", name, version, _spelt(version))
    yield Expectation("engine", "answer", _TAKEN)


def _spelt(version: str) -> Callable[[str], bool]:
    """Return a test for the same version in another spelling."""
    return lambda version_found: same_version(version_found, version)
