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

from lockstep.onhost.core import atomic, errors, program
from lockstep.onhost.gateway import keys, usage
from lockstep.onhost.records import audit


def main(argv: list[str], path: Path = keys.PATH, totals: Path = usage.PATH) -> int:
    """Command line; see the module's docstring."""
    parser = program.parser(__doc__)
    parser.add_argument("action", choices=("list", "take"))
    options = parser.parse_args(argv)
    try:
        if options.action == "take":
            new = keys.loaded(sys.stdin.read(), "standard input")
            with _alone(path):
                entries = take(path, new)
        else:
            entries = _read(path)
    except keys.Broken as error:
        raise errors.Problem(str(error)) from error
    except OSError as error:
        raise errors.Problem(f"{error.filename}: {error.strerror}") from error
    used = {name: asdict(total) for name, total in usage.read(totals).items()}
    print(json.dumps({**keys.document(entries), "usage": used}))
    return errors.EXIT_DONE


def take(path: Path, new: list[keys.Entry]) -> list[keys.Entry]:
    """Every entry after the newer ones of `new` were taken over.

    Raises:
        keys.Broken: keys.json cannot be used.
        OSError: as the file system gives it.
    """
    here = {entry.person: entry for entry in _read(path)}
    changed = [
        entry for entry in new if entry.person not in here or entry.age > here[entry.person].age
    ]
    if changed:
        here |= {entry.person: entry for entry in changed}
        document = keys.document(here.values())
        atomic.write_json(path, document, mode=0o640, owner=("root", keys.ACCOUNT))
        for entry in changed:
            who = os.environ.get("SUDO_USER", "root")
            audit.note(who, f"key of {entry.person}", _told(entry))
    return list(here.values())


def _read(path: Path) -> list[keys.Entry]:
    try:
        return keys.loaded(path.read_text(encoding="utf-8"), str(path))
    except FileNotFoundError:
        return []
    except UnicodeDecodeError as error:
        raise keys.Broken(f"{path}: {errors.why(error)}") from error


def _told(entry: keys.Entry) -> str:
    """One change in words."""
    if entry.sha256 is None:
        return "revoked"
    return f"added, {entry.role}{f', until {entry.until}' if entry.until else ''}"


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Make the folder of keys.json where it is missing, and change it alone."""
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
