"""The venv engine's environment. Argument: {"home", "current", "images": {name: digest}}.

Answers: installed distributions of the generation under `home`, commit of its source, origin of
what came from git, whether an installation was cut off, the record of its check, where `current`
points, and each image's record.
"""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
from typing import Any

RECORDS = "/var/cache/lockstep/images"


def read(path: str) -> Any:
    try:
        with open(path, encoding="utf-8") as text:
            return json.load(text)
    except (OSError, ValueError):
        return None


def site_packages(venv: str) -> tuple[str | None, str]:
    lib = os.path.join(venv, "lib")
    for python in sorted(os.listdir(lib)) if os.path.isdir(lib) else []:
        folder = os.path.join(lib, python, "site-packages")
        if os.path.isdir(folder):
            return python.removeprefix("python"), folder
    return None, ""


def environment(venv: str) -> dict[str, Any]:
    python, folder = site_packages(venv)
    found: dict[str, str] = {}
    origins: dict[str, Any] = {}
    for entry in os.listdir(folder) if folder else []:
        if not entry.endswith(".dist-info"):
            continue
        # An install that was cut off leaves a metadata folder without RECORD.
        if not os.path.exists(os.path.join(folder, entry, "RECORD")):
            continue
        name, _, version = entry[: -len(".dist-info")].partition("-")
        name = name.lower().replace("_", "-").replace(".", "-")
        # What stands there twice has no version that anybody could rely on.
        found[name] = f"{found[name]} and {version}" if name in found else version
        origin = read(os.path.join(folder, entry, "direct_url.json"))
        if origin:
            origins[name] = {
                "url": origin.get("url"),
                "editable": bool((origin.get("dir_info") or {}).get("editable")),
            }
    return {"python": python, "distributions": found, "origins": origins}


def git(source: str, *argv: str) -> str | None:
    if not os.path.isdir(source):
        return None
    done = subprocess.run(
        ["git", "-c", f"safe.directory={source}", "-C", source, *argv],
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout.strip() if done.returncode == 0 else None


def unfinished(mark: str) -> bool:
    """Whether an installation was cut off: it left its mark, and nobody holds the lock on it."""
    try:
        with open(mark, encoding="utf-8") as held:
            fcntl.flock(held, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def main(asked: dict[str, Any]) -> dict[str, Any]:
    home = asked["home"]
    current = asked["current"]
    return {
        "environment": environment(os.path.join(home, "venv")),
        "commits": {
            name: git(os.path.join(home, name), "rev-parse", "HEAD")
            for name in ("vllm", "transformers")
        },
        "unfinished": unfinished(os.path.join(home, "unfinished")),
        "check": read(os.path.join(home, "check.json")),
        "current": os.readlink(current) if os.path.islink(current) else None,
        "images": {
            name: read(os.path.join(RECORDS, digest.replace(":", "-") + ".json"))
            for name, digest in asked.get("images", {}).items()
        },
    }
