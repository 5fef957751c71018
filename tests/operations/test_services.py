"""Units are restarted because of what runs, never because of what this run happened to write."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from a_host import Host, run
from a_spark import pins_for, spark

from lockstep.deploy.questions import JOB_UNITS, questions
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


def test_a_rollout_that_failed_is_forgotten_when_all_is_in_force() -> None:
    job = "lockstep-job-rollout.service"
    for state, commands in (("failed", [f"systemctl reset-failed {job}"]), ("active", [])):
        states = {"vllm.service": unit(), job: unit(ActiveState=state, NeedDaemonReload="yes")}
        host = Host({"environments": ENGINES, "units": states})
        given = {"units": ["vllm.service"], "stage": "services", "settled": [job]}
        assert run("services.in_force", host, **given) == commands
        assert bool(host.nooped) == (state == "active")


def test_failures_of_every_stage_of_an_engine_are_forgotten() -> None:
    wanted = {f"lockstep-job-engine-{stage}.service" for stage in engine_build.STAGES}
    assert len(wanted) == 5 and wanted < set(JOB_UNITS)


def test_a_recipe_that_an_image_refused_is_forgotten_with_its_target() -> None:
    assert "lockstep-job-image-check.service" in JOB_UNITS


def in_force(state: dict[str, Any]) -> tuple[list[Any], Host]:
    host = Host({"environments": ENGINES, "units": {"vllm.service": state}})
    commands = run("services.in_force", host, units=["vllm.service"], stage="services")
    return commands, host


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
    found, host = in_force(state)
    assert found == commands
    assert host.nooped == ([] if commands else ["running units are up to date"])
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


def test_a_deploy_asks_systemd_about_every_unit_that_it_writes() -> None:
    asked = questions(RUN)["units"]
    assert RUN.unit_files and set(RUN.unit_files) <= set(asked)


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
    host = Host({"environments": ENGINES, "units": states})
    assert run("services.in_force", host, units=names, stage="gateway", enabled=names) == commands


WEBUI = generation(RUN.files("webui"), "open-webui.service")


@pytest.mark.parametrize(
    ("state", "commands"),
    [
        (unit(UnitFileState="enabled", generation=WEBUI), []),
        (
            unit(UnitFileState="enabled", ActiveState="failed", generation=""),
            [f"{JOB} start-open-webui -- systemctl start open-webui.service"],
        ),
        (
            unit(UnitFileState="disabled", generation=WEBUI),
            ["systemctl enable --quiet open-webui.service"],
        ),
        (
            unit(LoadState="not-found", UnitFileState="", ActiveState="inactive", generation=""),
            [
                "systemctl daemon-reload",
                "systemctl enable --quiet open-webui.service",
                f"{JOB} start-open-webui -- systemctl start open-webui.service",
            ],
        ),
        (
            unit(UnitFileState="enabled", generation="0"),
            [f"{JOB} restart-open-webui -- systemctl restart open-webui.service"],
        ),
    ],
)
def test_open_webui_is_enabled_and_runs(state: dict[str, Any], commands: list[str]) -> None:
    host = Host({"environments": ENGINES, "units": {"open-webui.service": state}})
    names = ["open-webui.service"]
    assert run("services.in_force", host, units=names, stage="webui", enabled=names) == commands


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
    host = Host({"environments": ENGINES, "units": {boots.UNIT: unit(**state)}})
    names = [boots.UNIT]
    given = {"units": names, "stage": "switch", "next_boot": names}
    assert run("services.in_force", host, **given) == commands


def test_units_are_written_with_the_version_that_the_engine_reported() -> None:
    host = Host({"environments": ENGINES, "files": dict.fromkeys(RUN.paths)})
    [command] = run("services.written", host, stage="services")
    paths = [file["path"] for file in command["files"]]
    assert paths == [
        "/etc/lockstep/targets.json",
        "/data/scripts/vllm/qwen36-launch.sh",
        "/data/scripts/llm/sglang-mistral4-launch.sh",
        "/data/scripts/llm/sglang-mistral4-launch-fallback.sh",
        "/etc/systemd/system/vllm-qwen36.service",
        "/etc/systemd/system/sglang-mistral4.service",
        "/etc/systemd/system/sglang-mistral4-fallback.service",
        "/etc/systemd/system/vllm.service",
        "/etc/lockstep/served-weights.json",
    ]


def test_what_no_target_asks_for_any_more_is_stopped_and_removed() -> None:
    old = "/etc/systemd/system/vllm-old.service"
    script = "/data/scripts/llm/old-launch.sh"
    ours = "/etc/systemd/system/vllm.service"
    host = Host({"files.marked": [script, ours, old]})
    assert run("services.forgotten", host) == [
        "systemctl disable --now --quiet vllm-old.service",
        {"remove": [script, old]},
        "systemctl daemon-reload",
    ]
    assert host.logged == [
        f"{script} is of an earlier deploy: removed",
        f"{old} is of an earlier deploy: removed",
    ]


def test_a_module_of_an_earlier_lockstep_is_removed_and_all_others_stay() -> None:
    """Left where engines are found by their folder, it would still be one."""
    left = f"{PROGRAMS}/lockstep/onhost/engines/left.py"
    host = Host({"files.marked": [left, *(file.path for file in programs())]})
    assert run("services.forgotten", host) == [{"remove": [left]}, "systemctl daemon-reload"]


def test_without_its_agent_nothing_is_known_of_a_cluster_either() -> None:
    agent = f"/etc/systemd/system/{AGENT_UNIT}"
    host = Host({"files.marked": [agent]})
    assert run("services.forgotten", host) == [
        f"systemctl disable --now --quiet {AGENT_UNIT}",
        {"remove": [agent, *RECORDS]},
        "systemctl daemon-reload",
    ]


def test_nothing_is_forgotten_when_all_is_asked_for() -> None:
    host = Host({"files.marked": ["/etc/systemd/system/vllm.service"]})
    assert run("services.forgotten", host) == []
    assert host.nooped == ["nothing of an earlier deploy is left over"]


def test_the_api_key_goes_with_the_last_open_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    closed = Host({"files.marked": [API_KEY]})
    assert run("services.forgotten", closed) == [{"remove": [API_KEY]}, "systemctl daemon-reload"]
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
