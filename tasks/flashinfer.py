"""5. FlashInfer: three packages whose versions agree."""

from __future__ import annotations

from pyinfra.api import deploy

from tasks import run
from tasks.operations import engine


@deploy("FlashInfer")
def flashinfer() -> None:
    """Kernels for the GPU, compiled ahead."""
    this = run.current()
    if this.engine_spec:
        engine.built(
            name="Build the engine's environment: FlashInfer",
            stage="flashinfer",
            spec=this.engine_spec,
            user=this.plan.settings.service_user,
        )
