"""Accounts and groups: who is in which."""

from a_spark import spark

from lockstep.resources import accounts
from lockstep.system.accounts import Account, people, system_accounts


def test_the_gateways_account_is_in_no_group_of_others_and_an_operator_is_never_created() -> None:
    gateway = system_accounts(spark())[1]
    [command] = accounts.commands([], [gateway], {})
    assert command == [
        *("useradd", "--system", "--user-group", "--shell", "/usr/sbin/nologin"),
        *("--home-dir", "/etc/lockstep/gateway", "--no-create-home", "lockstep-gateway"),
    ]
    operator = Account("spark", ("docker", "lockstep-operators"))
    assert {command[0] for command in accounts.commands([], [operator], {})} == {"gpasswd"}


def test_an_operator_switches_and_gets_docker_only_by_name() -> None:
    # As an inventory gives it: pyinfra has keys of its own that begin with "docker_".
    groups = {"operators": ("ann", "bob", "j.doe@corp.example"), "docker_users": ("bob", "cy")}
    assert people(spark(**groups).settings) == [
        Account("ann", ("lockstep-operators",)),
        Account("bob", ("lockstep-operators", "docker")),
        Account("j.doe@corp.example", ("lockstep-operators",)),
        Account("cy", ("docker",)),
    ]
