"""7. Engine and Open WebUI images, by digest."""

from __future__ import annotations

from pyinfra.api import deploy

from tasks import run
from tasks.operations import artefacts


@deploy("Images")
def images() -> None:
    """Pull what is not here; ask each engine image once for its version."""
    this = run.current()
    artefacts.images(
        name="Pull images by digest",
        references=this.images,
        architecture=this.plan.settings.expected.architecture,
    )
    artefacts.image_versions(name="Ask images for their engine", engines=this.engine_images)
