"""A deploy changes exactly what diff calls its drift.

Each resource's differences are planted in the facts of a host that is as it should be. The diff
judges them, and the deploy's operation is run against them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from a_host import Host, run
from a_snapshot import diff_report, host, perfect, snapshot_copy

from lockstep.files.managed_file import OPERATORS_GROUP
from lockstep.files.remote_exec import reader_name
from lockstep.host.desired_state import DesiredState
from lockstep.resources import RESOURCES, fabric, fact_comparison, files, firewall, units
from lockstep.resources.accounts import wanted_accounts
from lockstep.system.base_files import SYSCTL

SPARK = host(operators=("ann", "bob"), docker_users=("bob",), sysctls={"vm.swappiness": "10"})
FACTS = perfect(SPARK)["facts"]
#: Resource → its operation, and the operation's arguments.
OPERATIONS: dict[str, tuple[str, Callable[[DesiredState], dict[str, Any]]]] = {
    "accounts": (
        "base_setup.create_accounts",
        lambda state: {"groups": [OPERATORS_GROUP], "users": wanted_accounts(state)},
    ),
    "kernel_settings": (
        "base_setup.apply_sysctls",
        lambda state: {"values": state.plan.settings.sysctls, "path": SYSCTL},
    ),
    "packages": ("base_setup.install_packages", lambda state: {"names": state.packages}),
}


def planted_facts() -> Iterator[Any]:
    """Each wanted fact of each resource, missing and with another value.

    Without the account whose other home stops a deploy (tests/operations/test_not_ours.py).
    """
    for resource in RESOURCES:
        if resource in (files, units, firewall, fabric):
            continue  # their own modules here
        name = resource.__name__.rpartition(".")[2]
        for expectation in resource.expectations(SPARK, fact_comparison.SubjectView(FACTS, b"")):
            for value in (None,) if expectation.kind == "account home" else (None, "other"):
                yield pytest.param(
                    *(name, resource, expectation.kind, expectation.item, value),
                    id=f"{expectation.kind} {expectation.item} {value}",
                )


@pytest.mark.parametrize(("name", "resource", "fact_kind", "item", "value"), list(planted_facts()))
def test_deploy_and_diff_name_the_same(
    name: str, resource: Any, fact_kind: str, item: str, value: str | None
) -> None:
    snapshot = snapshot_copy(perfect(SPARK))
    facts = snapshot["facts"]
    del facts[fact_kind][item]
    if value is not None:
        facts[fact_kind][item] = value
    mended_by_deploy = [
        difference
        for difference in diff_report((SPARK, snapshot)).differences
        if difference.how == "deploy"
    ]
    operation, arguments = OPERATIONS[name]
    [reader] = resource.questions(SPARK)
    observed_facts = {key: items for key, items in facts.items() if key in resource.KINDS}
    spark = Host({reader_name(reader): observed_facts})
    commands = run(operation, spark, **arguments(SPARK))
    assert bool(commands) == bool(mended_by_deploy)
    if mended_by_deploy:
        words = " ".join(map(str, commands))
        assert item.partition(" in ")[0] in words or SYSCTL in words
