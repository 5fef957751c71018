"""What the engine inside an image said about its recipes, as `image_check` keeps it."""

from __future__ import annotations

import json
from pathlib import Path


def unanswered(folder: Path, image: str | None) -> str | None:
    """Why the engine could not be asked; None where it answered, or was never asked.

    Args:
        folder: Of the records.
        image: REPOSITORY@sha256:DIGEST, or None: no image.
    """
    if image is None:
        return None
    path = folder / (image.partition("@")[2].replace(":", "-") + ".json")
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        return str(record["unanswered"]) if record["unanswered"] else None
    except (OSError, ValueError, KeyError, TypeError):
        return None
