"""6. The engine checks every recipe, without a GPU, before anything uses it."""

from __future__ import annotations

from pyinfra.api import deploy

from lockstep.system.folders import HUB_TOKEN
from tasks import run
from tasks.operations import engine


@deploy("Engine check")
def engine_check() -> None:
    """CUDA build, FlashInfer's versions, every recipe's flags, the classes of its checkpoint."""
    this = run.current()
    if this.engine_spec:
        engine.checked(
            name="Ask the engine about its build and every recipe",
            spec=this.engine_spec,
            user=this.plan.settings.service_user,
            token_file=HUB_TOKEN,
            proxy=bool(this.plan.settings.proxy.environment()),
        )
