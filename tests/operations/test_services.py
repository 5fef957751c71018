"""Units are restarted because of what runs, never because of what this run happened to write."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from a_host import Host, run
from a_spark import pins_for, spark

from lockstep.deploy.questions import JOB_UNITS
from lockstep.files.managed_file import AGENT_UNIT, API_KEY, PROGRAMS
from lockstep.files.programs import programs
from lockstep.host.intended import Intended
from lockstep.inventory.bound_targets import bind
from lockstep.inventory.host import HostPlan
from lockstep.inventory.settings import Settings, TargetData, WebUi
from lockstep.onhost.environment import engine_build
from lockstep.onhost.records import boots
from lockstep.recipes import recipe_file
from lockstep.system.folders import generation
from lockstep.tasks import run as tasks_run
from lockstep.tasks.operations import verify
from lockstep.units.agent_unit import RECORDS

PLAN = spark()
RUN = Intended(PLAN, pins_for(PLAN))
ENGINES: dict[str, Any] = {"images": {}, "check": {"version": "0.19.2"}}
WANTED = generation(RUN.files("services"), "vllm.service")
JOB = "/usr/bin/python3 /usr/local/lib/lockstep job run"


@pytest.fixture(autouse=True)
def _planned(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setitem(tasks_run._runs, "spark1", RUN)
    yield


def unit(**state: Any) -> dict[str, Any]:
    """State of a unit that runs what it should, with changes."""
    return {
        "LoadState": "loaded",
        "ActiveState": "active",
        "SubState": "running",
        "UnitFileState": "disabled",
        "NeedDaemonReload": "no",
        "generation": WANTED,
        "links": [],
        **state,
    }


def in_force(stage: str, states: dict[str, Any], **named: list[str]) -> tuple[list[Any], Host]:
    """What is done about units in these states; ``named`` are the operation's other lists."""
    host = Host({"environments": ENGINES, "units": states})
    return run("services.in_force", host, units=list(states), stage=stage, **named), host


def test_a_rollout_that_failed_is_forgotten_when_all_is_in_force() -> None:
    job = "lockstep-job-rollout.service"
    for state, commands in (("failed", [f"systemctl reset-failed {job}"]), ("active", [])):
        states = {"vllm.service": unit(), job: unit(ActiveState=state, NeedDaemonReload="yes")}
        host = Host({"environments": ENGINES, "units": states})
        given = {"units": ["vllm.service"], "stage": "services", "settled": [job]}
        assert run("services.in_force", host, **given) == commands


def test_failures_of_every_job_are_forgotten() -> None:
    wanted = {f"lockstep-job-engine-{stage}.service" for stage in engine_build.STAGES}
    assert {*wanted, "lockstep-job-image-check.service"} < set(JOB_UNITS)


def test_the_read_back_asks_systemd_what_it_holds() -> None:
    path = "/etc/systemd/system/a.service"
    good = {"LoadState": "loaded", "FragmentPath": path, "NeedDaemonReload": "no"}

    def said(**shown: str) -> list[str]:
        return list(verify.not_in_force(["a.service"], {"a.service": {**good, **shown}}))

    assert said() == []
    assert list(verify.not_in_force(["a.service"], {})) == []
    assert "systemd holds an older a.service" in said(NeedDaemonReload="yes")[0]
    assert "is bad-setting for systemd" in said(LoadState="bad-setting")[0]
    other = "/run/systemd/transient/a.service"
    assert said(FragmentPath=other)[0].startswith(f"systemd reads {other}, not {path}")


RESTART = [f"{JOB} restart-vllm -- systemctl restart vllm.service"]
RELOAD = ["systemctl daemon-reload"]


