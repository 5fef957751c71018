"""12. Open WebUI, connected to the gateway."""

from __future__ import annotations

from pyinfra.api import deploy

from lockstep.files.managed_file import command
from lockstep.tasks import run
from lockstep.tasks.operations import secrets
from lockstep.tasks.operations import services as operations


@deploy("Open WebUI")
def webui() -> None:
    """Administrator and key made once on the host; the unit starts at boot."""
    settings = run.current().plan.settings
    if not settings.webui.enabled:
        return
    # Accounts that are there are kept, and no administrator is made beside them.
    email = "" if settings.webui_adopted else settings.webui.admin_email
    secrets.webui(name="Make Open WebUI's keys once", email=email)
    operations.written(name="Write Open WebUI's unit", stage="webui")
    unit = f"{settings.webui.unit}.service"
    operations.in_force(
        name="Run Open WebUI", units=[unit], stage="webui", enabled=[unit], program=command("webui")
    )
