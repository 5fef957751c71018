"""The repositories of the lab's Hugging Face endpoint."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from lab.core.cache import Report, build_once, fingerprint
from lab.core.errors import LabError
from lab.hub import hub_store

_HERE = Path(__file__).parent
_SOURCES = (
    "hub_store",
    "hub_content",
    "stand_in_models",
    "tiny_model",
    "tiny_gguf",
    "safetensors",
    "gguf",
)

TINY = "lab/tiny-qwen3"
TINY_STRICT = "lab/tiny-qwen3-strict"
TINY_GGUF = "lab/tiny-qwen3-GGUF"
_DATES = ("2026-03-01T12:00:00.000Z", "2026-09-01T12:00:00.000Z")


def hub_repositories(cache: Path, report: Report) -> Path:
    """The folder with all model repositories, about 60 MB."""
    try:
        tokenizers = version("tokenizers")
    except PackageNotFoundError:
        raise LabError(
            "this Python has no 'tokenizers', which the tiny model is made with",
            "Install what the lab needs: pip install 'lockstep[lab]'",
        ) from None
    sources = [_HERE / f"{name}.py" for name in _SOURCES]
    name = fingerprint((*sources, _HERE.parent / "content" / "models", tokenizers))
    return build_once(cache / f"hub-{name}", _build, report, "model repositories")


def _build(root: Path) -> None:
    from lab.hub.stand_in_models import stand_in_models
    from lab.hub.tiny_gguf import tiny_gguf
    from lab.hub.tiny_model import tiny_model

    for model in stand_in_models():
        last = len(model.revisions) - 1
        for number, files in enumerate(model.revisions):
            hub_store.commit(
                root,
                model.name,
                files,
                f"Revision {number + 1}",
                _DATES[number],
                sha=model.commit if number == last else None,
                licence=model.licence,
            )
    for name, files in (
        (TINY, tiny_model("chatml.jinja")),
        (TINY_STRICT, tiny_model("alternating.jinja")),
        (TINY_GGUF, tiny_gguf("chatml.jinja")),
    ):
        hub_store.commit(root, name, files, "Tiny model", _DATES[0], licence="apache-2.0")
