"""Looks for the model's files where a real engine would look, and refuses as it would."""

from __future__ import annotations

import os
from pathlib import Path


class MissingWeights(Exception):
    """The model cannot be loaded; the text says which file is missing where."""


def hub_cache() -> Path:
    """The Hugging Face cache, from the variables that huggingface_hub reads."""
    if cache := os.environ.get("HF_HUB_CACHE") or os.environ.get("HUGGINGFACE_HUB_CACHE"):
        return Path(cache)
    home = Path(os.environ.get("HOME") or "/root") / ".cache" / "huggingface"
    return Path(os.environ.get("HF_HOME") or home) / "hub"


def snapshot(model: str, revision: str | None) -> Path:
    """The folder of a model: itself a folder, or its snapshot in the cache."""
    if Path(model).is_absolute() or Path(model).is_dir():
        if not Path(model).is_dir():
            raise MissingWeights(f"{model} is not a folder")
        return Path(model)
    repository = hub_cache() / f"models--{model.replace('/', '--')}"
    revision_name = revision or "main"
    reference = repository / "refs" / revision_name
    commit = reference.read_text().strip() if reference.is_file() else revision_name
    folder = repository / "snapshots" / commit
    if not folder.is_dir():
        raise MissingWeights(
            f"cannot find revision {revision_name} of {model} in {hub_cache()}, and the stand-in "
            "does not "
            "download"
        )
    return folder


def shards(folder: Path) -> list[Path]:
    """The weight files of a snapshot, none of them empty."""
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise MissingWeights(f"no *.safetensors in {folder}")
    for file in files:
        if not file.is_file() or file.stat().st_size == 0:
            raise MissingWeights(f"{file} is a broken link or empty")
    return files


#: Names whose configuration SGLang makes from params.json (#20708, 2026-03-18; 0.5.10 and 0.5.23).
NATIVE = ("mistral-large-3", "mistral-small-4", "leanstral")


def _require_old_format(model: str, folder: Path) -> None:
    """SGLang between 2026-03-18 and 2026-03-30 loads the weights as Hugging Face's in two cases.

    For a repository's id it asks the hub for the list of files, and offline there is none. The
    releases after that (0.5.10) do the same.
    """
    if not Path(model).is_dir() or (folder / "config.json").is_file():
        raise MissingWeights(
            f"{model}: weights in Mistral's names were loaded under Hugging Face's: w_kc is None"
        )


def require(
    engine: str,
    model: str,
    revision: str | None,
    draft: str | None,
    *,
    old_mistral_format: bool = False,
) -> int:
    """The number of weight files of model and draft; ``MissingWeights`` when they cannot load.

    vLLM accepts Mistral's own params.json, SGLang only under names that it knows.
    """
    folder = snapshot(model, revision)
    if engine == "sglang":
        native = any(name in model.lower() for name in NATIVE)
        for name in ("params.json",) if native else ("config.json", "tokenizer.json"):
            if not (folder / name).is_file():
                raise MissingWeights(f"{model} has no {name} in {folder}")
        if native and old_mistral_format:
            _require_old_format(model, folder)
    if engine == "vllm" and not any(
        (folder / name).is_file() for name in ("config.json", "params.json")
    ):
        raise MissingWeights(f"{model} has neither config.json nor params.json in {folder}")
    count = len(shards(folder))
    return count + (len(shards(snapshot(draft, None))) if draft else 0)
