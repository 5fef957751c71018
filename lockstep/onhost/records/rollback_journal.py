"""The journal of a generation: what was here before each change of its deploy, and the way back.

A program notes a thing here before a deploy changes it; the first note of a thing counts. What a
deploy has changed and not ended well lies in begun-journal.json. When the deploy has ended well on
all its hosts, that becomes journal.json: the way back from the newest generation to the one before.

A document is {"since": number of the record that it leads back to, "before": {path: {"text",
"mode", "owner", "group"}, or {"link"}, or None for absent}, "current": path of the link to the
engine, or None, "points": where it led, "units": {unit among the paths: {"enabled", "up"}}, "hot":
name of the model that was up when the first file of a model was to change, or None, "webui": Open
WebUI's image, "rollout": id of the rollout of a cluster's model in this deploy, or "", "from":
digest of the generation that journal.json leads back from}.

A host without a record has no journal: a first deploy has nothing to return to.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from lockstep.onhost.core import atomic_files, config, errors, layout, program_command_lines
from lockstep.onhost.records import generations, ownership
from lockstep.onhost.systemd import outdated_units, units

Document = dict[str, Any]

#: What a deploy changes and no way back restores: what it is → what becomes of it.
STAYING = {
    "packages": "stay installed, upgraded or purged",
    "accounts": "stay, with their groups",
    "folders": "stay, with their mode and owner",
    "secrets": "stay as they were made or sent",
    "services of the system": "keep running with what they were last started with",
    "kernel settings, firewall rules and addresses": "stay in force until the next deploy or boot",
    "images, engines and weights": "stay until lockstep gc",
    "adopted containers": "stay removed",
    "volumes": "stay, but for Open WebUI's data, which return with its image",
}
_UNITS = PurePosixPath("/etc/systemd/system")
_KINDS = (".service", ".socket", ".timer")
# No way back needs a secret that nothing uses any more; the next deploy makes another one.
_SECRETS = "/etc/lockstep/secrets/*"


def note_before_change(
    paths: layout.Paths, changing_paths: Iterable[str] = (), *, rollout: str | None = None
) -> None:
    """Note what is at these paths, unless that is noted already; with `rollout`, that id too.

    The journal of an earlier deploy that did not end well goes on: what is here may be half its
    own.

    Raises:
        errors.Problem: Something cannot be read, or systemd does not answer.
    """
    record = generations.newest_record(paths)
    if record is None:
        return
    document = unfinished_journal(paths)
    if document is None or document["since"] != record["number"]:
        document = _new_document(paths, record)
    earlier_states = document["before"]
    new_paths = {path for path in changing_paths if not PurePosixPath(path).match(_SECRETS)}
    new_paths -= earlier_states.keys()
    earlier_states |= {
        path: _state_of_file(paths.root / path.lstrip("/")) for path in sorted(new_paths)
    }
    if document["hot"] is None and new_paths:
        document["hot"] = _hot_model_if_affected(paths, new_paths)
    names = watched_units(document) - document["units"].keys()
    document["units"] |= {
        name: {"enabled": unit.is_enabled, "up": unit.up}
        for name, unit in units.units_by_name(names).items()
    }
    document["rollout"] = document["rollout"] if rollout is None else rollout
    atomic_files.write_json(paths.begun_journal, document, mode=0o600)


def _new_document(paths: layout.Paths, record: generations.Record) -> Document:
    folder = record["engine"].get("folder")
    link = paths.root / folder.lstrip("/") / "current" if folder else None
    return {
        "since": record["number"],
        "before": {},
        "current": f"{folder}/current" if folder else None,
        "points": str(link.readlink()) if link is not None and link.is_symlink() else None,
        "units": {},
        "hot": None,
        # The image that last opened Open WebUI's data.
        "webui": str((atomic_files.read_json(paths.webui) or {}).get("image", "")),
        "rollout": "",
    }


def finish(paths: layout.Paths) -> None:
    """Keep the journal of a deploy that has ended well as the way back from its generation.

    One without a new record has changed the newest generation further.
    """
    document = unfinished_journal(paths)
    record = generations.newest_record(paths)
    if document is None or record is None:
        return
    way_back: Document | None = document
    if document["since"] == record["number"]:
        way_back = newest_journal(paths)
        if way_back is not None:
            for part in ("before", "units"):
                way_back[part] = {**document[part], **way_back[part]}
    if way_back is not None:
        way_back |= {"rollout": "", "from": record["digest"]}
        atomic_files.write_json(paths.journal, way_back, mode=0o600)
    discard(paths)


def discard(paths: layout.Paths) -> None:
    """Discard the journal of a deploy that was rolled back."""
    paths.begun_journal.unlink(missing_ok=True)


def unfinished_journal(paths: layout.Paths) -> Document | None:
    """Return the journal of a deploy that has not ended well, or None."""
    return _load(paths.begun_journal)


def newest_journal(paths: layout.Paths) -> Document | None:
    """Return the way back from the newest generation, or None."""
    document, record = _load(paths.journal), generations.newest_record(paths)
    return document if document and record and document.get("from") == record["digest"] else None


def journal_to_follow(paths: layout.Paths) -> Document | None:
    """Return the journal of a deploy that has not ended well, else the way back, or None."""
    document = unfinished_journal(paths) or newest_journal(paths)
    has_record = document and generations.has_readable_record(paths, document["since"])
    return document if has_record else None


def effects_of_return(paths: layout.Paths) -> dict[str, Any]:
    """Return where the journal leads and what a return changes; {} if there is no journal.

    "digest", "number" and "date" are those of the generation that it leads to, "files" the paths
    that differ, "webui" Open WebUI's image then, "foreign" why a return is refused, or "".
    "interrupted" is the model that is up and restarts or ends, or "", "ends" tells whether there
    was none of its unit, and "cluster" is its cluster, or "".
    """
    document = journal_to_follow(paths)
    if document is None:
        return {}
    record = next(
        record
        for record in generations.readable_records(paths)
        if record["number"] == document["since"]
    )
    model, foreign = _interrupted_model(paths, document), ""
    try:
        refuse_foreign(paths, document)
    except errors.Problem as problem:
        foreign = str(problem)
    return {
        **{key: record[key] for key in ("digest", "number", "date")},
        "files": sorted(_states_that_differ(paths, document["before"])),
        "webui": document["webui"],
        "foreign": foreign,
        "ends": bool(model and model.unit in absent_units(document)),
        "interrupted": model.name if model else "",
        "cluster": (model.cluster or "") if model else "",
    }


def _interrupted_model(paths: layout.Paths, document: Document) -> config.Model | None:
    """Return the model that is up and will run with another unit file, or end with its cluster."""
    models = config.load_host(paths.models).models.values()
    state = units.units_by_name(model.unit for model in models)
    for model in (model for model in models if state[model.unit].up):
        path, earlier_states = str(_UNITS / model.unit), document["before"]
        earlier_text = (earlier_states.get(path) or {}).get("text", "")
        running_key = outdated_units.running_restart_key(state[model.unit], paths.proc)
        is_other = outdated_units.written_restart_key(earlier_text) != running_key
        if model.cluster or (path in earlier_states and is_other):
            return model
    return None


def _load(path: Path) -> Document | None:
    document = atomic_files.read_json(path)
    required_keys = {"since", "before", "current", "points", "units", "hot", "webui", "rollout"}
    if not isinstance(document, dict) or not required_keys <= document.keys():
        return None
    return document


def absent_units(document: Document) -> set[str]:
    """Return the units that were not there before the deploy."""
    earlier_states = document["before"]
    return {name for name in watched_units(document) if earlier_states[str(_UNITS / name)] is None}


def watched_units(document: Document) -> set[str]:
    """Return the units among the noted paths, without templates, which nothing can start."""
    return {
        path.name
        for path in map(PurePosixPath, document["before"])
        if path.parent == _UNITS and path.suffix in _KINDS and not path.stem.endswith("@")
    }


def _hot_model_if_affected(paths: layout.Paths, changing_paths: set[str]) -> str | None:
    """Return the model that is up, if a file of any model is among the paths."""
    try:
        models = config.load_host(paths.models).models.values()
    except errors.Problem:
        return None
    own_paths = {str(_UNITS / model.unit) for model in models} | {"/etc/lockstep/models.json"}
    if own_paths.isdisjoint(changing_paths):
        return None
    state = units.units_by_name(model.unit for model in models)
    return next((model.name for model in models if state[model.unit].up), None)


def restore_files(paths: layout.Paths, document: Document) -> None:
    """Restore files and links, and have systemd and the gateway read them.

    Nothing is touched if a foreign file has come into the place of one.

    Raises:
        errors.Problem: It cannot be done.
    """
    refuse_foreign(paths, document)
    changes = _states_that_differ(paths, document["before"])
    try:
        # Our programs last: if this is cut off, those that wrote the journal go on with it.
        for path in sorted(
            changes, key=lambda path: path.startswith(f"{program_command_lines.PROGRAMS}/")
        ):
            _restore_file(paths.root / path.lstrip("/"), changes[path])
        _restore_engine_link(paths, document)
    except (OSError, LookupError) as error:
        raise errors.Problem(f"what was here cannot be restored: {error}") from error
    generations.remove_begun_record(paths)
    units.control_units("daemon-reload")
    outdated_units.bring_gateway_up_to_date(paths)


def _restore_engine_link(paths: layout.Paths, document: Document) -> None:
    """Have the link to the engine lead where it led, with its owner; leave one alone that does."""
    if not (document["current"] and document["points"]):
        return
    link = paths.root / document["current"].lstrip("/")
    if link.is_symlink() and str(link.readlink()) == document["points"]:
        return
    owner = link.lstat() if link.is_symlink() else link.parent.stat()
    atomic_files.replace_link(link, document["points"])
    os.chown(link, owner.st_uid, owner.st_gid, follow_symlinks=False)


def _restore_file(at: Path, was: Mapping[str, str] | None) -> None:
    if was is None:
        at.unlink(missing_ok=True)
    elif "link" in was:
        atomic_files.replace_link(at, was["link"])
    else:
        owner = (was["owner"], was["group"])
        atomic_files.write(at, was["text"], mode=int(was["mode"], 8), owner=owner)
        if at.suffix == ".py":
            import py_compile  # Programs on a host start without it.

            py_compile.compile(str(at), quiet=2)


def refuse_foreign(paths: layout.Paths, document: Document) -> None:
    """Raise Problem if a foreign file is at a path that the rollback would write or remove."""
    judge = ownership.Ownership(root=paths.root)
    changing_paths = _states_that_differ(paths, document["before"])
    owners_by_path = {path: judge.foreign_owner_of_file(path) for path in changing_paths}
    foreign_files = [f"{path} ({owner})" for path, owner in owners_by_path.items() if owner]
    if foreign_files:
        raise errors.Problem(
            f"not made by Lockstep: {', '.join(foreign_files)}; nothing was changed. Remedy: "
            "move it away and try again"
        )


def _states_that_differ(paths: layout.Paths, earlier_states: Mapping[str, Any]) -> dict[str, Any]:
    """Return the noted things that are otherwise now.

    A rollback that was cut off has restored some already, and rewriting a socket's file would
    reopen the socket, and free its port meanwhile.
    """
    return {
        path: was
        for path, was in earlier_states.items()
        if _state_of_file(paths.root / path.lstrip("/")) != was
    }


def _state_of_file(path: Path) -> dict[str, str] | None:
    try:
        if path.is_symlink():
            return {"link": str(path.readlink())}
        entry = path.stat()
        # Ends of lines stay as they are.
        text = path.read_bytes().decode("utf-8", errors="surrogateescape")
    except FileNotFoundError:
        return None
    except OSError as error:
        raise errors.Problem(f"{path}: {error.strerror}") from error
    owner, group = ownership.user_and_group_names(entry)
    return {"text": text, "mode": f"{entry.st_mode & 0o7777:04o}", "owner": owner, "group": group}
