"""The benchmark's playbook manages what the deploy manages; anything else would be drift."""

from __future__ import annotations

from typing import Any

from a_spark import pins_for, spark

from benchmarks.playbook import files_of, tasks, variables
from lockstep.files.managed_file import OPERATORS_GROUP
from lockstep.resources import accounts
from lockstep.system.accounts import people
from lockstep.system.base_files import absent_files
from lockstep.system.folders import folders, model_units

PLAN = spark(operators=("anna", "ben"), docker_users=("ben", "carla"))
PINS = pins_for(PLAN)
TASKS = tasks(PLAN, PINS)


def of(module: str, **like: Any) -> list[dict[str, Any]]:
    """Tasks of one module whose arguments have these values."""
    module_tasks = [task for task in TASKS if f"ansible.builtin.{module}" in task]
    return [
        task for task in module_tasks if like.items() <= task[f"ansible.builtin.{module}"].items()
    ]


def arguments(module: str, **like: Any) -> list[dict[str, Any]]:
    return [task[f"ansible.builtin.{module}"] for task in of(module, **like)]


def test_nobody_is_put_into_a_group_that_the_deploy_does_not_put_them_into() -> None:
    groups_by_user = {user["name"]: user["groups"] for user in arguments("user")}
    assert groups_by_user.pop(PLAN.settings.service_user) == ["docker"]
    assert groups_by_user == {
        "anna": [OPERATORS_GROUP],
        "ben": [OPERATORS_GROUP, "docker"],
        "carla": ["docker"],
    }
    # What the deploy itself would still have to do after the playbook.
    facts = {
        "group": {OPERATORS_GROUP: "gid 990"},
        "right": {
            f"{name} in {group}": "yes"
            for name, groups in groups_by_user.items()
            for group in groups
        },
    }
    assert accounts.commands([OPERATORS_GROUP], people(PLAN.settings), facts) == []


def test_files_folders_and_what_must_be_absent_are_the_deploys() -> None:
    managed_files = variables(PLAN, PINS)["managed_files"]
    assert [file["path"] for file in managed_files] == [file.path for file in files_of(PLAN, PINS)]
    (directory_task,) = of("file", state="directory")
    assert directory_task["loop"] == [vars(folder) for folder in folders(PLAN.settings)]
    (absence_task,) = of("file", state="absent")
    assert absence_task["loop"] == list(absent_files(PLAN.settings))


def test_units_are_at_boot_what_the_deploy_makes_them() -> None:
    units = " ".join(model_units(files_of(PLAN, PINS)))
    assert of("command", cmd=f"systemctl is-enabled {units}")
    on = {unit["name"] for unit in arguments("systemd_service", enabled=True, state="started")}
    assert on == {
        "lockstep-gateway-switch.socket",
        "lockstep-gateway.socket",
        "lockstep-gateway.service",
        "open-webui.service",
        "lockstep-wedge.timer",
        "lockstep-sense.timer",
        "lockstep-memory.service",
        "lockstep-firewall.service",
    }
