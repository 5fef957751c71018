"""Write files atomically, after the tools that read them accepted every one.

This module is sent to a host, which may be wiped, with {"folders": [{"path", "mode", "owner",
"group"}], "files": [{"path", "text", "mode", "owner", "group", "check"}], "remove": [path],
"links": {path: target}, "adopt": [name]}.

Nothing is changed if one thing in the way is foreign and not adopted by the inventory. What was
there is noted in the journal of the generation that begins, before the first change. If a checker
refuses a file, every file that was there stays as it was. New files without a checker may be there
already then: systemd demands that a unit's script exists.
"""

from __future__ import annotations

import json
import os
import py_compile
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from lockstep.onhost.core import atomic_files, errors, layout
from lockstep.onhost.records import ownership, rollback_journal

File = dict[str, Any]
PATHS = layout.Paths()


def write_file(file: File) -> None:
    owner = (file["owner"], file["group"])
    atomic_files.write(Path(file["path"]), file["text"], mode=int(file["mode"], 8), owner=owner)


def remove_half_written_files(folders: set[str]) -> None:
    """Remove half-written files of a cut-off run; some programs read every file in a folder.

    Files being written just now stay: other programs of ours write in these folders, too.
    """
    for folder in folders:
        for path in filter(atomic_files.is_leftover, Path(folder).glob(f"{atomic_files.PREFIX}*")):
            if path.is_dir() and not path.is_symlink():
                path.rmdir()
            else:
                path.unlink(missing_ok=True)


def make_folder(folder: File) -> None:
    """Make a folder with its mode and owner. A new one has them at once, and so counts as ours."""
    path = folder["path"]
    if os.path.isdir(path):
        set_mode_and_owner(path, folder)
        return
    os.makedirs(os.path.dirname(path), exist_ok=True)
    new = tempfile.mkdtemp(prefix=atomic_files.temporary_prefix(), dir=os.path.dirname(path))
    try:
        set_mode_and_owner(new, folder)
        os.rename(new, path)
    except BaseException:
        os.rmdir(new)
        raise


def set_mode_and_owner(path: str, folder: File) -> None:
    os.chmod(path, int(folder["mode"], 8))
    shutil.chown(path, folder["owner"], folder["group"])


def checker_output(*argv: str, **environment: str) -> str:
    """Return a checker's objections to its file; "" if it accepts it."""
    result = subprocess.run(
        argv, capture_output=True, text=True, env={**os.environ, **environment}, check=False
    )
    return (result.stdout + result.stderr).strip() if result.returncode else ""


def write_checker_copies(files: list[File], check: str, folder: str) -> list[str]:
    """Write copies of the files that one checker reads, and return their paths."""
    paths = []
    for number, file in enumerate(item for item in files if item.get("check") == check):
        # Units must have their own names; other files of one name may lie in two folders.
        name = os.path.basename(file["path"])
        path = os.path.join(folder, name if check == "unit" else f"{number}-{name}")
        with open(path, "w", encoding="utf-8") as out:
            out.write(file["text"])
        os.chmod(path, 0o440)
        paths.append(path)
    return paths


# Files that refer to others of the same batch, which the checker does not look for.
_CHECKED_FIRST = ("unit", "sudoers", "caddy", "prometheus", "rules", "alertmanager")

#: Check → command that checks the file named last.
_CHECKERS = {
    "sudoers": ("visudo", "-cf"),
    "shell": ("sh", "-n"),
    "nft": ("nft", "-c", "-f"),
    "caddy": ("caddy", "adapt", "--adapter", "caddyfile", "--config"),
    # Its rules may be new too, and are checked by themselves.
    "prometheus": ("promtool", "check", "config", "--syntax-only"),
    "rules": ("promtool", "check", "rules"),
    "alertmanager": ("amtool", "check-config"),
}


def checker_objections(files: list[File]) -> list[str]:
    """Return objections of systemd, sudo, sh, nft, Caddy, Prometheus and JSON; [] for none."""
    faults = []
    with tempfile.TemporaryDirectory(prefix="lockstep-verify-") as folder:
        units = write_checker_copies(files, "unit", folder)
        if units:
            verify = ("systemd-analyze", "verify", "--man=no", "--recursive-errors=no")
            faults.append(checker_output(*verify, *units, SYSTEMD_UNIT_PATH=folder + ":"))
        # The folders that systemd gives to Caddy's unit. In a home it makes a folder .step.
        folder_variables = ("RUNTIME_DIRECTORY", "CREDENTIALS_DIRECTORY", "HOME")
        for check, argv in _CHECKERS.items():
            places = dict.fromkeys(folder_variables, folder) if check == "caddy" else {}
            for path in write_checker_copies(files, check, folder):
                faults.append(checker_output(*argv, path, **places))
        faults = [fault.replace(folder + "/", "") for fault in faults if fault]
    for file in files:
        if file.get("check") == "json":
            try:
                json.loads(file["text"])
            except ValueError as fault:
                faults.append(f"{file['path']}: not JSON: {fault}")
    return faults


def must_precede_checks(file: File) -> bool:
    """Tell whether a unit in the same batch may refer to this file and would not find it."""
    if file.get("check") in _CHECKED_FIRST:
        return False
    runs = int(file["mode"], 8) & 0o111
    return not os.access(file["path"], os.X_OK if runs else os.F_OK)


def write_requested_files(request: dict[str, Any]) -> int:
    files = request.get("files", [])
    removed_paths = request.get("remove", [])
    foreign = ownership.foreign_things(request)
    if foreign:
        print("not Lockstep's, and nothing was changed:", file=sys.stderr)
        print("\n".join(f"{name}: {owner}" for name, owner in foreign.items()), file=sys.stderr)
        return 1
    judge = ownership.Ownership(request.get("adopt", []))
    for path in [*(file["path"] for file in files), *removed_paths]:
        judge.copy_before_adoption(path)
    links = request.get("links", {})
    noted_paths = [*(file["path"] for file in files), *removed_paths, *links]
    if noted_paths:
        rollback_journal.note_before_change(PATHS, noted_paths)
    remove_half_written_files(
        {os.path.dirname(path) for path in (*(file["path"] for file in files), *links)}
    )
    for item in request.get("folders", []):
        make_folder(item)
    first = [file for file in files if must_precede_checks(file)]
    for file in first:
        write_file(file)
    faults = checker_objections(files)
    if faults:
        print("refused by its own checker; what was there stays:", file=sys.stderr)
        print("\n".join(faults), file=sys.stderr)
        return 1
    for file in files:
        if file not in first:
            write_file(file)
    for file in files:
        if file["path"].endswith(".py"):
            # Programs that only read a host write nothing there, and would compile them each time.
            py_compile.compile(file["path"], quiet=2)
    for path in removed_paths:
        if os.path.lexists(path):
            os.unlink(path)
    for path, target in links.items():
        atomic_files.replace_link(Path(path), target)
    return 0


def answer_request(request: dict[str, Any]) -> None:
    """Write the files, and exit with the code that tells whether all of them are there."""
    try:
        sys.exit(write_requested_files(request))
    except OSError as fault:
        sys.exit(f"{fault.filename2 or fault.filename}: {fault.strerror}")
    except errors.Problem as fault:
        sys.exit(str(fault))
    except LookupError as fault:
        # In the form of shutil: "no such user: 'lockstep'".
        sys.exit(fault.args[0])
