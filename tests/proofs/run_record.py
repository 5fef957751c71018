"""Runs of a long proof in a file, a line of JSON for each, so that a later call goes on there."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")


def read(file: Path | None, kind: type[T]) -> list[T]:
    """Read the recorded runs, in order; none without a file."""
    lines = file.read_text().splitlines() if file and file.exists() else []
    return [kind(**json.loads(line)) for line in lines]


def add(file: Path | None, run: Any) -> None:
    """Add one more run at the end."""
    if file:
        with file.open("a") as lines:
            lines.write(json.dumps(asdict(run)) + "\n")
