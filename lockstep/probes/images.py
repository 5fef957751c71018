"""Which images are here. Argument: {"images": ["REPOSITORY@sha256:…"]}; one `docker inspect`."""

from __future__ import annotations

import json
import subprocess
from typing import Any


def main(asked: dict[str, Any]) -> dict[str, str]:
    done = subprocess.run(
        ["docker", "image", "inspect", *asked["images"]],
        capture_output=True,
        text=True,
        check=False,
    )
    try:
        found = json.loads(done.stdout or "[]")
    except ValueError:
        found = []
    present: dict[str, str] = {}
    for image in found:
        for reference in image.get("RepoDigests") or []:
            present[reference] = image.get("Architecture")
    return present
