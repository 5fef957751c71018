"""The results of deploys on this host, one record per generation; the newest is the present.

usage: generations record       write the contents on standard input as the newest record
       generations list         JSON of all records, newest first, without the files' texts

A record is /var/lib/lockstep-deploy/generations/NNNN.json: "number", "date" (UTC), "digest" (of
all contents), "lock" (of what was resolved), "note", and the contents: "engine", "images",
"weights", "files". A deploy that changes only the lock rewrites "lock" of the newest one.

exit codes: 0 done, 1 failed, 2 wrong use
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
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
        record = atomic.read_json(path)
        if isinstance(record, dict) and {"number", "digest", *_CONTENTS} <= record.keys():
            yield record


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
    if last is not None and again and last.get("lock") == contents.get("lock"):
        return last
    number = (last["number"] if last else 0) + (not again)
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    written = {
        "number": number,
        "date": last["date"] if last and again else now,
        "digest": contents["digest"],
        "lock": contents.get("lock"),
        "note": last.get("note", "") if last and again else note,
        **{key: contents[key] for key in _CONTENTS},
    }
    atomic.write_json(paths.generations / f"{number:04}.json", written, mode=0o600)
    return written


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
    if argv != ["record"]:
        return program.usage(__doc__)
    try:
        contents = json.load(sys.stdin)
    except ValueError as error:
        raise errors.Problem(f"standard input: not JSON: {error}", errors.EXIT_USAGE) from error
    lacking = [key for key in ("digest", *_CONTENTS) if key not in contents]
    if lacking:
        raise errors.Problem(f"standard input lacks {', '.join(lacking)}", errors.EXIT_USAGE)
    output.say(f"generation {record(paths, contents)['number']}")
    return errors.EXIT_DONE
