"""The engine's environment in three stages, and its check before anything uses it."""

from __future__ import annotations

from pyinfra.api import deploy

from lockstep.tasks.operations import venv_engine
from lockstep.tasks.run import run_state


@deploy("PyTorch")
def pytorch() -> None:
    """Make this deploy's venv with torch's CUDA 13 build and torchvision (article 003)."""
    _build("PyTorch", "pytorch")


@deploy("vLLM")
def vllm() -> None:
    """Install vLLM (the patched fork at a commit, or a release), transformers, mistral_common."""
    _build("vLLM", "vllm")


@deploy("FlashInfer")
def flashinfer() -> None:
    """Install kernels for the GPU, compiled ahead: three packages whose versions agree."""
    _build("FlashInfer", "flashinfer")


def _build(title: str, stage: str) -> None:
    if run_state.current_desired_state().engine_spec:
        venv_engine.build_stage(name=f"Build the engine's environment: {title}", stage=stage)


@deploy("Engine check")
def check() -> None:
    """Check CUDA build, FlashInfer, recipes' flags, checkpoint classes, parts and kernels."""
    if run_state.current_desired_state().engine_spec:
        venv_engine.check(name="Ask the engine about its build and every recipe")
