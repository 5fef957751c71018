"""Weights: whole at their revisions; with `deep`, every file by its hash."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator

from lockstep.onhost.fetch import content
from lockstep.onhost.weights import weights_spec, weights_state
from lockstep.snapshot.collected import Collected, listed

_FAULTS = {
    "missing": "missing",
    "wrong_size": "of another size",
    "unverified": "changed since they were verified",
    "not_merged": "not linked",
}


def weights(found: Collected) -> None:
    """Every repository of the question, and what else lies in the cache."""
    spec = weights_spec.parse(json.dumps(found.asked["weights"]))
    wanted = set()
    for repository in spec.repositories:
        wanted.add(str(spec.snapshot(repository.model, repository.revision)))
        wanted |= {str(spec.snapshot(each.model, each.revision)) for each in repository.borrow}
        state = weights_state.state(spec, repository)
        found.put("weights", f"{repository.model}@{repository.revision[:12]}", _told(state))
        if found.asked["deep"]:
            for part in repository.parts:
                for path in _other(spec, part):
                    found.put("weights content", path, "other content")
    if spec.cache_dir.is_dir():
        _owners(found, str(spec.cache_dir))
    for folder in listed(str(spec.cache_dir)):
        name = os.path.basename(folder).removeprefix("models--").replace("--", "/", 1)
        for snapshot in listed(os.path.join(folder, "snapshots")):
            if snapshot not in wanted:
                revision = os.path.basename(snapshot)
                found.put("other weights", f"{name}@{revision[:12]}", "present")


def _owners(found: Collected, cache: str) -> None:
    """Repositories with parts that the account cannot repair: somebody fetched as another one."""
    right = os.stat(cache).st_uid
    for folder in listed(cache):
        for root, folders, files in os.walk(folder):
            for name in (*folders, *files):
                if os.lstat(os.path.join(root, name)).st_uid != right:
                    found.put("weights owner", folder, "another account's")


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


def _other(spec: weights_spec.Spec, repository: weights_spec.Repository) -> Iterator[str]:
    """Paths of files whose bytes are not those of the pinned revision. Reads all of them."""
    snapshot = spec.snapshot(repository.model, repository.revision)
    for file in repository.files:
        path = snapshot / file.path
        if file.name and path.is_file() and not content.matches(path, file.name):
            yield str(path)
