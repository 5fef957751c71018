"""One unit per model, never enabled at boot."""

from __future__ import annotations

from pyinfra.api import deploy

from lockstep.deploy.course import RESTART
from lockstep.resources.units import units_off_at_boot
from lockstep.tasks.operations import generations, rolling_restart, secrets, venv_engine
from lockstep.tasks.operations import services as operations
from lockstep.tasks.run import run_state
from lockstep.units.model_variants import unit_names


@deploy("Services")
def services() -> None:
    """Write launchers and units, verified before they replace the present ones."""
    desired_state = run_state.current_desired_state()
    units = desired_state.model_units
    generations.begin_generation(name="Note the generation that begins")
    if desired_state.key_users:
        secrets.make_api_key(
            name="Make the API key of open models once", units=desired_state.key_users
        )
    ranks = unit_names([model for model in desired_state.plan.models if model.group])
    rolling_restart.change_host_by_host(name=RESTART, units=units, together=ranks)
    todo = rolling_restart.has_pending_changes
    operations.remove_adopted_containers(
        name="Remove containers that the inventory takes over",
        containers=run_state.adopted_containers(),
    )
    operations.remove_left_over_files(name="Remove what no model asks for any more", _if=todo)
    # systemd refuses a unit whose program does not exist.
    if desired_state.engine_spec:
        venv_engine.activate(name="Make the checked engine the current one", _if=todo)
    operations.write_stage_files(name="Write launchers and units", stage="services", _if=todo)
    operations.remove_boot_links(
        name="Keep model units off at boot", units=units_off_at_boot(desired_state)
    )
    operations.restart_outdated(
        name="Reload systemd, restart what is outdated",
        units=units,
        stage="services",
        together=ranks,
    )
