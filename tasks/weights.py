"""Models and drafts at their revisions, in the Hugging Face cache."""

from __future__ import annotations

from pyinfra.api import deploy

from lockstep.system.folders import HUB_TOKEN
from lockstep.tasks.operations import images_and_weights
from lockstep.tasks.run import run_state


@deploy("Weights")
def weights() -> None:
    """Fetch, verify and repair the weights."""
    settings = run_state.current_desired_state().plan.settings
    images_and_weights.fetch_weights(
        name="Fetch and verify weights",
        user=settings.service_user,
        token_file=HUB_TOKEN,
        proxy=bool(settings.proxy.environment()),
    )
