"""A deploy changes exactly what diff calls its drift: of units, and of facts."""

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
from lockstep.system.folders import wanted_restart_key
from lockstep.tasks.run import run_state

SPARK = host()
MODEL, WATCH, TIMED = "vllm-qwen36.service", "lockstep-memory.service", "lockstep-wedge.service"
GOOD: dict[str, Any] = {
    "LoadState": "loaded",
    "ActiveState": "active",
    "SubState": "running",
    "UnitFileState": "enabled",
    "NeedDaemonReload": "no",
    "links": [],
    "newer": {},
}
COLD = {**GOOD, "ActiveState": "inactive", "SubState": "dead", "UnitFileState": "static"}


def good_states() -> dict[str, dict[str, Any]]:
    """The answer of the reader on a host with a hot model, as it should be."""
    states = {}
    for name in SPARK.unit_files:
        is_off = name in units.units_off_at_boot(SPARK) and name != MODEL
        key = wanted_restart_key(SPARK.all_files, name)
        path = {"FragmentPath": f"/etc/systemd/system/{name}", "restart_key": key}
        states[name] = {**(COLD if is_off else GOOD), **path}
    states[MODEL]["UnitFileState"] = "static"
    services = SPARK.plan.settings.packages and ("ssh.service", "docker.service")
    return {**states, **{name: {**GOOD, "restart_key": ""} for name in services}}


def deploy_commands(states: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The commands of the operations that look after units."""
    monkeypatch.setitem(run_state._runs, "spark1", SPARK)
    off_units = units.units_off_at_boot(SPARK)
    commands = run("services.remove_boot_links", Host({"units": states}), units=off_units)
    model_units, watch_units = SPARK.model_units, [*SPARK.watch_units, *SPARK.boot_units]
    for stage, names, at_boot, next_boot in (
        ("services", model_units, [], []),
        ("switch", watch_units, SPARK.watch_units, SPARK.boot_units),
    ):
        lists = {"units": names, "at_boot": at_boot, "next_boot": next_boot}
        commands += run("services.restart_outdated", Host({"units": states}), stage=stage, **lists)
    return commands


@pytest.mark.parametrize(
    ("name", "change"),
    [
        (WATCH, {}),
        # The next boot would not start it.
        (WATCH, {"UnitFileState": "enabled-runtime"}),
        (WATCH, {"ActiveState": "inactive", "SubState": "dead"}),
        # It crashes again and again.
        (WATCH, {"ActiveState": "activating", "SubState": "auto-restart"}),
        (WATCH, {"LoadState": "not-found"}),
        (WATCH, {"NeedDaemonReload": "yes"}),
        # A file of ours was changed by hand and put back since it started.
        (WATCH, {"newer": {"/usr/local/lib/lockstep/a.py": True}}),
        # The GPU's cap has done its work.
        (WATCH, {"SubState": "exited", "newer": {f"/etc/systemd/system/{WATCH}": True}}),
        (MODEL, {"restart_key": "0000"}),
        (MODEL, {"ActiveState": "failed", "SubState": "failed"}),
        (MODEL, {"links": ["/etc/systemd/system/multi-user.target.wants/" + MODEL]}),
        (TIMED, {"links": ["/etc/systemd/system/multi-user.target.wants/" + TIMED]}),
        (TIMED, {"NeedDaemonReload": "yes"}),
    ],
)
def test_deploy_and_diff_name_the_same(name, change, monkeypatch) -> None:
    states = good_states()
    states[name] |= change
    snapshot = snapshot_copy(perfect(SPARK))
    for kind in ("unit", "unit path", "boot", "running", "restart key", "unread unit"):
        snapshot["facts"].pop(kind, None)
    snapshot["answers"]["units"] = states
    differences = diff_report((SPARK, snapshot)).differences
    mended_by_deploy = [item.item.split()[0] for item in differences if item.how == "deploy"]
    commands = deploy_commands(states, monkeypatch)
    assert bool(commands) == bool(mended_by_deploy)
    assert set(mended_by_deploy) <= {name}
    is_change = change not in ({}, {"ActiveState": "failed", "SubState": "failed"})
    assert bool(commands) == is_change


def test_diff_alone_names_what_a_deploy_does_not_restart(monkeypatch: pytest.MonkeyPatch) -> None:
    foreign_path, own_path = "/etc/systemd/system/ssh.service.d/99-mine.conf", SPARK.paths[0]
    states = good_states()
    states["ssh.service"] |= {
        "newer": {foreign_path: False},
        "DropInPaths": f"{foreign_path} {own_path} /usr/lib/a",
    }
    snapshot = snapshot_copy(perfect(SPARK))
    snapshot["answers"]["units"] = states
    differences = diff_report((SPARK, snapshot)).differences
    assert {(item.item, item.how) for item in differences} == {
        (f"ssh.service {foreign_path}", "by hand")
    }
    assert {(item.kind, item.command) for item in differences} == {
        ("drop-in", "sudo systemctl cat ssh.service"),
        ("older process", "sudo systemctl restart ssh.service"),
    }
    assert deploy_commands(states, monkeypatch) == []
    assert not units.is_outdated(states["ssh.service"])


PLANNED = host(operators=("ann", "bob"), docker_users=("bob",), sysctls={"vm.swappiness": "10"})
FACTS = perfect(PLANNED)["facts"]
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

    Without the account whose other home stops a deploy (tests/operations/test_shown_findings.py).
    """
    for resource in RESOURCES:
        if resource in (files, units, firewall, fabric):
            continue  # their own modules here
        name = resource.__name__.rpartition(".")[2]
        for expectation in resource.expectations(PLANNED, fact_comparison.SubjectView(FACTS, b"")):
            for value in (None,) if expectation.kind == "account home" else (None, "other"):
                yield pytest.param(
                    *(name, resource, expectation.kind, expectation.item, value),
                    id=f"{expectation.kind} {expectation.item} {value}",
                )


@pytest.mark.parametrize(("name", "resource", "fact_kind", "item", "value"), list(planted_facts()))
def test_deploy_and_diff_name_the_same_facts(name, resource, fact_kind, item, value) -> None:
    snapshot = snapshot_copy(perfect(PLANNED))
    facts = snapshot["facts"]
    del facts[fact_kind][item]
    if value is not None:
        facts[fact_kind][item] = value
    mended_by_deploy = [
        difference
        for difference in diff_report((PLANNED, snapshot)).differences
        if difference.how == "deploy"
    ]
    operation, arguments = OPERATIONS[name]
    [reader] = resource.questions(PLANNED)
    observed_facts = {key: items for key, items in facts.items() if key in resource.KINDS}
    spark = Host({reader_name(reader): observed_facts})
    commands = run(operation, spark, **arguments(PLANNED))
    assert bool(commands) == bool(mended_by_deploy)
    if mended_by_deploy:
        words = " ".join(map(str, commands))
        assert item.partition(" in ")[0] in words or SYSCTL in words