@pytest.mark.parametrize(
    ("state", "commands"),
    [
        (unit(), []),
        # A model that is not hot stays cold, whatever its unit says now.
        (unit(ActiveState="inactive", generation=""), []),
        (unit(ActiveState="failed", generation=""), []),
        # It waits for its next try, which will read the new unit.
        (unit(ActiveState="activating", SubState="auto-restart", generation=""), []),
        (unit(generation="0000000000000000"), RESTART),
        (unit(generation=""), RESTART),
        (unit(ActiveState="activating", SubState="start-post", generation="0"), RESTART),
        (unit(ActiveState="activating", SubState="start-post"), []),
        (unit(NeedDaemonReload="yes"), RELOAD),
        # An earlier run wrote the unit and was cut off before it told systemd.
        (unit(LoadState="not-found", ActiveState="inactive", generation=""), RELOAD),
        (unit(NeedDaemonReload="yes", generation="0000000000000000"), RELOAD + RESTART),
    ],
)
def test_a_restart_that_is_due_is_read_from_the_unit(
    state: dict[str, Any], commands: list[str]
) -> None:
    found, host = in_force("services", {"vllm.service": state})
    assert found == commands
    assert host.logged == (["restart vllm.service"] if RESTART[0] in commands else [])


@pytest.mark.parametrize(
    ("name", "commands"),
    [
        # What a timer starts is started by nobody here, and would run the older text for ever.
        ("lockstep-wedge.service", RELOAD),
        ("lockstep-memory.service", RELOAD),
        # Somebody else's is left to whoever wrote it.
        ("nginx.service", []),
    ],
)
def test_systemd_reads_every_unit_that_a_stage_wrote(name: str, commands: list[str]) -> None:
    states = {name: unit(NeedDaemonReload="yes")}
    host = Host({"environments": ENGINES, "units": states})
    assert run("services.in_force", host, units=[], stage="switch") == commands


GATEWAY = generation(RUN.files("gateway"), "lockstep-gateway.service")
_SOCKET = unit(UnitFileState="enabled", generation="")
_SERVICE = unit(UnitFileState="enabled", generation=GATEWAY)
PORTS = f"{JOB} restart-lockstep-gateway -- systemctl restart lockstep-gateway.socket"


@pytest.mark.parametrize(
    ("socket", "service", "commands"),
    [
        ({}, {}, []),
        # A restart of the process opens no port anew.
        (
            {},
            {"generation": "0"},
            [f"{JOB} restart-lockstep-gateway -- systemctl restart lockstep-gateway.service"],
        ),
        # Its file is newer than its ports: systemd restarts the process with them.
        ({"outdated": True}, {"generation": "0"}, [PORTS]),
        ({"outdated": True}, {}, [PORTS]),
        # systemd opens no socket of a service that runs, as one of an earlier Lockstep does.
        ({"ActiveState": "inactive"}, {"generation": "0"}, [PORTS]),
        (
            {"ActiveState": "inactive"},
            {"ActiveState": "inactive", "generation": ""},
            [PORTS, f"{JOB} start-lockstep-gateway -- systemctl start lockstep-gateway.service"],
        ),
    ],
)
def test_the_gateway_s_ports_are_opened_anew_only_where_they_change(
    socket: dict[str, Any], service: dict[str, Any], commands: list[str]
) -> None:
    names = ["lockstep-gateway.socket", "lockstep-gateway.service"]
    states = dict(zip(names, ({**_SOCKET, **socket}, {**_SERVICE, **service}), strict=True))
    assert in_force("gateway", states, enabled=names)[0] == commands


WEBUI = generation(RUN.files("webui"), "open-webui.service")


@pytest.mark.parametrize(
    ("state", "commands"),
    [
        (
            unit(UnitFileState="enabled", ActiveState="failed", generation=""),
            [f"{JOB} start-open-webui -- systemctl start open-webui.service"],
        ),
        (
            unit(UnitFileState="disabled", generation=WEBUI),
            ["systemctl enable --quiet open-webui.service"],
        ),
    ],
)
def test_open_webui_is_enabled_and_runs(state: dict[str, Any], commands: list[str]) -> None:
    name = "open-webui.service"
    assert in_force("webui", {name: state}, enabled=[name])[0] == commands


