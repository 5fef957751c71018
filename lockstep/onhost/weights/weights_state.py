"""Tells, without a network and without reading a weight, which models are complete on this host."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lockstep.onhost.core import atomic
from lockstep.onhost.weights import weights_spec


def stamps(spec: weights_spec.Spec, part: weights_spec.Part) -> dict[str, Any]:
    """The stamps of one repository; empty when there are none or they cannot be read."""
    data = atomic.read_json(spec.stamp(part))
    return data if isinstance(data, dict) else {}


def stamp_of(file: weights_spec.File, stat: os.stat_result) -> dict[str, Any]:
    """What a stamp says about a file that was read and found right."""
    held_to = {"sha256": file.sha256} if file.sha256 else {"blob": file.blob}
    return {"size": stat.st_size, "mtime_ns": stat.st_mtime_ns, **held_to}


@dataclass
class Files:
    """What `stat` says about the files of one repository: paths, and bytes that are right."""

    missing: list[str] = field(default_factory=list)
    wrong_size: list[str] = field(default_factory=list)
    unverified: list[str] = field(default_factory=list)
    present: int = 0


def files(spec: weights_spec.Spec, part: weights_spec.Part) -> Files:
    """The files of one repository, without those that it borrows."""
    snapshot = spec.snapshot(part.model, part.revision)
    known = stamps(spec, part)
    found = Files()
    for file in part.files:
        try:
            stat = (snapshot / file.path).stat()
        except OSError:
            found.missing.append(file.path)
            continue
        if file.size is not None and stat.st_size != file.size:
            found.wrong_size.append(file.path)
            continue
        found.present += stat.st_size
        if known.get(file.path) != stamp_of(file, stat):
            found.unverified.append(file.path)
    return found


def states(spec: weights_spec.Spec) -> dict[str, Any]:
    """ "ORG/NAME@REVISION" of every repository → its `state`."""
    return {
        f"{repository.model}@{repository.revision}": state(spec, repository)
        for repository in spec.repositories
    }


def state(spec: weights_spec.Spec, repository: weights_spec.Repository) -> dict[str, Any]:
    """State of one repository from `stat` calls alone.

    {"state", "path", "missing", "wrong_size", "unverified", "not_merged", "bytes_present",
    "bytes_total"}. "state" is `complete` when every file is there in its right size, was read once
    and has not changed since, and the merged folder (if files are borrowed) stands; else
    `incomplete`. Borrowed files are named with their repository.
    """
    own, *borrowed = repository.parts
    found = files(spec, own)
    for part in borrowed:
        theirs = files(spec, part)
        for mine, others in (
            (found.missing, theirs.missing),
            (found.wrong_size, theirs.wrong_size),
            (found.unverified, theirs.unverified),
        ):
            mine.extend(f"{part.model}/{path}" for path in others)
    not_merged = _not_merged(spec, repository)
    lacking = [*found.missing, *found.wrong_size, *found.unverified, *not_merged]
    refs = all(right_ref(spec, repository, ref) for ref in repository.refs)
    return {
        "state": "complete" if refs and not lacking else "incomplete",
        "path": str(spec.model_path(repository)),
        "missing": found.missing,
        "wrong_size": found.wrong_size,
        "unverified": found.unverified,
        "not_merged": not_merged,
        "bytes_present": found.present,
        "bytes_total": repository.size,
    }


def of_model(path: Path, model: str) -> dict[str, Any]:
    """`state` of one model that the specification at `path` names.

    Raises OSError, BadSpec, or LookupError where it does not name the model.
    """
    spec = weights_spec.parse(path.read_text(encoding="utf-8"))
    for repository in spec.repositories:
        if repository.model == model:
            return state(spec, repository)
    raise LookupError(f"{path} does not name it")


def absent(spec: weights_spec.Spec) -> list[str]:
    """Names of the content that is not in the cache yet."""
    parts = [part for repository in spec.repositories for part in repository.parts]
    missing = [
        file.name
        for part in parts
        for file in part.files
        if not (spec.snapshot(part.model, part.revision) / file.path).exists()
    ]
    return list(dict.fromkeys(missing))


def right_ref(spec: weights_spec.Spec, repository: weights_spec.Repository, ref: str) -> bool:
    """Whether a name that an engine may ask for (`main`) leads to the pinned revision."""
    path = spec.repository_folder(repository.model) / "refs" / ref
    return path.is_file() and path.read_text(encoding="utf-8") == repository.revision


def links(spec: weights_spec.Spec, repository: weights_spec.Repository) -> dict[str, str]:
    """The merged folder's links: path inside it → relative target. Empty when nothing is borrowed.

    A borrowed file takes the place of the repository's own file of that name.
    """
    if not repository.borrow:
        return {}
    merged = spec.model_path(repository)
    sources = {
        file.path: spec.snapshot(part.model, part.revision) / file.path
        for part in repository.parts
        for file in part.files
    }
    return {
        path: os.path.relpath(source, (merged / path).parent) for path, source in sources.items()
    }


def _not_merged(spec: weights_spec.Spec, repository: weights_spec.Repository) -> list[str]:
    merged = spec.model_path(repository)
    return [
        path
        for path, target in links(spec, repository).items()
        if not (merged / path).is_symlink() or str((merged / path).readlink()) != target
    ]
