"""Units are restarted by what runs, never by what this run happened to write."""

from fnmatch import fnmatchcase
from typing import Any

import pytest
from a_host import Host, run
from a_spark import pins_for, spark

from group_data import all as all_hosts
from lockstep.deploy.questions import questions
from lockstep.files.managed_file import AGENT_UNIT, API_KEY, PROGRAMS
from lockstep.host.desired_state import DesiredState
from lockstep.onhost.records import models_by_boot
from lockstep.system.folders import wanted_restart_key
from lockstep.tasks.operations import closing_table
from lockstep.tasks.run import run_state as tasks_run
from lockstep.units.agent_unit import RECORDS

PLAN = spark()
RUN = DesiredState(PLAN, pins_for(PLAN))
ENGINES: dict[str, Any] = {"images": {}, "check": {"version": "0.19.2"}}
WANTED = wanted_restart_key(RUN.files("services"), "vllm.service")
JOB = "/usr/bin/python3 /usr/local/lib/lockstep job run"


@pytest.fixture(autouse=True)
def _planned_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(tasks_run._runs, "spark1", RUN)


def unit(**state: Any) -> dict[str, Any]:
    """The state of a unit that runs as it should, with changes."""
    return {
        "LoadState": "loaded",
        "ActiveState": "active",
        "SubState": "running",
        "UnitFileState": "disabled",
        "NeedDaemonReload": "no",
        "restart_key": WANTED,
        "links": [],
        **state,
    }


def in_force(stage: str, states: dict[str, Any], **unit_lists: Any) -> tuple[list[Any], Host]:
    """The actions on units in these states; the operation's lists of units, all by default."""
    host = Host({"environments": ENGINES, "units": states})
    arguments = {"units": list(states), **unit_lists}
    return run("services.restart_outdated", host, stage=stage, **arguments), host


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"NeedDaemonReload": "yes"}, "*systemd holds an older a.service*"),
        ({"LoadState": "bad-setting"}, "*is bad-setting for systemd*"),
        ({"FragmentPath": "/run/a.service"}, "systemd reads /run/a.service, not /etc/systemd/sys*"),
    ],
)
def test_the_read_back_asks_systemd_what_it_holds(changes: dict[str, str], fault: str) -> None:
    good = {"LoadState": "loaded", "FragmentPath": "/etc/systemd/system/a.service"}
    good |= {"NeedDaemonReload": "no", "ActiveState": "inactive", "restart_key": ""}

    def differences(states: dict[str, Any]) -> list[str]:
        return list(closing_table.unit_differences(["a.service"], states))

    assert differences({"a.service": good}) == differences({}) == []
    assert fnmatchcase(differences({"a.service": {**good, **changes}})[0], fault)


RESTART = [f"{JOB} restart-vllm -- systemctl restart vllm.service"]
RELOAD = ["systemctl daemon-reload"]


@pytest.mark.parametrize(
    ("state", "commands"),
    [
        (unit(), []),
        # A model that is not hot stays cold, whatever its unit says now.
        (unit(ActiveState="failed", restart_key=""), []),
        # It waits for its next try, which will read the new unit.
        (unit(ActiveState="activating", SubState="auto-restart", restart_key=""), []),
        (unit(restart_key=""), RESTART),
        (unit(ActiveState="activating", SubState="start-post", restart_key="0"), RESTART),
        (unit(ActiveState="activating", SubState="start-post"), []),
        (unit(NeedDaemonReload="yes"), RELOAD),
        # An earlier run wrote the unit and was cut off before it told systemd.
        (unit(LoadState="not-found", ActiveState="inactive", restart_key=""), RELOAD),
        (unit(NeedDaemonReload="yes", restart_key="0"), RELOAD + RESTART),
    ],
)
def test_a_restart_that_is_due_is_read_from_the_unit(state: Any, commands: Any) -> None:
    actions, host = in_force("services", {"vllm.service": state})
    assert actions == commands
    assert host.log_messages == (["restart vllm.service"] if RESTART[0] in commands else [])


@pytest.mark.parametrize(
    ("name", "commands"),
    [
        # What a timer starts is started by nobody here, and would run the older text for ever.
        ("lockstep-wedge.service", RELOAD),
        # Somebody else's is left to whoever wrote it.
        ("nginx.service", []),
    ],
)
def test_systemd_reads_every_unit_that_a_stage_wrote(name: str, commands: list[str]) -> None:
    states = {name: unit(NeedDaemonReload="yes")}
    assert in_force("switch", states, units=[])[0] == commands


GATEWAY = wanted_restart_key(RUN.files("gateway"), "lockstep-gateway.service")
_SOCKET = unit(UnitFileState="enabled", restart_key="")
_SERVICE = unit(UnitFileState="enabled", restart_key=GATEWAY)
PORTS = f"{JOB} restart-lockstep-gateway --tries 2 -- systemctl restart lockstep-gateway.socket"


