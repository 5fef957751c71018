"""Open WebUI, connected to the gateway."""

from __future__ import annotations

from pyinfra.api import deploy

from lockstep.files.managed_file import command
from lockstep.tasks.operations import secrets
from lockstep.tasks.operations import services as operations
from lockstep.tasks.run import run_state


@deploy("Open WebUI")
def webui() -> None:
    """Make administrator and key once on the host; the unit starts at boot."""
    settings = run_state.current_desired_state().plan.settings
    if not settings.webui.enabled:
        return
    # Existing accounts are kept, and no administrator is made beside them.
    email = "" if settings.webui_adopted else settings.webui.admin_email
    secrets.make_webui_secrets(name="Make Open WebUI's keys once", email=email)
    operations.write_stage_files(name="Write Open WebUI's unit", stage="webui")
    unit = f"{settings.webui.unit}.service"
    operations.restart_outdated(
        name="Run Open WebUI", units=[unit], stage="webui", at_boot=[unit], program=command("webui")
    )
