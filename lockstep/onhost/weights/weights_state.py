"""Completeness of the models on this host, without a network and without reading a weight."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lockstep.onhost.core import atomic_files
from lockstep.onhost.weights import weights_spec


def read_stamps(spec: weights_spec.Spec, part: weights_spec.WeightsPart) -> dict[str, Any]:
    """Return the stamps of one repository, empty if they are missing or unreadable."""
    data = atomic_files.read_json(spec.stamp_path(part))
    return data if isinstance(data, dict) else {}


def stamp_of(file: weights_spec.File, stat: os.stat_result) -> dict[str, Any]:
    """Return the stamp of a file that was read and found right."""
    held_to = {"sha256": file.sha256} if file.sha256 else {"blob": file.blob}
    return {"size": stat.st_size, "mtime_ns": stat.st_mtime_ns, **held_to}


@dataclass
class Files:
    """Files of one repository by `stat`: paths, and bytes of the right ones."""

    missing: list[str] = field(default_factory=list)
    wrong_size: list[str] = field(default_factory=list)
    unverified_paths: list[str] = field(default_factory=list)
    present: int = 0


def check_files(spec: weights_spec.Spec, part: weights_spec.WeightsPart) -> Files:
    """Check the files of one repository, without those that it borrows."""
    snapshot = spec.snapshot_folder(part.model, part.revision)
    stamps_by_file = read_stamps(spec, part)
    file_states = Files()
    for file in part.files:
        try:
            stat = (snapshot / file.path).stat()
        except OSError:
            file_states.missing.append(file.path)
            continue
        if file.size is not None and stat.st_size != file.size:
            file_states.wrong_size.append(file.path)
            continue
        file_states.present += stat.st_size
        if stamps_by_file.get(file.path) != stamp_of(file, stat):
            file_states.unverified_paths.append(file.path)
    return file_states


def states(spec: weights_spec.Spec) -> dict[str, Any]:
    """Return the `state` of every repository by "ORG/NAME@REVISION"."""
    return {
        f"{repository.model}@{repository.revision}": state(spec, repository)
        for repository in spec.repositories
    }


def state(spec: weights_spec.Spec, repository: weights_spec.RepositoryPart) -> dict[str, Any]:
    """Return the state of one repository from `stat` calls alone.

    {"state", "path", "missing", "wrong_size", "unverified", "not_merged", "bytes_present",
    "bytes_total"}. "state" is `complete` if every file is there in its right size, was read once
    and has not changed since, and the merged folder (if files are borrowed) stands; else
    `incomplete`. Borrowed files are named with their repository.
    """
    own, *borrowed_parts = repository.own_and_borrowed_parts
    own_files = check_files(spec, own)
    for part in borrowed_parts:
        part_files = check_files(spec, part)
        for own_names, part_names in (
            (own_files.missing, part_files.missing),
            (own_files.wrong_size, part_files.wrong_size),
            (own_files.unverified_paths, part_files.unverified_paths),
        ):
            own_names.extend(f"{part.model}/{path}" for path in part_names)
    not_merged = _wrong_merged_links(spec, repository)
    lacking = [*own_files.missing, *own_files.wrong_size, *own_files.unverified_paths, *not_merged]
    refs = all(is_ref_right(spec, repository, ref) for ref in repository.refs)
    return {
        "state": "complete" if refs and not lacking else "incomplete",
        "path": str(spec.model_path(repository)),
        "missing": own_files.missing,
        "wrong_size": own_files.wrong_size,
        "unverified": own_files.unverified_paths,
        "not_merged": not_merged,
        "bytes_present": own_files.present,
        "bytes_total": repository.size,
    }


def state_of_model(path: Path, model: str) -> dict[str, Any]:
    """Return the `state` of one model in the specification at `path`.

    Raises:
        OSError: The specification cannot be read.
        WeightsSpecError: It is unusable.
        LookupError: It does not name the model.
    """
    spec = weights_spec.parse_spec(path.read_text(encoding="utf-8"))
    for repository in spec.repositories:
        if repository.model == model:
            return state(spec, repository)
    raise LookupError(f"{path} does not name it")


def absent_content(spec: weights_spec.Spec) -> list[str]:
    """Return the names of the content that is not in the cache yet."""
    parts = [part for repository in spec.repositories for part in repository.own_and_borrowed_parts]
    missing = [
        file.content_hash
        for part in parts
        for file in part.files
        if not (spec.snapshot_folder(part.model, part.revision) / file.path).exists()
    ]
    return list(dict.fromkeys(missing))


def is_ref_right(
    spec: weights_spec.Spec, repository: weights_spec.RepositoryPart, ref: str
) -> bool:
    """Tell whether a name that an engine may ask for (`main`) leads to the pinned revision."""
    path = spec.repository_folder(repository.model) / "refs" / ref
    return path.is_file() and path.read_text(encoding="utf-8") == repository.revision


def merged_links(
    spec: weights_spec.Spec, repository: weights_spec.RepositoryPart
) -> dict[str, str]:
    """Return the merged folder's links: path inside it → relative target. Empty without borrowing.

    A borrowed file takes the place of the repository's own file of that name.
    """
    if not repository.borrow:
        return {}
    target_path = spec.model_path(repository)
    sources = {
        file.path: spec.snapshot_folder(part.model, part.revision) / file.path
        for part in repository.own_and_borrowed_parts
        for file in part.files
    }
    return {
        path: os.path.relpath(source, (target_path / path).parent)
        for path, source in sources.items()
    }


def _wrong_merged_links(
    spec: weights_spec.Spec, repository: weights_spec.RepositoryPart
) -> list[str]:
    target_path = spec.model_path(repository)
    return [
        path
        for path, target in merged_links(spec, repository).items()
        if not (target_path / path).is_symlink() or str((target_path / path).readlink()) != target
    ]
