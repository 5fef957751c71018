"""The results of deploys on this host, one record per generation; the newest is the present.

usage: generations begin        note the contents on standard input: a deploy begins to bring them
       generations record       write the contents on standard input as the newest record: that
                                deploy has ended well
       generations list         JSON of all records, newest first, without the files' texts

A record is /var/lib/lockstep-deploy/generations/NNNN.json: "number", "date" (UTC), "digest" (of all
contents), "lock" (of what was resolved), "lockstep" (the version that made it), "note", and the
contents: "engine", "images", "weights", "files". A deploy that changes only the lock rewrites
"lock" of the newest one. The note of a deploy that has not ended well is begun.json beside them,
with the same keys.

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

from lockstep.onhost.core import atomic_files, errors, event_lines, layout, program_command_lines

_NAME = re.compile(r"(\d{4,})\.json")
_CONTENTS = ("engine", "images", "weights", "files")

Record = dict[str, Any]


def readable_records(paths: layout.Paths) -> list[Record]:
    """Return all readable records, newest first."""
    return list(_read_records(paths))


def newest_record(paths: layout.Paths) -> Record | None:
    """Return the newest record, or None."""
    return next(_read_records(paths), None)


def newest_number(paths: layout.Paths) -> int:
    """Return the number of the newest record, or 0."""
    return int((newest_record(paths) or {}).get("number", 0))


def _read_records(paths: layout.Paths) -> Iterator[Record]:
    record_paths = [path for path in paths.generations.glob("*.json") if _NAME.fullmatch(path.name)]
    for path in sorted(record_paths, key=lambda path: -int(path.stem)):
        if record := _read_record(path):
            yield record


def begun_record(paths: layout.Paths) -> Record | None:
    """Return the contents of a deploy that has begun and not ended well, or None."""
    return _read_record(_begun_path(paths))


def last_written_record(paths: layout.Paths) -> Record | None:
    """Return the contents that the last deploy wrote here, even if it did not end well, or None."""
    return begun_record(paths) or newest_record(paths)


def known_paths(paths: layout.Paths) -> set[str]:
    """Return the paths of all files in the records, that of a deploy that has begun included."""
    records = filter(None, (begun_record(paths), *_read_records(paths)))
    return {str(file["path"]) for record in records for file in record["files"]}


def record_begun(paths: layout.Paths, contents: Record) -> None:
    """Note the contents that a deploy is about to bring; they become a record when it ends well."""
    last = newest_record(paths) or {"number": 0, "digest": None}
    coming = last["number"] + (last["digest"] != contents["digest"])
    _write_record(_begun_path(paths), {**contents, "number": coming, "note": ""})


def remove_begun_record(paths: layout.Paths) -> None:
    """Remove that note, because the deploy has ended well or was rolled back."""
    _begun_path(paths).unlink(missing_ok=True)


def _begun_path(paths: layout.Paths) -> Path:
    return paths.generations / "begun.json"


def _write_record(path: Path, record: Record) -> Record:
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    new_record = {
        "number": record["number"],
        "date": record.get("date", now),
        "digest": record["digest"],
        "lock": record.get("lock"),
        "lockstep": record.get("lockstep", ""),
        "note": record["note"],
        **{key: record[key] for key in _CONTENTS},
    }
    atomic_files.write_json(path, new_record, mode=0o600)
    return new_record


def _read_record(path: Path) -> Record | None:
    record = atomic_files.read_json(path)
    if isinstance(record, dict) and {"number", "digest", *_CONTENTS} <= record.keys():
        return record
    return None


def distinct_records(newest_first: list[Record]) -> list[Record]:
    """Return the newest record of each contents, so that a rollback adds no third one."""
    record_by_digest: dict[str, Record] = {}
    for record in newest_first:
        record_by_digest.setdefault(record["digest"], record)
    return list(record_by_digest.values())


def has_readable_record(paths: layout.Paths, number: int) -> bool:
    """Tell whether the record of that number is readable."""
    return any(record["number"] == number for record in _read_records(paths))


def add_record(paths: layout.Paths, contents: Record, note: str = "") -> Record:
    """Make `contents` the newest record, unless it is that already; return the newest record."""
    last = newest_record(paths)
    again = last is not None and last["digest"] == contents["digest"]
    if last is not None and again:
        new_record = last
        if last.get("lock") != contents.get("lock"):
            kept_fields = {key: last.get(key, "") for key in ("number", "date", "note")}
            new_record = _write_record(
                _record_path(paths, last["number"]), {**contents, **kept_fields}
            )
    else:
        number = (last["number"] if last else 0) + 1
        fresh = {key: contents[key] for key in ("digest", *_CONTENTS)}
        made_by = {"lock": contents.get("lock"), "lockstep": contents.get("lockstep", "")}
        whole = {**fresh, **made_by, "number": number, "note": note}
        new_record = _write_record(_record_path(paths, number), whole)
    remove_begun_record(paths)
    return new_record


def _record_path(paths: layout.Paths, number: int) -> Path:
    return paths.generations / f"{number:04}.json"


def record_rollback(paths: layout.Paths, since: int, why: str) -> None:
    """Make record `since` the newest again, after the rollback of a deploy that wrote one."""
    all_records = readable_records(paths)
    was = next(
        (earlier_record for earlier_record in all_records[1:] if earlier_record["number"] == since),
        None,
    )
    if was is not None:
        note = f"returned from generation {all_records[0]['number']}"
        add_record(paths, was, note + (f": {why}" if why else ""))


def main(argv: list[str], paths: layout.Paths | None = None) -> int:
    """Run the command line; see the module's docstring."""
    paths = paths or layout.Paths()
    if argv == ["list"]:
        listing = [
            {**item, "files": [file["path"] for file in item["files"]]}
            for item in readable_records(paths)
        ]
        print(json.dumps(listing, indent=1))
        return errors.EXIT_DONE
    if argv not in (["record"], ["begin"]):
        return program_command_lines.print_usage(__doc__)
    try:
        contents = json.load(sys.stdin)
    except ValueError as error:
        raise errors.Problem(f"standard input: not JSON: {error}", errors.EXIT_USAGE) from error
    lacking = [key for key in ("digest", *_CONTENTS) if key not in contents]
    if lacking:
        raise errors.Problem(f"standard input lacks {', '.join(lacking)}", errors.EXIT_USAGE)
    if argv == ["begin"]:
        record_begun(paths, contents)
        return errors.EXIT_DONE
    event_lines.say(f"generation {add_record(paths, contents)['number']}")
    return errors.EXIT_DONE
