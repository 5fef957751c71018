"""The people that a deploy puts into groups."""

from __future__ import annotations

from a_spark import spark

from lockstep.system.accounts import Account, people


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
