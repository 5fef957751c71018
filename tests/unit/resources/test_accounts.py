"""Accounts and groups: commands for what is missing, and nothing taken away."""

from __future__ import annotations

from typing import Any

import pytest
from a_spark import spark

from lockstep.resources import accounts
from lockstep.system.accounts import Account, people, system_accounts

SERVICE = Account("lockstep", ("docker",), home="/var/lib/lockstep")
OPERATOR = Account("spark", ("docker", "lockstep-operators"))


def commands(service: list[str] | None, operator: list[str], gid: int | None) -> list[list[str]]:
    """The commands for accounts that have these groups (None: there is no account)."""
    groups_by_account = {"lockstep": service, "spark": operator}
    observed_facts = {
        "group": {} if gid is None else {"lockstep-operators": f"gid {gid}"},
        "account": {name: "uid 1" for name, groups in groups_by_account.items() if groups},
        "right": {
            f"{name} in {group}": "yes"
            for name, groups in groups_by_account.items()
            for group in groups or ()
        },
    }
    return accounts.commands(["lockstep-operators"], [SERVICE, OPERATOR], observed_facts)


ADD_SERVICE = [
    *("useradd", "--system", "--user-group", "--shell", "/usr/sbin/nologin"),
    *("--home-dir", "/var/lib/lockstep", "--no-create-home", "--groups", "docker", "lockstep"),
]


BOTH = ["docker", "lockstep-operators"]


CASES: dict[str, Any] = {
    "a wiped host: the group comes before its members": (
        *(None, ["spark", "sudo"], None),
        [
            ["groupadd", "--system", "lockstep-operators"],
            ADD_SERVICE,
            ["gpasswd", "--add", "spark", "docker"],
            ["gpasswd", "--add", "spark", "lockstep-operators"],
        ],
    ),
    "a second run": (["docker", "lockstep"], [*BOTH, "sudo"], 990, []),
    "a group of the service": (
        ["lockstep"],
        BOTH,
        990,
        [["gpasswd", "--add", "lockstep", "docker"]],
    ),
    "the service's account": (None, BOTH, 990, [ADD_SERVICE]),
}


@pytest.mark.parametrize("case", CASES)
def test_only_what_is_missing_is_added(case: str) -> None:
    service, operator, gid, expected_commands = CASES[case]
    assert commands(service, operator, gid) == expected_commands


def test_the_gateways_account_is_in_no_group_of_others_and_an_operator_is_never_created() -> None:
    gateway = system_accounts(spark())[1]
    [command] = accounts.commands([], [gateway], {})
    assert command == [
        *("useradd", "--system", "--user-group", "--shell", "/usr/sbin/nologin"),
        *("--home-dir", "/etc/lockstep/gateway", "--no-create-home", "lockstep-gateway"),
    ]
    assert {command[0] for command in accounts.commands([], [OPERATOR], {})} == {"gpasswd"}


def test_an_operator_switches_and_gets_docker_only_by_name() -> None:
    # As an inventory gives it: pyinfra has keys of its own that begin with "docker_".
    groups = {"operators": ("ann", "bob", "j.doe@corp.example"), "docker_users": ("bob", "cy")}
    assert people(spark(**groups).settings) == [
        Account("ann", ("lockstep-operators",)),
        Account("bob", ("lockstep-operators", "docker")),
        Account("j.doe@corp.example", ("lockstep-operators",)),
        Account("cy", ("docker",)),
    ]
