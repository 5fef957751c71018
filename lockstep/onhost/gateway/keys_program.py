"""Show the keys of this host's gateway, or take changes of them over.

usage: gateway-keys list
       gateway-keys take

`list` prints keys.json and what each person has asked for, as one JSON document. `take` reads
entries in the form of keys.json from standard input. Each replaces an older entry of its person,
and a later one that is here stays; then it prints what `list` does. The gateway sees a change with
the next request. Each change is a line in the journal. No key is here, only its digest.

exit codes: 0 done, 1 a file cannot be read or written, 2 wrong use
"""

from __future__ import annotations

import fcntl
import grp
import json
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from lockstep.onhost.core import atomic_files, errors, program_command_lines
from lockstep.onhost.gateway import keys, usage_totals
from lockstep.onhost.records import audit_log


def main(argv: list[str], path: Path = keys.PATH, totals: Path = usage_totals.PATH) -> int:
    """Command line; see the module's docstring."""
    parser = program_command_lines.parser(__doc__)
    parser.add_argument("action", choices=("list", "take"))
    options = parser.parse_args(argv)
    try:
        if options.action == "take":
            new = keys.entries_of_text(sys.stdin.read(), "standard input")
            with _hold_keys_lock(path):
                entries = merge_entries(path, new)
        else:
            entries = _read_entries(path)
    except keys.BrokenKeys as error:
        raise errors.Problem(str(error)) from error
    except OSError as error:
        raise errors.Problem(f"{error.filename}: {error.strerror}") from error
    usage_by_person = {
        name: asdict(total) for name, total in usage_totals.read_totals_by_person(totals).items()
    }
    print(json.dumps({**keys.entries_document(entries), "usage": usage_by_person}))
    return errors.EXIT_DONE


def merge_entries(path: Path, new: list[keys.Entry]) -> list[keys.Entry]:
    """Add `new` entries to the file and return all of it; newer ones in the file stay.

    Raises:
        keys.BrokenKeys: keys.json cannot be used.
        OSError: From the file system.
    """
    present_entries = {entry.person: entry for entry in _read_entries(path)}
    changed_entries = [
        entry
        for entry in new
        if entry.person not in present_entries
        or entry.age_sort_key > present_entries[entry.person].age_sort_key
    ]
    if changed_entries:
        present_entries |= {entry.person: entry for entry in changed_entries}
        document = keys.entries_document(present_entries.values())
        atomic_files.write_json(path, document, mode=0o640, owner=("root", keys.ACCOUNT))
        for entry in changed_entries:
            account = os.environ.get("SUDO_USER", "root")
            audit_log.add_audit_line(account, f"key of {entry.person}", _change_text(entry))
    return list(present_entries.values())


def _read_entries(path: Path) -> list[keys.Entry]:
    try:
        return keys.entries_of_text(path.read_text(encoding="utf-8"), str(path))
    except FileNotFoundError:
        return []
    except UnicodeDecodeError as error:
        raise keys.BrokenKeys(f"{path}: {errors.why(error)}") from error


def _change_text(entry: keys.Entry) -> str:
    """Describe one change in words."""
    if entry.sha256 is None:
        return "revoked"
    return f"added, {entry.role}{f', until {entry.until}' if entry.until else ''}"


@contextmanager
def _hold_keys_lock(path: Path) -> Iterator[None]:
    """Hold the lock of keys.json for changes; make its folder if missing."""
    folder = path.parent
    try:
        grp.getgrnam(keys.ACCOUNT)
    except LookupError as error:
        raise errors.Problem(f"no gateway is here: {error.args[0]}. Deploy first") from error
    folder.mkdir(mode=0o750, exist_ok=True)
    shutil.chown(folder, "root", keys.ACCOUNT)
    folder.chmod(0o750)
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
