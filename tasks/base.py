"""2. Accounts, folders, packages, kernel settings, our programs and tools."""

from __future__ import annotations

from pyinfra.api import deploy

from lockstep.deploy.course import REREAD
from lockstep.deploy.questions import SYSTEM_UNITS
from lockstep.files.managed_file import OPERATORS_GROUP
from lockstep.host.intended import Intended
from lockstep.monitoring import stack
from lockstep.system.accounts import ours, people
from lockstep.system.base_files import (
    absent_files,
    docker_generation,
    system_units,
    tools_environment,
)
from lockstep.system.folders import folders
from lockstep.tasks import run
from lockstep.tasks.operations import files, secrets, services, system
from lockstep.units import tls_unit
from lockstep.units.variants import unit_names


def in_containers(this: Intended) -> list[str]:
    """Model units that a restart of Docker ends; of a cluster its agent takes all ranks down."""
    return list(
        unit_names([target for target in this.plan.targets if target.image and not target.group])
    )


def generations(this: Intended) -> dict[str, str]:
    """Services of the system → what they are to run with."""
    return {"docker.service": docker_generation(this.plan.settings)}


@deploy("Base")
def base() -> None:
    """Everything that the engines stand on."""
    this = run.current()
    settings = this.plan.settings
    system.noted(name="Note what was here before")
    system.accounts(
        name="Create the service accounts and the operators' group",
        groups=[OPERATORS_GROUP],
        users=[*ours(this.plan), *people(settings)],
    )
    files.tree(
        name="Write folders, programs and settings",
        files=this.files("base"),
        folders=folders(settings),
        absent=absent_files(settings),
    )
    if run.given():
        secrets.given(name="Write secrets from the operator's machine")
    services.reread(
        name=REREAD,
        units=SYSTEM_UNITS,
        engines=in_containers(this),
        generations=generations(this),
    )
    system.packages(
        name="Install packages",
        names=this.packages,
        masked={tls_unit.PACKAGE: tls_unit.PACKAGED_UNIT, **stack.PACKAGED_UNITS},
        accounts={tls_unit.PACKAGE: tls_unit.ACCOUNT, **stack.ACCOUNTS},
    )
    services.turn_on(
        name="Turn on services of the system that are off", names=system_units(settings)
    )
    system.sysctls(
        name="Apply kernel settings", values=settings.sysctls, path="/etc/sysctl.d/60-lockstep.conf"
    )
    system.tools(
        name="Install our own tools",
        environments=this.tools,
        python=settings.python,
        variables=tools_environment(settings),
    )