@pytest.mark.parametrize(
    ("state", "commands"),
    [
        (
            {"LoadState": "not-found", "ActiveState": "inactive"},
            ["systemctl daemon-reload", f"systemctl enable --quiet {boots.UNIT}"],
        ),
        # It began the hot model; a restart would begin it once more.
        ({"UnitFileState": "enabled", "generation": "older"}, []),
        ({"UnitFileState": "enabled", "ActiveState": "failed"}, []),
    ],
    ids=["new", "after a boot", "failed"],
)
def test_a_unit_of_the_next_boot_is_enabled_and_left_alone(
    state: dict[str, Any], commands: list[str]
) -> None:
    found, _ = in_force("switch", {boots.UNIT: unit(**state)}, next_boot=[boots.UNIT])
    assert found == commands


LEFT = f"{PROGRAMS}/lockstep/onhost/engines/left.py"
AGENT = f"/etc/systemd/system/{AGENT_UNIT}"
OLD, SCRIPT = "/etc/systemd/system/vllm-old.service", "/data/scripts/llm/old-launch.sh"


@pytest.mark.parametrize(
    ("left", "gone", "ended"),
    [
        ([SCRIPT, OLD], [SCRIPT, OLD], ["vllm-old.service"]),
        # Left where engines are found by their folder, it would still be one.
        ([LEFT], [LEFT], []),
        # Without its agent nothing is known of a cluster either.
        ([AGENT], [AGENT, *RECORDS], [AGENT_UNIT]),
        ([API_KEY], [API_KEY], []),
    ],
    ids=["a target", "a program", "a cluster", "the API key"],
)
def test_what_nothing_asks_for_any_more_is_ended_and_removed(
    left: list[str], gone: list[str], ended: list[str]
) -> None:
    ours = ["/etc/systemd/system/vllm.service", *(file.path for file in programs())]
    assert run("services.forgotten", Host({"files.marked": ours})) == []
    host = Host({"files.marked": [*ours, *left]})
    assert run("services.forgotten", host) == [
        *(f"systemctl disable --now --quiet {name}" for name in ended),
        {"remove": gone},
        "systemctl daemon-reload",
    ]
    assert host.logged == [f"{path} is of an earlier deploy: removed" for path in left]


def test_the_api_key_stays_for_an_open_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    qwen = {**PLAN.settings.targets, "qwen": replace(PLAN.settings.targets["qwen"], bind="0.0.0.0")}
    plan = spark(targets={name: asdict(target) for name, target in qwen.items()})
    monkeypatch.setitem(tasks_run._runs, "spark1", Intended(plan, pins_for(plan)))
    opened = Host({"files.marked": [API_KEY]})
    assert run("services.forgotten", opened) == []


def test_a_fallback_from_another_image_is_asked_and_written_for_itself(tmp_path: Path) -> None:
    texts = {
        "main": "model: org/main\ncontainer: site.example/engine:1\ndefaults: {port: 8001}\n",
        "spare": "model: org/main\ncontainer: site.example/other:1\ndefaults: {port: 8001}\n",
    }
    catalogue = {name: recipe_file.parse(text, tmp_path / name) for name, text in texts.items()}
    targets = {"main": TargetData("main", "main", fallback="spare")}
    settings = Settings("s", targets, webui=WebUi(enabled=False))
    plan = HostPlan("s", settings, bind(settings, catalogue, {}))
    this = Intended(plan, pins_for(plan))
    first, other = (f"sha256:{number:064x}" for number in range(2))
    name = "127.0.0.1:7078/site.example"
    assert this.engine_images == {
        first: (f"{name}/engine@{first}", "vllm"),
        other: (f"{name}/other@{other}", "vllm"),
    }
    assert this.image_origins == {
        f"{name}/engine@{first}": "https://site.example/v2/engine",
        f"{name}/other@{other}": "https://site.example/v2/other",
    }
