"""Drift of the engines and of our own tools: what they are made of, and what they said."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any

from lockstep.drift.subjects.kind import Expectation, Kind, Row, Seen, there
from lockstep.files.managed_file import TOOLS_VENV, UV_VENV
from lockstep.files.sent import Reader
from lockstep.host.intended import Intended
from lockstep.host.specs import TREES, check_wanted
from lockstep.onhost.core import taken
from lockstep.onhost.facts import environments
from lockstep.system.tools import same_version

#: What is known of the engines of a host where they could not be read.
UNASKED: dict[str, Any] = {"check": None, "images": {}}
_TAKEN, _NOT_ASKED = "takes the recipes", "not asked about these recipes"


def _stash(row: Row) -> tuple[str, ...]:
    """Put aside what was changed in a checkout, new files too, as its owner."""
    git = 'exec sudo -u "$(stat -c %U "$0")" git -C "$0" "$@"'
    author = ("-c", "user.name=lockstep", "-c", "user.email=lockstep@localhost")
    return ("sh", "-c", git, row.item, *author, "stash", "--include-untracked")


def _rebuild(row: Row) -> tuple[str, ...]:
    """Take the environment away that holds the file; the next deploy builds it again.

    uv's cache goes too: its files are the same files, under another name.
    """
    venv = row.item.partition("/lib/python")[0]
    engine = venv.removesuffix("/venv")
    cache = "/root/.cache/uv" if engine == venv else f"{engine.rpartition('/')[0]}/uv-cache"
    return ("rm", "-rf", venv, cache)


KINDS = {
    # The deploy's own reader; `facts` says what follows from its answer.
    "engine": Kind(environments.read, "error", "deploy"),
    "image answer": Kind(environments.read, "error", "deploy", scope="nothing"),
    "checkout": Kind(environments.checkouts, "error", mend=_stash, scope="nothing"),
    "engine package": Kind(environments.every, "error", "deploy", scope="odd"),
    "changed package file": Kind(environments.every, "error", mend=_rebuild, scope="odd"),
    "tools": Kind(environments.every),
    "tools package": Kind(environments.every, "warning", "deploy"),
}


def questions(this: Intended) -> dict[Reader, dict[str, Any]]:
    """See `subjects.questions`."""
    venvs = {"tools": TOOLS_VENV, "uv": UV_VENV}
    home = this.engine_question["home"]
    if this.engine_spec:
        venvs["engine"] = f"{home}/venv"
    return {
        environments.read: this.engine_question,
        environments.checkouts: {"sources": [f"{home}/{name}" for name in TREES]},
        environments.every: {"venvs": venvs},
    }


def facts(this: Intended, engines: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """What the engines of a host are and said about the recipes, as facts; {} of `UNASKED` ones.

    `engines` are as `environments.read` answers.
    """
    if engines == UNASKED:
        return {}
    found: dict[str, str] = {}
    if engines["current"]:
        found["current"] = PurePosixPath(engines["current"]).name
    if engines["environment"]["python"]:
        found["python"] = engines["environment"]["python"]
        found["installation"] = "whole"
    if engines["unfinished"]:
        found["installation"] = "cut off"
    for name, commit in engines["commits"].items():
        if commit:
            origin = engines["environment"]["origins"].get(name) or {}
            found[f"{name} commit"] = commit
            found[f"{name} from"] = origin.get("url") or "an index"
    silent = this.to_ask(engines["images"])
    answers = {}
    for digest, (reference, _) in this.engine_images.items():
        asked = engines["images"].get(digest) and digest not in silent
        answers[reference] = _TAKEN if asked else _NOT_ASKED
    if this.engine_spec:
        asked = taken.has(engines["check"], check_wanted(this.engine_spec))
        found["answer"] = _TAKEN if asked else _NOT_ASKED
    return {"engine": found, "image answer": answers}


def expected(this: Intended, seen: Seen) -> Iterator[Expectation]:
    """See `subjects.expected`."""
    for venv, environment in this.tools.items():
        for name, version in environment.versions.items():
            yield Expectation("tools package", f"{venv} {name}", version, _spelt(version))
    for reference, _ in this.engine_images.values():
        yield Expectation("image answer", reference, _TAKEN)
    spec = this.engine_spec
    if spec is None:
        return
    yield Expectation("engine", "current", spec["id"])
    yield Expectation("engine", "installation", "whole")
    yield Expectation("engine", "python", spec["python"])
    for name in TREES:
        source = spec[name]
        if source:
            # Its version is made of the commit when it is built.
            yield there("engine package", name)
            yield Expectation("engine", f"{name} commit", source["commit"])
            yield Expectation("engine", f"{name} from", f"file://{spec['home']}/{name}")
            yield Expectation("checkout", f"{spec['home']}/{name}", "clean")
    for name, version in spec["expected"].items():
        yield Expectation("engine package", name, version, _spelt(version))
    yield Expectation("engine", "answer", _TAKEN)


def _spelt(version: str) -> Callable[[str], bool]:
    """The same version in another spelling."""
    return lambda found: same_version(found, version)
