"""Accounts and groups: commands for what is missing, and nothing taken away."""

from __future__ import annotations

from typing import Any

import pytest
from a_spark import spark

from lockstep.system.accounts import Account, account_commands, people, system_accounts

SERVICE = Account("lockstep", ("docker",), home="/var/lib/lockstep")
OPERATOR = Account("spark", ("docker", "lockstep-operators"))


def commands(service: list[str] | None, operator: list[str], gid: int | None) -> list[list[str]]:
    """The commands for accounts that have these groups (None: there is no account)."""
    host_facts: dict[str, Any] = {
        "groups": {"lockstep-operators": gid},
        "accounts": {
            "lockstep": service and {"uid": 999, "home": "/var/lib/lockstep", "groups": service},
            "spark": {"uid": 1000, "home": "/home/spark", "groups": operator},
        },
    }
    return account_commands(["lockstep-operators"], [SERVICE, OPERATOR], host_facts)


ADD_SERVICE = [
    *("useradd", "--system", "--user-group", "--shell", "/usr/sbin/nologin"),
    *("--home-dir", "/var/lib/lockstep", "--no-create-home", "--groups", "docker", "lockstep"),
]


BOTH = ["docker", "lockstep-operators"]


@pytest.mark.parametrize(
    ("service", "operator", "gid", "expected_commands"),
    [
        pytest.param(
            *(None, ["spark", "sudo"], None),
            [
                ["groupadd", "--system", "lockstep-operators"],
                ADD_SERVICE,
                ["gpasswd", "--add", "spark", "docker"],
                ["gpasswd", "--add", "spark", "lockstep-operators"],
            ],
            id="a wiped host: the group comes before its members",
        ),
        pytest.param(["docker", "lockstep"], [*BOTH, "sudo"], 990, [], id="a second run"),
        pytest.param(
            *(["lockstep"], BOTH, 990),
            [["gpasswd", "--add", "lockstep", "docker"]],
            id="a group of the service",
        ),
        pytest.param(
            *(["docker", "lockstep"], ["docker"], 990),
            [["gpasswd", "--add", "spark", "lockstep-operators"]],
            id="a group of the operator",
        ),
        pytest.param(None, BOTH, 990, [ADD_SERVICE], id="the service's account"),
    ],
)
def test_only_what_is_missing_is_added(
    service: list[str] | None,
    operator: list[str],
    gid: int | None,
    expected_commands: list[list[str]],
) -> None:
    assert commands(service, operator, gid) == expected_commands


def test_the_gateways_account_is_in_no_group_of_others() -> None:
    gateway = system_accounts(spark())[1]
    host_facts = {"groups": {}, "accounts": {"lockstep-gateway": None}}
    [command] = account_commands([], [gateway], host_facts)
    assert command == [
        *("useradd", "--system", "--user-group", "--shell", "/usr/sbin/nologin"),
        *("--home-dir", "/etc/lockstep/gateway", "--no-create-home", "lockstep-gateway"),
    ]


def test_an_operator_is_never_created() -> None:
    host_facts = {"groups": {}, "accounts": {"spark": None}}
    assert {command[0] for command in account_commands([], [OPERATOR], host_facts)} == {"gpasswd"}


def test_an_operator_switches_and_gets_docker_only_by_name() -> None:
    # As an inventory gives it: pyinfra has keys of its own that begin with "docker_".
    settings = spark(
        operators=("ann", "bob", "j.doe@corp.example"), docker_users=("bob", "cy")
    ).settings
    assert people(settings) == [
        Account("ann", ("lockstep-operators",)),
        Account("bob", ("lockstep-operators", "docker")),
        Account("j.doe@corp.example", ("lockstep-operators",)),
        Account("cy", ("docker",)),
    ]
