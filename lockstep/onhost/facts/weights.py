"""Weights: whole at their revisions; with `deep`, every file by its hash."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any

from lockstep.onhost.facts.reading import Facts, listed, text
from lockstep.onhost.fetch import content
from lockstep.onhost.weights import weights_spec, weights_state

_FAULTS = {
    "missing": "missing",
    "wrong_size": "of another size",
    "unverified": "changed since they were verified",
    "not_merged": "not linked",
}


def read(path: str) -> dict[str, Any]:
    """State of every model that a host's specification names, as `weights_state.states` answers;
    {} before that file is there."""
    spec = text(path)
    return weights_state.states(weights_spec.parse(spec)) if spec else {}


def every(asked: dict[str, Any]) -> Facts:
    """Every repository of the question, and what else lies in the cache. Asked: "weights" as the
    specification has them; whether every file is read ("deep").
    """
    spec = weights_spec.parse(json.dumps(asked["weights"]))
    wanted = set()
    for repository in spec.repositories:
        wanted.add(str(spec.snapshot(repository.model, repository.revision)))
        wanted |= {str(spec.snapshot(each.model, each.revision)) for each in repository.borrow}
        state = weights_state.state(spec, repository)
        yield "weights", f"{repository.model}@{repository.revision[:12]}", _told(state)
        for part in repository.parts if asked["deep"] else ():
            for path in _other(spec, part):
                yield "weights content", path, "other content"
    right = os.stat(spec.cache_dir).st_uid if spec.cache_dir.is_dir() else None
    for folder in listed(str(spec.cache_dir)):
        # Somebody fetched as another account, and ours cannot repair it.
        if any(owner != right for owner in _owners(folder)):
            yield "weights owner", folder, "another account's"
        name = os.path.basename(folder).removeprefix("models--").replace("--", "/", 1)
        for snapshot in listed(os.path.join(folder, "snapshots")):
            if snapshot not in wanted:
                yield "other weights", f"{name}@{os.path.basename(snapshot)[:12]}", "present"


def _owners(folder: str) -> Iterator[int]:
    """User ids of everything in a folder."""
    for root, folders, files in os.walk(folder):
        for name in (*folders, *files):
            yield os.lstat(os.path.join(root, name)).st_uid


def _told(state: dict[str, object]) -> str:
    if state["state"] == "complete":
        return "complete"
    parts = []
    for key, words in _FAULTS.items():
        files = state[key]
        if isinstance(files, list) and files:
            more = f" and {len(files) - 1} more" if len(files) > 1 else ""
            parts.append(f"{files[0]}{more} {words}")
    return "; ".join(parts) or "a branch name leads elsewhere"


def _other(spec: weights_spec.Spec, part: weights_spec.Part) -> Iterator[str]:
    """Paths of files whose bytes are not those of the pinned revision. Reads all of them."""
    snapshot = spec.snapshot(part.model, part.revision)
    for file in part.files:
        path = snapshot / file.path
        if path.is_file() and not content.matches(path, file.name):
            yield str(path)
