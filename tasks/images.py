"""7. Engine and Open WebUI images, by digest."""

from __future__ import annotations

from pyinfra.api import deploy

from lockstep.tasks import run
from lockstep.tasks.operations import artefacts, image_engines


@deploy("Images")
def images() -> None:
    """Pull what is not here; ask each engine image about its recipes."""
    this = run.current()
    artefacts.images(
        name="Pull images by digest",
        origins=this.image_origins,
        architecture=this.plan.settings.expected.architecture,
        proxy=bool(this.plan.settings.proxy.environment()),
    )
    image_engines.accepted(name="Ask images for their engine and about its recipes")
