"""A backup of the model units from before a rollout, kept until the rollout succeeds.

A document of it is {"current": path of the link or None, "points": where it leads or None,
"files": [{"path", "text", "mode", "owner", "group"}], "absent": [paths that did not exist],
"since": number of the newest record then, "rollout": id of one of a whole cluster, or "",
"whole": whether it is kept until the deploy has ended well on all hosts, "units": {unit among the
files: {"enabled", "up"}}, "hot": what of them `models.json` names and was up, or None, "webui":
Open WebUI's image}.
"""

from __future__ import annotations

import grp
import pwd
from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from typing import Any

from lockstep.onhost.core import atomic, config, errors, layout
from lockstep.onhost.records import generations, ownership, write_files
from lockstep.onhost.systemd import restart_key, units

Document = dict[str, Any]

_UNITS = PurePosixPath("/etc/systemd/system")
_KINDS = (".service", ".socket", ".timer")


def save_snapshot(
    paths: layout.Paths,
    current: str | None,
    watched_paths: Iterable[str],
    rollout: str = "",
    *,
    whole: bool = False,
) -> None:
    """Keep the state of `watched_paths` and of the link `current`, under the id `rollout`.

    `whole` keeps it until the deploy has ended well on all hosts, else until the model is hot. The
    snapshot of an earlier, unfinished rollout from the same generation stays: the files now may be
    half its own.
    """
    newest = generations.newest_number(paths)
    snapshot = load(paths)
    if snapshot is None or snapshot["since"] != newest:
        snapshot = {"since": newest, "current": current, "points": None, "files": [], "absent": []}
        snapshot |= {
            "whole": False,
            "units": {},
            "hot": _hot_model_name(paths),
            "webui": _webui_image(paths),
        }
        link = paths.root / current.lstrip("/") if current else None
        if link is not None and link.is_symlink():
            snapshot["points"] = str(link.readlink())
    known_paths = {file["path"] for file in snapshot["files"]} | set(snapshot["absent"])
    for path in dict.fromkeys(watched_paths):
        if path in known_paths:
            continue
        file_state = _state_of_file(paths.root / path.lstrip("/"))
        if file_state is None:
            snapshot["absent"].append(path)
        else:
            snapshot["files"].append({"path": path, **file_state})
    names = watched_units(snapshot) - snapshot["units"].keys()
    snapshot["units"] |= {
        name: {"enabled": unit.is_enabled, "up": unit.up}
        for name, unit in units.show(names).items()
    }
    snapshot |= {"rollout": rollout, "whole": whole or snapshot["whole"]}
    atomic.write_json(paths.rollback_snapshot, snapshot, mode=0o600)


def discard_snapshot(paths: layout.Paths, *, deploy: bool = False) -> None:
    """Discard the snapshot after a successful rollout or, with `deploy`, a whole deploy."""
    snapshot = load(paths)
    if snapshot is None or deploy or not snapshot["whole"]:
        paths.rollback_snapshot.unlink(missing_ok=True)


def watched_units(snapshot: Document) -> set[str]:
    """Return the units among the kept paths, without templates, which nothing can start."""
    kept_paths = map(
        PurePosixPath, [*(file["path"] for file in snapshot["files"]), *snapshot["absent"]]
    )
    return {
        path.name
        for path in kept_paths
        if path.parent == _UNITS and path.suffix in _KINDS and not path.stem.endswith("@")
    }


def _hot_model_name(paths: layout.Paths) -> str | None:
    """Return the name of the model that is up."""
    try:
        models = config.load_host(paths.models).models.values()
    except errors.Problem:
        return None
    state = units.show(model.unit for model in models)
    return next((model.name for model in models if state[model.unit].up), None)


def _webui_image(paths: layout.Paths) -> str:
    """Return the image that last opened Open WebUI's data."""
    return str((atomic.read_json(paths.webui) or {}).get("image", ""))


def load(paths: layout.Paths) -> Document | None:
    """Return the snapshot; None if it is missing or unreadable."""
    document = atomic.read_json(paths.rollback_snapshot)
    required_keys = {"since", "current", "points", "files", "absent"}
    if not isinstance(document, dict) or not required_keys <= document.keys():
        return None
    return {"rollout": "", "whole": False, "units": {}, "hot": None, "webui": "", **document}


def snapshot_between_records(
    earlier_record: generations.Record, now: generations.Record
) -> Document:
    """Return the document that leads from one record of this host back to another."""
    kept_paths = {file["path"] for file in earlier_record["files"]}
    engine = earlier_record["engine"]
    return {
        "current": f"{engine['folder']}/current",
        "points": engine["id"],
        "files": earlier_record["files"],
        "absent": [file["path"] for file in now["files"] if file["path"] not in kept_paths],
    }


def restore_snapshot(paths: layout.Paths, snapshot: Document) -> None:
    """Restore files and link, and have systemd and the gateway read them.

    Nothing is touched if a foreign file has come into the place of one.

    Raises:
        errors.Problem: It cannot be done.
    """
    refuse_foreign(paths, snapshot)
    try:
        for file in snapshot["files"]:
            there_now = _state_of_file(paths.root / file["path"].lstrip("/"))
            # Rewriting a socket's file would reopen the socket, and free its port meanwhile.
            if there_now is None or there_now.items() - file.items():
                write_files.place_file(file, paths.root)
        for path in snapshot["absent"]:
            (paths.root / path.lstrip("/")).unlink(missing_ok=True)
        if snapshot["current"] and snapshot["points"]:
            atomic.replace_link(paths.root / snapshot["current"].lstrip("/"), snapshot["points"])
    except OSError as error:
        raise errors.Problem(f"{error.filename}: {error.strerror}") from error
    generations.remove_begun_record(paths)
    units.control_units("daemon-reload")
    restart_key.bring_gateway_up_to_date(paths)


def refuse_foreign(paths: layout.Paths, snapshot: Document) -> None:
    """Raise Problem if a foreign file is at a path that the rollback would write or remove."""
    judge = ownership.Ownership(root=paths.root)
    # A rollback that was cut off has restored some of them already.
    back = [file["path"] for file in snapshot["files"] if not _has_recorded_text(paths, file)]
    owners_by_path = {path: judge.owner_of_file(path) for path in (*back, *snapshot["absent"])}
    foreign_files = [f"{path} ({owner})" for path, owner in owners_by_path.items() if owner]
    if foreign_files:
        raise errors.Problem(
            f"not made by Lockstep: {', '.join(foreign_files)}; nothing was changed. Remedy: "
            "move it away and try again"
        )


def _has_recorded_text(paths: layout.Paths, file: dict[str, str]) -> bool:
    file_state = _state_of_file(paths.root / file["path"].lstrip("/"))
    return file_state is not None and file_state["text"] == file["text"]


def _state_of_file(path: Path) -> dict[str, str] | None:
    try:
        stat = path.stat()
        text = path.read_text(encoding="utf-8", errors="surrogateescape")
    except FileNotFoundError:
        return None
    except OSError as error:
        raise errors.Problem(f"{path}: {error.strerror}") from error
    return {
        "text": text,
        "mode": f"{stat.st_mode & 0o7777:04o}",
        "owner": pwd.getpwuid(stat.st_uid).pw_name,
        "group": grp.getgrgid(stat.st_gid).gr_name,
    }
