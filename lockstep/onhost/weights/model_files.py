"""The files of a model's weights on this host, as the file system has them."""

from __future__ import annotations

import glob
import re
from pathlib import Path

from lockstep.onhost.core import config, layout
from lockstep.onhost.weights import weights_spec

_GGUF_PART = re.compile(r"\d{5}(-of-\d{5}\.gguf)$")


def model_files(model: config.Model, paths: layout.Paths) -> list[Path]:
    """Return the real paths of a model's files (checkpoint, draft), each once.

    The hub's cache has links to files by content. [] for what is not here or not known.
    """
    files = {
        file.resolve(): None
        for checkpoint in model.weights
        for file in _files_of_checkpoint(_checkpoint_path(checkpoint, paths))
    }
    return list(files)


def _checkpoint_path(checkpoint: str, paths: layout.Paths) -> Path | None:
    if checkpoint.startswith("/"):
        return paths.root / checkpoint.lstrip("/")
    try:
        spec = weights_spec.parse_spec(paths.weights_list.read_text(encoding="utf-8"))
    except (OSError, weights_spec.WeightsSpecError):
        return None
    repositories = (part for part in spec.repositories if part.model == checkpoint)
    return next(map(spec.model_path, repositories), None)


def _files_of_checkpoint(path: Path | None) -> list[Path]:
    if path is None:
        return []
    # An engine is given the first part of a file alone.
    parts = (part for part in path.parent.glob(_GGUF_PART.sub(r"*\1", glob.escape(path.name))))
    found_paths = sorted(path.rglob("*")) if path.is_dir() else sorted(parts)
    return [found_path for found_path in found_paths if found_path.is_file()]
