"""Accounts, folders, packages, kernel settings, our programs and tools."""

from __future__ import annotations

from pyinfra.api import deploy

from lockstep.deploy.course import REREAD
from lockstep.deploy.questions import SYSTEM_UNITS
from lockstep.files.managed_file import OPERATORS_GROUP
from lockstep.host.desired_state import DesiredState
from lockstep.monitoring import stack
from lockstep.resources.accounts import wanted_accounts
from lockstep.system.base_files import (
    absent_files,
    docker_restart_key,
    system_units,
    tools_environment,
)
from lockstep.system.folders import folders
from lockstep.tasks.operations import base_setup, files, secrets, services
from lockstep.tasks.run import run_state
from lockstep.units import tls_unit
from lockstep.units.model_variants import unit_names


def units_ended_by_docker_restart(desired_state: DesiredState) -> list[str]:
    """Return the model units that a restart of Docker ends.

    A cluster's agent takes all its ranks down then.
    """
    return list(
        unit_names(
            [model for model in desired_state.plan.models if model.image and not model.group]
        )
    )


def restart_key_by_service(desired_state: DesiredState) -> dict[str, str]:
    """Return services of the system → the restart keys that they are to run with."""
    return {"docker.service": docker_restart_key(desired_state.plan.settings)}


@deploy("Base")
def base() -> None:
    """Deploy everything that the engines need beneath them."""
    desired_state = run_state.current_desired_state()
    settings = desired_state.plan.settings
    base_setup.record_baseline(name="Note what was here before")
    base_setup.create_accounts(
        name="Create the service accounts and the operators' group",
        groups=[OPERATORS_GROUP],
        users=wanted_accounts(desired_state),
    )
    files.write_files(
        name="Write folders, programs and settings",
        files=desired_state.files("base"),
        folders=folders(settings),
        absent=absent_files(settings),
    )
    if run_state.secret_files():
        secrets.write_secrets(name="Write secrets from the operator's machine")
    services.restart_outdated_system_units(
        name=REREAD,
        units=SYSTEM_UNITS,
        engines=units_ended_by_docker_restart(desired_state),
        restart_keys=restart_key_by_service(desired_state),
    )
    base_setup.install_packages(
        name="Install packages",
        names=desired_state.packages,
        masked_units={tls_unit.PACKAGE: tls_unit.PACKAGED_UNIT, **stack.PACKAGED_UNITS},
        accounts={tls_unit.PACKAGE: tls_unit.ACCOUNT, **stack.ACCOUNTS},
    )
    services.turn_on(
        name="Turn on services of the system that are off", names=system_units(settings)
    )
    base_setup.apply_sysctls(
        name="Apply kernel settings", values=settings.sysctls, path="/etc/sysctl.d/60-lockstep.conf"
    )
    base_setup.install_tools(
        name="Install our own tools",
        environments=desired_state.tool_environments,
        python=settings.python,
        variables=tools_environment(settings),
    )
