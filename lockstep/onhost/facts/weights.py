"""Weights: whole at their revisions; with `deep`, every file by its hash; slow loads."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any

from lockstep.onhost.core import config, errors, layout
from lockstep.onhost.facts.reader_helpers import Facts, folder_paths, text
from lockstep.onhost.fetch import blob_files
from lockstep.onhost.records import last_weight_loads
from lockstep.onhost.weights import (
    disk_rate,
    load_progress_text,
    model_files,
    slow_disk_causes,
    weights_spec,
    weights_state,
)

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
        for part in repository.own_and_borrowed_parts if question["deep"] else ():
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


def slow_loads(_: object) -> Facts:
    """Yield each model that loads slower than half of its disk's rate, and each slow port."""
    paths = layout.Paths()
    try:
        models = config.load_host(paths.models).models.values()
    except errors.Problem:
        # The file is an earlier Lockstep's, or there is none.
        return
    mounts = slow_disk_causes.mounts(text(str(paths.proc / "self/mountinfo")) or "")
    ports = {}
    for model in models:
        files = model_files.model_files(model, paths)
        mount = slow_disk_causes.mount_of(files[0], mounts) if files else None
        if mount is None:
            continue
        if port := slow_disk_causes.slow_port(mount, paths.root / "sys"):
            ports[f"disk at {mount.place}"] = port
        if slow := _slow_load(model, paths):
            traits = "; ".join(slow_disk_causes.slow_traits(mount, paths.root / "sys"))
            yield "loading", model.name, f"{slow}: {traits or _unexplained_load_text(model)}"
    yield from (("loading", item, port) for item, port in ports.items())


def _slow_load(model: config.Model, paths: layout.Paths) -> str | None:
    record = last_weight_loads.last_load_by_model(paths).get(model.name)
    if record is None:
        return None
    # Not the bytes that the disk gave: the page cache may have had the others.
    disk_mb_s = disk_rate.rate_of(paths, record.device)
    return load_progress_text.below_disk_rate_text(record.needs_bytes, record.seconds, disk_mb_s)


def _unexplained_load_text(model: config.Model) -> str:
    return (
        "the disk's port, network, encryption and compression do not explain it. Remedy: "
        f"journalctl -u {model.unit} shows the load, and memory that ran short in it"
    )