@pytest.mark.parametrize(
    ("socket", "service", "commands"),
    [
        ({}, {}, []),
        # A restart of the process opens no port anew.
        (
            {},
            {"restart_key": "0"},
            [f"{JOB} restart-lockstep-gateway -- systemctl restart lockstep-gateway.service"],
        ),
        # Its file is newer than its ports: systemd restarts the process with them.
        ({"newer": {"/etc/x": True}}, {"restart_key": "0"}, [PORTS]),
        ({"newer": {"/etc/x": True}}, {}, [PORTS]),
        # systemd opens no socket of a service that runs, as one of an earlier Lockstep does.
        ({"ActiveState": "inactive"}, {"restart_key": "0"}, [PORTS]),
        (
            {"ActiveState": "inactive"},
            {"ActiveState": "inactive", "restart_key": ""},
            [PORTS, f"{JOB} start-lockstep-gateway -- systemctl start lockstep-gateway.service"],
        ),
    ],
)
def test_the_gateway_s_ports_are_opened_anew_only_where_they_change(socket, service, commands):
    names = ["lockstep-gateway.socket", "lockstep-gateway.service"]
    states = dict(zip(names, ({**_SOCKET, **socket}, {**_SERVICE, **service}), strict=True))
    assert in_force("gateway", states, at_boot=names)[0] == commands


WEBUI = wanted_restart_key(RUN.files("webui"), "open-webui.service")
AT_BOOT = ("webui", "open-webui.service", "at_boot")
NEXT_BOOT = ("switch", models_by_boot.UNIT, "next_boot")
ENABLED = {"UnitFileState": "enabled"}


@pytest.mark.parametrize(
    ("stage", "name", "unit_list", "state", "commands"),
    [
        (*AT_BOOT, {"restart_key": WEBUI}, ["systemctl enable --quiet open-webui.service"]),
        # A unit of the next boot: new, after a boot, failed.
        (
            *(*NEXT_BOOT, {"LoadState": "not-found", "ActiveState": "inactive"}),
            [f"systemctl enable --quiet {models_by_boot.UNIT}"],
        ),
        # It began the hot model; a restart would begin it once more.
        (*NEXT_BOOT, {**ENABLED, "restart_key": "older"}, []),
        (*NEXT_BOOT, {**ENABLED, "ActiveState": "failed"}, []),
    ],
)
def test_what_starts_at_boot_is_enabled_and_runs_where_it_may_run_now(
    stage: str, name: str, unit_list: str, state: dict[str, Any], commands: list[str]
) -> None:
    assert in_force(stage, {name: unit(**state)}, **{unit_list: [name]})[0] == commands


LEFT = f"{PROGRAMS}/lockstep/onhost/engines/left.py"
AGENT = f"/etc/systemd/system/{AGENT_UNIT}"
OLD, SCRIPT = "/etc/systemd/system/vllm-old.service", "/data/scripts/llm/old-launch.sh"


NOTE = "/usr/bin/python3 /usr/local/lib/lockstep rollout note"


@pytest.mark.parametrize(
    ("leftovers", "removed_paths", "ended_units"),
    [
        ([SCRIPT, OLD], [SCRIPT, OLD], ["vllm-old.service"]),
        # Left where engines are found by their folder, it would still be one.
        ([LEFT], [LEFT], []),
        # Without its agent nothing is known of a cluster either.
        ([AGENT], [AGENT, *RECORDS], [AGENT_UNIT]),
        ([API_KEY], [API_KEY], []),
    ],
    ids=["a model", "a program", "a cluster", "the API key"],
)
def test_what_nothing_asks_for_any_more_is_ended_and_removed(leftovers, removed_paths, ended_units):
    assert run("services.remove_left_over_files", Host({"files.leftovers": {}})) == []
    host = Host({"files.leftovers": {"leftover": dict.fromkeys(leftovers, "present")}})
    assert run("services.remove_left_over_files", host) == [
        # A way back starts a unit that ran, so its state is noted before it ends.
        *({NOTE: {"paths": leftovers}} for _ in ended_units),
        *(f"systemctl disable --now --quiet {name}" for name in ended_units),
        {"remove": removed_paths},
        "systemctl daemon-reload",
    ]
    assert host.log_messages == [f"{path} is of an earlier deploy: removed" for path in leftovers]


def test_the_api_key_stays_for_an_open_engine() -> None:
    plan = spark(models={"qwen": {**all_hosts.models["qwen"], "bind": "0.0.0.0"}})
    for of, stays in ((plan, True), (PLAN, False)):
        question = questions(DesiredState(of, pins_for(of)))["files.leftovers"]
        assert API_KEY in question["named"] and (API_KEY in question["files"]) is stays
