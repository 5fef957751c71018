"""Write files atomically, after the tools that read them accepted every one.

It is sent to a host, which may be wiped, and is asked {"folders": [{"path", "mode", "owner",
"group"}], "files": [{"path", "text", "mode", "owner", "group", "check"}], "remove": [path],
"links": {path: target}, "adopt": [name]}.

Nothing is changed where one thing in the way is not Lockstep's, nor adopted by the inventory.
Where a checker refuses a file, every file that was there stays as it was. New files that no checker
looks at may be there already then: systemd demands that a unit's script exists.
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

from lockstep.onhost.core import atomic
from lockstep.onhost.records import ours

File = dict[str, Any]


def place(file: File, root: Path = Path("/")) -> None:
    owner = (file["owner"], file["group"])
    path = root / file["path"].lstrip("/")
    atomic.write(path, file["text"], mode=int(file["mode"], 8), owner=owner)


def sweep(folders: set[str]) -> None:
    """Remove what a run that was cut off left half-written; some programs read every file.

    What a program is writing just now stays: other programs of ours write in these folders, too.
    """
    for folder in folders:
        for path in filter(atomic.is_left, Path(folder).glob(f"{atomic.PREFIX}*")):
            if path.is_dir() and not path.is_symlink():
                path.rmdir()
            else:
                path.unlink(missing_ok=True)


def make(folder: File) -> None:
    """A folder with its mode and owner. A new one has them at once, and so is known as ours."""
    path = folder["path"]
    if os.path.isdir(path):
        own(path, folder)
        return
    os.makedirs(os.path.dirname(path), exist_ok=True)
    new = tempfile.mkdtemp(prefix=atomic.unfinished(), dir=os.path.dirname(path))
    try:
        own(new, folder)
        os.rename(new, path)
    except BaseException:
        os.rmdir(new)
        raise


def own(path: str, folder: File) -> None:
    os.chmod(path, int(folder["mode"], 8))
    shutil.chown(path, folder["owner"], folder["group"])


def said(*argv: str, **environment: str) -> str:
    """What a checker says against its file; "" when it accepts it."""
    done = subprocess.run(
        argv, capture_output=True, text=True, env={**os.environ, **environment}, check=False
    )
    return (done.stdout + done.stderr).strip() if done.returncode else ""


def candidates(files: list[File], check: str, folder: str) -> list[str]:
    """Copies of the files that one checker looks at."""
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


# What names things of the same batch, and the checker does not look for.
_CHECKED_FIRST = ("unit", "sudoers", "caddy", "prometheus", "rules", "alertmanager")

#: Check → what looks at one file that is named last.
_CHECKERS = {
    "sudoers": ("visudo", "-cf"),
    "shell": ("sh", "-n"),
    "nft": ("nft", "-c", "-f"),
    "caddy": ("caddy", "adapt", "--adapter", "caddyfile", "--config"),
    # Its rules may be new too, and are looked at by themselves.
    "prometheus": ("promtool", "check", "config", "--syntax-only"),
    "rules": ("promtool", "check", "rules"),
    "alertmanager": ("amtool", "check-config"),
}


def refusals(files: list[File]) -> list[str]:
    """What systemd, sudo, sh, nft, Caddy, Prometheus and JSON say; [] when all are accepted."""
    faults = []
    with tempfile.TemporaryDirectory(prefix="lockstep-verify-") as folder:
        units = candidates(files, "unit", folder)
        if units:
            verify = ("systemd-analyze", "verify", "--man=no", "--recursive-errors=no")
            faults.append(said(*verify, *units, SYSTEMD_UNIT_PATH=folder + ":"))
        # The folders that systemd gives to Caddy's unit. In a home it makes a folder .step.
        given = ("RUNTIME_DIRECTORY", "CREDENTIALS_DIRECTORY", "HOME")
        for check, argv in _CHECKERS.items():
            places = dict.fromkeys(given, folder) if check == "caddy" else {}
            for path in candidates(files, check, folder):
                faults.append(said(*argv, path, **places))
        faults = [fault.replace(folder + "/", "") for fault in faults if fault]
    for file in files:
        if file.get("check") == "json":
            try:
                json.loads(file["text"])
            except ValueError as fault:
                faults.append(f"{file['path']}: not JSON: {fault}")
    return faults


def must_come_first(file: File) -> bool:
    """Whether a unit in the same batch may refer to this file and would not find it."""
    if file.get("check") in _CHECKED_FIRST:
        return False
    runs = int(file["mode"], 8) & 0o111
    return not os.access(file["path"], os.X_OK if runs else os.F_OK)


def write(asked: dict[str, Any]) -> int:
    files = asked.get("files", [])
    removed = asked.get("remove", [])
    foreign = ours.intruders(asked)
    if foreign:
        print("not Lockstep's, and nothing was changed:", file=sys.stderr)
        print("\n".join(f"{what}: {whose}" for what, whose in foreign.items()), file=sys.stderr)
        return 1
    judge = ours.Ours(asked.get("adopt", []))
    for path in [*(file["path"] for file in files), *removed]:
        judge.keep_adopted(path)
    links = asked.get("links", {})
    sweep({os.path.dirname(path) for path in (*(file["path"] for file in files), *links)})
    for item in asked.get("folders", []):
        make(item)
    first = [file for file in files if must_come_first(file)]
    for file in first:
        place(file)
    faults = refusals(files)
    if faults:
        print("refused by its own checker; what was there stays:", file=sys.stderr)
        print("\n".join(faults), file=sys.stderr)
        return 1
    for file in files:
        if file not in first:
            place(file)
    for file in files:
        if file["path"].endswith(".py"):
            # Who only reads a host writes nothing there, and would compile them each time.
            py_compile.compile(file["path"], quiet=2)
    for path in removed:
        if os.path.lexists(path):
            os.unlink(path)
    for path, target in links.items():
        atomic.link(Path(path), target)
    return 0


def take(asked: dict[str, Any]) -> None:
    """Write them, and end with the code that says whether all of them are there."""
    try:
        sys.exit(write(asked))
    except OSError as fault:
        sys.exit(f"{fault.filename}: {fault.strerror}")
    except LookupError as fault:
        # As shutil says it: "no such user: 'lockstep'".
        sys.exit(fault.args[0])
