"""4. vLLM, the patched fork at a commit or a release, and its newer dependencies."""

from __future__ import annotations

from pyinfra.api import deploy

from tasks import run
from tasks.operations import engine


@deploy("vLLM")
def vllm() -> None:
    """The engine, transformers and mistral_common."""
    this = run.current()
    if this.engine_spec:
        engine.built(
            name="Build the engine's environment: vLLM",
            stage="vllm",
            spec=this.engine_spec,
            user=this.plan.settings.service_user,
        )
