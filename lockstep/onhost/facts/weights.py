"""Weights: whole at their revisions; with `deep`, every file by its hash."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any

from lockstep.onhost.facts.reader_helpers import Facts, folder_paths, text
from lockstep.onhost.fetch import blob_files
from lockstep.onhost.weights import weights_spec, weights_state

_FAULTS = {
    "missing": "missing",
    "wrong_size": "of another size",
    "unverified": "changed since they were verified",
    "not_merged": "not linked",
}


def read(path: str) -> dict[str, Any]:
    """Return the state of every model in a host's specification, as of `weights_state.states`.

    {} before that file is there.
    """
    spec = text(path)
    return weights_state.states(weights_spec.parse_spec(spec)) if spec else {}


def every(question: dict[str, Any]) -> Facts:
    """Yield every repository of the question, and the other content of the cache.

    `question` has "weights" as in the specification, and "deep": whether every file is read.
    """
    spec = weights_spec.parse_spec(json.dumps(question["weights"]))
    wanted_folders = set()
    for repository in spec.repositories:
        wanted_folders.add(str(spec.snapshot_folder(repository.model, repository.revision)))
        wanted_folders |= {
            str(spec.snapshot_folder(borrow.model, borrow.revision)) for borrow in repository.borrow
        }
        state = weights_state.state(spec, repository)
        yield "weights", f"{repository.model}@{repository.revision[:12]}", _state_text(state)
        for part in repository.parts if question["deep"] else ():
            for path in _changed_paths(spec, part):
                yield "weights content", path, "other content"
    right = os.stat(spec.cache_dir).st_uid if spec.cache_dir.is_dir() else None
    for folder in folder_paths(str(spec.cache_dir)):
        # Somebody fetched as another account, and our account cannot repair it.
        if any(owner != right for owner in _owners(folder)):
            yield "weights owner", folder, "another account's"
        name = os.path.basename(folder).removeprefix("models--").replace("--", "/", 1)
        for snapshot in folder_paths(os.path.join(folder, "snapshots")):
            if snapshot not in wanted_folders:
                yield "other weights", f"{name}@{os.path.basename(snapshot)[:12]}", "present"


def _owners(folder: str) -> Iterator[int]:
    """Yield the user ids of everything in a folder."""
    for root, folders, files in os.walk(folder):
        for name in (*folders, *files):
            yield os.lstat(os.path.join(root, name)).st_uid


def _state_text(state: dict[str, object]) -> str:
    if state["state"] == "complete":
        return "complete"
    parts = []
    for key, words in _FAULTS.items():
        files = state[key]
        if isinstance(files, list) and files:
            more = f" and {len(files) - 1} more" if len(files) > 1 else ""
            parts.append(f"{files[0]}{more} {words}")
    return "; ".join(parts) or "a branch name leads elsewhere"


def _changed_paths(spec: weights_spec.Spec, part: weights_spec.WeightsPart) -> Iterator[str]:
    """Yield files whose bytes are not those of the pinned revision; this reads all files."""
    snapshot = spec.snapshot_folder(part.model, part.revision)
    for file in part.files:
        path = snapshot / file.path
        if path.is_file() and not blob_files.matches(path, file.content_hash):
            yield str(path)
