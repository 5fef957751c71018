"""Tell, without a network and without reading a weight, which models are complete on this host.

usage: weights-state SPEC.json        (or the specification on standard input)

Prints JSON: {"ORG/NAME@REVISION": {"state", "path", "missing", "wrong_size", "unverified",
"not_merged", "bytes_present", "bytes_total"}}. `state` is `complete` when every file is there in
its right size, every file with a known hash was read once and has not changed since, and the merged
folder (if files are borrowed) stands; else `incomplete`. Borrowed files are named with their
repository.

exit codes: 0 printed, whatever the states are; 2 wrong use
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lockstep.onhost.core import errors
from lockstep.onhost.weights import weights_spec


def stamps(spec: weights_spec.Spec, repository: weights_spec.Repository) -> dict[str, Any]:
    """The stamps of one repository; empty when there are none or they cannot be read."""
    try:
        data = json.loads(spec.stamp(repository).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
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


def files(spec: weights_spec.Spec, part: weights_spec.Repository) -> Files:
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
        if file.name and known.get(file.path) != stamp_of(file, stat):
            found.unverified.append(file.path)
    return found


def states(spec: weights_spec.Spec) -> dict[str, Any]:
    """ "ORG/NAME@REVISION" of every repository → its state, as the module's docstring describes."""
    return {
        f"{repository.model}@{repository.revision}": state(spec, repository)
        for repository in spec.repositories
    }


def state(spec: weights_spec.Spec, repository: weights_spec.Repository) -> dict[str, Any]:
    """State of one repository from `stat` calls alone."""
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
    lacking = found.missing or found.wrong_size or found.unverified or not_merged
    return {
        "state": "incomplete" if lacking or _wrong_refs(spec, repository) else "complete",
        "path": str(spec.model_path(repository)),
        "missing": found.missing,
        "wrong_size": found.wrong_size,
        "unverified": found.unverified,
        "not_merged": not_merged,
        "bytes_present": found.present,
        "bytes_total": repository.size,
    }


def absent(spec: weights_spec.Spec) -> list[str]:
    """Names of the content that is not in the cache yet."""
    found: dict[str, None] = {}
    for repository in spec.repositories:
        for part in repository.parts:
            snapshot = spec.snapshot(part.model, part.revision)
            missing = (file for file in part.files if not (snapshot / file.path).exists())
            found.update((file.name, None) for file in missing if file.name)
    return list(found)


def _wrong_refs(spec: weights_spec.Spec, repository: weights_spec.Repository) -> list[str]:
    folder = spec.repository_folder(repository.model) / "refs"
    wrong = []
    for ref in repository.refs:
        try:
            right = (folder / ref).read_text(encoding="utf-8") == repository.revision
        except OSError:
            right = False
        if not right:
            wrong.append(ref)
    return wrong


def links(spec: weights_spec.Spec, repository: weights_spec.Repository) -> dict[str, str]:
    """The merged folder's links: path inside it → relative target. Empty when nothing is borrowed.

    A borrowed file takes the place of the repository's own file of that name.
    """
    if not repository.borrow:
        return {}
    merged = spec.model_path(repository)
    sources = {
        file.path: spec.snapshot(repository.model, repository.revision) / file.path
        for file in repository.files
    }
    for borrow in repository.borrow:
        for file in borrow.files:
            sources[file.path] = spec.snapshot(borrow.model, borrow.revision) / file.path
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


def main(argv: list[str]) -> int:
    """Command line; see the module's docstring."""
    if len(argv) > 1 or {"-h", "--help"} & set(argv):
        print((__doc__ or "").strip())
        return errors.EXIT_DONE if argv != [] and len(argv) == 1 else errors.EXIT_USAGE
    try:
        text = Path(argv[0]).read_text(encoding="utf-8") if argv else sys.stdin.read()
        spec = weights_spec.parse(text)
    except OSError as error:
        raise errors.Problem(f"{argv[0]}: {error.strerror}", errors.EXIT_USAGE) from error
    except weights_spec.BadSpec as error:
        where = argv[0] if argv else "standard input"
        raise errors.Problem(f"{where}: {error}", errors.EXIT_USAGE) from error
    print(json.dumps(states(spec), indent=1))
    return errors.EXIT_DONE


if __name__ == "__main__":
    sys.exit(errors.ended("weights_state", lambda: main(sys.argv[1:])))
