"""Accounts and groups: commands for what is missing, and nothing taken away."""

from __future__ import annotations

from typing import Any

import pytest
from a_spark import spark

from lockstep.system.accounts import Account, account_commands, ours, people

SERVICE = Account("lockstep", ("docker",), home="/var/lib/lockstep")
OPERATOR = Account("spark", ("docker", "lockstep-operators"))


def commands(service: list[str] | None, operator: list[str], gid: int | None) -> list[list[str]]:
    """What is to be done where the accounts have these groups (None: there is no account)."""
    found: dict[str, Any] = {
        "groups": {"lockstep-operators": gid},
        "accounts": {
            "lockstep": service and {"uid": 999, "home": "/var/lib/lockstep", "groups": service},
            "spark": {"uid": 1000, "home": "/home/spark", "groups": operator},
        },
    }
    return account_commands(["lockstep-operators"], [SERVICE, OPERATOR], found)


ADD_SERVICE = [
    *("useradd", "--system", "--user-group", "--shell", "/usr/sbin/nologin"),
    *("--home-dir", "/var/lib/lockstep", "--no-create-home", "--groups", "docker", "lockstep"),
]


def test_on_a_wiped_host_the_group_comes_before_its_members() -> None:
    assert commands(None, ["spark", "sudo"], None) == [
        ["groupadd", "--system", "lockstep-operators"],
        ADD_SERVICE,
        ["usermod", "--append", "--groups", "docker,lockstep-operators", "spark"],
    ]


def test_a_second_run_has_nothing_to_do() -> None:
    assert commands(["docker", "lockstep"], ["docker", "lockstep-operators", "sudo"], 990) == []


@pytest.mark.parametrize(
    ("service", "operator", "expected"),
    [
        (
            ["lockstep"],
            ["docker", "lockstep-operators"],
            [["usermod", "--append", "--groups", "docker", "lockstep"]],
        ),
        (
            ["docker", "lockstep"],
            ["docker"],
            [["usermod", "--append", "--groups", "lockstep-operators", "spark"]],
        ),
        (None, ["docker", "lockstep-operators"], [ADD_SERVICE]),
    ],
)
def test_only_what_is_missing_is_added(
    service: list[str] | None, operator: list[str], expected: list[list[str]]
) -> None:
    assert commands(service, operator, 990) == expected


def test_the_gateways_account_is_in_no_group_of_others() -> None:
    gateway = ours(spark())[1]
    found = {"groups": {}, "accounts": {"lockstep-gateway": None}}
    [command] = account_commands([], [gateway], found)
    assert command == [
        *("useradd", "--system", "--user-group", "--shell", "/usr/sbin/nologin"),
        *("--home-dir", "/etc/lockstep/gateway", "--no-create-home", "lockstep-gateway"),
    ]


def test_an_operator_is_never_created() -> None:
    found = {"groups": {}, "accounts": {"spark": None}}
    [command] = account_commands([], [OPERATOR], found)
    assert command[0] == "usermod"


def test_an_operator_switches_and_gets_docker_only_by_name() -> None:
    # As an inventory gives it: pyinfra has keys of its own that begin with "docker_".
    settings = spark(operators=("ann", "bob"), docker_users=("bob", "cy")).settings
    assert people(settings) == [
        Account("ann", ("lockstep-operators",)),
        Account("bob", ("lockstep-operators", "docker")),
        Account("cy", ("docker",)),
    ]
