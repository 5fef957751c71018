"""9. One unit per target, never enabled at boot."""

from __future__ import annotations

from pyinfra.api import deploy

from lockstep.deploy.course import RESTART
from lockstep.deploy.questions import JOB_UNITS
from lockstep.tasks import deploy_lock, run
from lockstep.tasks.operations import engine, generations, rollout, secrets
from lockstep.tasks.operations import services as operations
from lockstep.units.variants import unit_names


@deploy("Services")
def services() -> None:
    """Launchers and units, verified before they replace what is there."""
    this = run.current()
    units = this.model_units
    if this.plan.settings.rollout == deploy_lock.ALL:
        rollout.kept(name="Keep what there is until all hosts are done")
    generations.begun(name="Note the generation that begins")
    if this.key_users:
        secrets.api_key(name="Make the API key of open targets once", units=this.key_users)
    ranks = unit_names([target for target in this.plan.targets if target.group])
    rollout.host_by_host(name=RESTART, units=units, together=ranks)
    todo = rollout.pending
    operations.taken_over(
        name="Remove containers that the inventory takes over", containers=run.adopted_containers()
    )
    operations.forgotten(name="Remove what no target asks for any more", _if=todo)
    # systemd refuses a unit whose program is not there.
    if this.engine_spec:
        engine.activated(name="Make the checked engine the current one", _if=todo)
    operations.written(name="Write launchers and units", stage="services", _if=todo)
    operations.off_at_boot(name="Keep model units off at boot", units=units)
    operations.in_force(
        name="Reload systemd, restart what is outdated",
        units=units,
        stage="services",
        together=ranks,
        settled=JOB_UNITS,
    )
