"""Engine and Open WebUI images, by digest."""

from __future__ import annotations

from pyinfra.api import deploy

from lockstep.tasks.operations import image_recipe_check, images_and_weights
from lockstep.tasks.run import run_state


@deploy("Images")
def images() -> None:
    """Pull missing images, and ask each engine image about its recipes."""
    desired_state = run_state.current_desired_state()
    images_and_weights.pull_images(
        name="Pull images by digest",
        origins=desired_state.image_origins,
        architecture=desired_state.plan.settings.expected.architecture,
        proxy=bool(desired_state.plan.settings.proxy.environment()),
    )
    image_recipe_check.check_recipes(name="Ask images for their engine and about its recipes")
