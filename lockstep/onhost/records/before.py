"""A backup of the model units from before a rollout, kept until the rollout succeeds.

A document of it is {"current": path of the link or None, "points": where it leads or None,
"files": [{"path", "text", "mode", "owner", "group"}], "absent": [paths that did not exist],
"since": number of the newest record then, "rollout": id of one of a whole cluster, or "",
"whole": whether it is kept until the deploy has ended well on all hosts, "units": {unit among the
files: {"enabled", "up"}}, "hot": what of them `targets.json` names and was up, or None, "webui":
Open WebUI's image}.
"""

from __future__ import annotations

import grp
import pwd
from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from typing import Any

from lockstep.onhost.core import atomic, config, errors, layout, runner
from lockstep.onhost.records import generations, ours, write_files
from lockstep.onhost.systemd import generation, units

Document = dict[str, Any]

_UNITS = PurePosixPath("/etc/systemd/system")
_KINDS = (".service", ".socket", ".timer")


def keep(
    paths: layout.Paths,
    current: str | None,
    watched: Iterable[str],
    rollout: str = "",
    *,
    whole: bool = False,
) -> None:
    """Keep the state of `watched` paths and of the link `current`, under the id `rollout`.

    `whole` keeps it until the deploy has ended well on all hosts, else until the model is hot.
    What an earlier rollout from the same generation kept, and did not bring to an end, stays: the
    files now may be half its own.
    """
    newest = generations.number(paths)
    kept = there(paths)
    if kept is None or kept["since"] != newest:
        kept = {"since": newest, "current": current, "points": None, "files": [], "absent": []}
        kept |= {"whole": False, "units": {}, "hot": _hot(paths), "webui": _webui_image(paths)}
        link = paths.root / current.lstrip("/") if current else None
        if link is not None and link.is_symlink():
            kept["points"] = str(link.readlink())
    known = {file["path"] for file in kept["files"]} | set(kept["absent"])
    for path in dict.fromkeys(watched):
        if path in known:
            continue
        found = _read(paths.root / path.lstrip("/"))
        if found is None:
            kept["absent"].append(path)
        else:
            kept["files"].append({"path": path, **found})
    names = watched_units(kept) - kept["units"].keys()
    kept["units"] |= {
        name: {"enabled": unit.enabled, "up": unit.up} for name, unit in units.show(names).items()
    }
    kept |= {"rollout": rollout, "whole": whole or kept["whole"]}
    atomic.write_json(paths.before, kept, mode=0o600)


def over(paths: layout.Paths, *, deploy: bool = False) -> None:
    """Forget what was kept, because all is well: a rollout, or the whole deploy."""
    kept = there(paths)
    if kept is None or deploy or not kept["whole"]:
        paths.before.unlink(missing_ok=True)


def watched_units(kept: Document) -> set[str]:
    """The units among the paths that were kept; systemd starts none of a template's own."""
    known = map(PurePosixPath, [*(file["path"] for file in kept["files"]), *kept["absent"]])
    return {
        path.name
        for path in known
        if path.parent == _UNITS and path.suffix in _KINDS and not path.stem.endswith("@")
    }


def _hot(paths: layout.Paths) -> str | None:
    """Name of the target that is up."""
    try:
        targets = config.load_host(paths.targets).targets.values()
    except errors.Problem:
        return None
    state = units.show(target.unit for target in targets)
    return next((target.name for target in targets if state[target.unit].up), None)


def _webui_image(paths: layout.Paths) -> str:
    """The image that opened Open WebUI's data last."""
    return str((atomic.read_json(paths.webui) or {}).get("image", ""))


def there(paths: layout.Paths) -> Document | None:
    """What was kept; None where nothing was, or it cannot be read."""
    found = atomic.read_json(paths.before)
    wanted = {"since", "current", "points", "files", "absent"}
    if not isinstance(found, dict) or not wanted <= found.keys():
        return None
    return {"rollout": "", "whole": False, "units": {}, "hot": None, "webui": "", **found}


def of_records(before: generations.Record, now: generations.Record) -> Document:
    """The document that leads from one record of this host back to another."""
    kept = {file["path"] for file in before["files"]}
    engine = before["engine"]
    return {
        "current": f"{engine['folder']}/current",
        "points": engine["id"],
        "files": before["files"],
        "absent": [file["path"] for file in now["files"] if file["path"] not in kept],
    }


def restore(paths: layout.Paths, kept: Document) -> None:
    """Bring files and link back, and have systemd and the gateway read them.

    Problem when that cannot be done.

    Nothing is touched where somebody else's file has come into the place of one.
    """
    refuse_foreign(paths, kept)
    try:
        for file in kept["files"]:
            there_now = _read(paths.root / file["path"].lstrip("/"))
            # A socket whose file is written anew is opened anew, and its port is anybody's between.
            if there_now is None or there_now.items() - file.items():
                write_files.place(file, paths.root)
        for path in kept["absent"]:
            (paths.root / path.lstrip("/")).unlink(missing_ok=True)
        if kept["current"] and kept["points"]:
            atomic.link(paths.root / kept["current"].lstrip("/"), kept["points"])
    except OSError as error:
        raise errors.Problem(f"{error.filename}: {error.strerror}") from error
    generations.forget_begun(paths)
    runner.must("systemctl", "daemon-reload", timeout=120)
    generation.gateway_in_force(paths)


def refuse_foreign(paths: layout.Paths, kept: Document) -> None:
    """Problem where somebody else's file is where a way back would write or remove one."""
    judge = ours.Ours(root=paths.root)
    # A way back that was cut off has brought some of them already.
    back = [file["path"] for file in kept["files"] if not _is(paths, file)]
    theirs = {path: judge.file(path) for path in (*back, *kept["absent"])}
    found = [f"{path} ({whose})" for path, whose in theirs.items() if whose]
    if found:
        raise errors.Problem(
            f"not made by Lockstep: {', '.join(found)}; nothing was changed. "
            "Remedy: move it away and try again"
        )


def _is(paths: layout.Paths, file: dict[str, str]) -> bool:
    found = _read(paths.root / file["path"].lstrip("/"))
    return found is not None and found["text"] == file["text"]


def _read(path: Path) -> dict[str, str] | None:
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
