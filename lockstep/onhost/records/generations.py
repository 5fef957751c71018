"""The results of deploys on this host, one record per generation; the newest is the present.

usage: generations begin        note the contents on standard input: a deploy begins to bring them
       generations record       write the contents on standard input as the newest record: that
                                deploy has ended well
       generations list         JSON of all records, newest first, without the files' texts

A record is /var/lib/lockstep-deploy/generations/NNNN.json: "number", "date" (UTC), "digest" (of
all contents), "lock" (of what was resolved), "lockstep" (the version that made it), "note", and
the contents: "engine", "images", "weights", "files". A deploy that changes only the lock rewrites
"lock" of the newest one.
The note of a deploy that has not ended well is begun.json beside them, with the same keys.

exit codes: 0 done, 1 failed, 2 wrong use
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from lockstep.onhost.core import atomic, errors, layout, output, program

_NAME = re.compile(r"(\d{4,})\.json")
_CONTENTS = ("engine", "images", "weights", "files")

Record = dict[str, Any]


def records(paths: layout.Paths) -> list[Record]:
    """All records, newest first; what cannot be read is no record."""
    return list(_read(paths))


def newest(paths: layout.Paths) -> Record | None:
    """The newest record; None without one."""
    return next(_read(paths), None)


def number(paths: layout.Paths) -> int:
    """The number of the newest record; 0 without one."""
    return int((newest(paths) or {}).get("number", 0))


def _read(paths: layout.Paths) -> Iterator[Record]:
    named = [path for path in paths.generations.glob("*.json") if _NAME.fullmatch(path.name)]
    for path in sorted(named, key=lambda path: -int(path.stem)):
        if record := _record(path):
            yield record


def begun(paths: layout.Paths) -> Record | None:
    """What a deploy began to bring and has not ended well; None where there is no such deploy."""
    return _record(_begun(paths))


def deployed(paths: layout.Paths) -> Record | None:
    """What a deploy wrote here last, whether it has ended well or not; None where none did."""
    return begun(paths) or newest(paths)


def known(paths: layout.Paths) -> list[Record]:
    """All that deploys brought here or began to, the newest first."""
    unfinished = begun(paths)
    return [*([unfinished] if unfinished else []), *_read(paths)]


def begin(paths: layout.Paths, contents: Record) -> None:
    """Note what a deploy is about to bring: until it has ended well, that is no record."""
    last = newest(paths) or {"number": 0, "digest": None}
    coming = last["number"] + (last["digest"] != contents["digest"])
    _write(_begun(paths), {**contents, "number": coming, "note": ""})


def forget_begun(paths: layout.Paths) -> None:
    """The deploy has ended well, or this host is as it was before it."""
    _begun(paths).unlink(missing_ok=True)


def _begun(paths: layout.Paths) -> Path:
    return paths.generations / "begun.json"


def _write(path: Path, record: Record) -> Record:
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    written = {
        "number": record["number"],
        "date": record.get("date", now),
        "digest": record["digest"],
        "lock": record.get("lock"),
        "lockstep": record.get("lockstep", ""),
        "note": record["note"],
        **{key: record[key] for key in _CONTENTS},
    }
    atomic.write_json(path, written, mode=0o600)
    return written


def _record(path: Path) -> Record | None:
    record = atomic.read_json(path)
    if isinstance(record, dict) and {"number", "digest", *_CONTENTS} <= record.keys():
        return record
    return None


def distinct(newest_first: list[Record]) -> list[Record]:
    """The newest record of each contents: a host that went back has not become a third thing."""
    seen: dict[str, Record] = {}
    for record in newest_first:
        seen.setdefault(record["digest"], record)
    return list(seen.values())


def previous(paths: layout.Paths) -> Record | None:
    """What this host was before it became what it is; None where there is no such record."""
    return next(iter(distinct(records(paths))[1:]), None)


def record(paths: layout.Paths, contents: Record, note: str = "") -> Record:
    """Make `contents` the newest record, unless it is that already; the newest record."""
    last = newest(paths)
    again = last is not None and last["digest"] == contents["digest"]
    if last is not None and again:
        written = last
        if last.get("lock") != contents.get("lock"):
            kept = {key: last.get(key, "") for key in ("number", "date", "note")}
            written = _write(_numbered(paths, last["number"]), {**contents, **kept})
    else:
        number = (last["number"] if last else 0) + 1
        fresh = {key: contents[key] for key in ("digest", *_CONTENTS)}
        made_by = {"lock": contents.get("lock"), "lockstep": contents.get("lockstep", "")}
        whole = {**fresh, **made_by, "number": number, "note": note}
        written = _write(_numbered(paths, number), whole)
    forget_begun(paths)
    return written


def _numbered(paths: layout.Paths, number: int) -> Path:
    return paths.generations / f"{number:04}.json"


def returned(paths: layout.Paths, since: int, why: str) -> None:
    """Make record `since` the newest again: the deploy that this host returned from wrote one."""
    found = records(paths)
    was = next((each for each in found[1:] if each["number"] == since), None)
    if was is not None:
        record(paths, was, f"returned from generation {found[0]['number']}: {why}")


def main(argv: list[str], paths: layout.Paths | None = None) -> int:
    """Command line; see the module's docstring."""
    paths = paths or layout.Paths()
    if argv == ["list"]:
        shown = [
            {**item, "files": [file["path"] for file in item["files"]]} for item in records(paths)
        ]
        print(json.dumps(shown, indent=1))
        return errors.EXIT_DONE
    if argv not in (["record"], ["begin"]):
        return program.usage(__doc__)
    try:
        contents = json.load(sys.stdin)
    except ValueError as error:
        raise errors.Problem(f"standard input: not JSON: {error}", errors.EXIT_USAGE) from error
    lacking = [key for key in ("digest", *_CONTENTS) if key not in contents]
    if lacking:
        raise errors.Problem(f"standard input lacks {', '.join(lacking)}", errors.EXIT_USAGE)
    if argv == ["begin"]:
        begin(paths, contents)
        return errors.EXIT_DONE
    output.say(f"generation {record(paths, contents)['number']}")
    return errors.EXIT_DONE
