"""3. to 6. The engine's environment in three stages, and its check before anything uses it."""

from __future__ import annotations

from pyinfra.api import deploy

from lockstep.tasks import run
from lockstep.tasks.operations import engine


@deploy("PyTorch")
def pytorch() -> None:
    """The venv of this generation, and torch's CUDA 13 build with torchvision (article 003)."""
    _built("PyTorch", "pytorch")


@deploy("vLLM")
def vllm() -> None:
    """The patched fork at a commit or a release, transformers and mistral_common."""
    _built("vLLM", "vllm")


@deploy("FlashInfer")
def flashinfer() -> None:
    """Kernels for the GPU, compiled ahead: three packages whose versions agree."""
    _built("FlashInfer", "flashinfer")


def _built(title: str, stage: str) -> None:
    if run.current().engine_spec:
        engine.built(name=f"Build the engine's environment: {title}", stage=stage)


@deploy("Engine check")
def checked() -> None:
    """CUDA build, FlashInfer, every recipe's flags, its checkpoint's classes, parts and kernels."""
    if run.current().engine_spec:
        engine.checked(name="Ask the engine about its build and every recipe")
