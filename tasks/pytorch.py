"""3. PyTorch's CUDA 13 build in its own environment (article 003)."""

from __future__ import annotations

from pyinfra.api import deploy

from tasks import run
from tasks.operations import engine


@deploy("PyTorch")
def pytorch() -> None:
    """The venv of this generation, and torch with torchvision from PyTorch's own index."""
    this = run.current()
    if this.engine_spec:
        engine.built(
            name="Build the engine's environment: PyTorch",
            stage="pytorch",
            spec=this.engine_spec,
            user=this.plan.settings.service_user,
        )
