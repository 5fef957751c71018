"""A deploy that restarts hot models goes from host to host, and stops at the first that fails."""

from __future__ import annotations

import copy
import subprocess
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
from a_site import Site
from an_older_site import FILE, OLD, UNIT, changed, outdate
from fake_spark import HOSTS
from pyinfra.context import ctx_state

from lockstep.tasks.turns import obstacle

pytestmark = pytest.mark.slow

ONE, TWO = HOSTS
MESSAGE = "qwen: it does not start; returning to what there was\nqwen is hot again"
FLOOR = "/usr/bin/python3 /usr/local/lib/lockstep floor"
# The default mistral has a floor, so each host asks which of its hot targets has one.
ROLLOUT = f"job rollout: /usr/bin/python3 /usr/local/lib/lockstep rollout go --gate -- {FLOOR}"


def closing(done: subprocess.CompletedProcess[str]) -> str:
    return " ".join(done.stdout.split())


def test_hot_hosts_are_changed_one_after_another_in_the_inventorys_order(converged: Site) -> None:
    for host in HOSTS:
        outdate(converged, host)
    done = converged.deploy()
    assert done.returncode == 0, done.stderr
    steps = ["begin", f"write {FILE}", "systemctl daemon-reload", ROLLOUT]
    assert changed(converged) == [(host, step) for host in (ONE, TWO) for step in steps]
    for host in HOSTS:
        unit = converged.document["hosts"][host]["units"][UNIT]
        assert unit["generation"] == unit["wanted"] != OLD


def test_where_the_first_fails_the_second_keeps_everything_that_it_has(converged: Site) -> None:
    for host in HOSTS:
        outdate(converged, host)
    before = copy.deepcopy(converged.document["hosts"][TWO])
    done = converged.deploy(fails={ONE: {"job rollout": MESSAGE}})
    assert done.returncode == 1
    assert converged.changes(TWO) == []
    assert converged.document["hosts"][TWO] == before
    assert done.stdout.endswith(
        f"FAILED  {ONE}: Services | Restart hot models, one host at a time\n"
        "        qwen: it does not start; returning to what there was\n"
        "        qwen is hot again\n"
        f"Held back: {TWO}, where vllm-qwen36 runs on\n"
        "Run the same command again: it goes on where this run ended.\n"
    )
    assert "Traceback" not in done.stderr


def test_where_the_second_fails_the_end_says_which_host_has_which_generation(
    converged: Site,
) -> None:
    for host in HOSTS:
        outdate(converged, host)
        converged.document["hosts"][host]["generations"][-1]["digest"] = OLD
    done = converged.deploy(fails={TWO: {"job rollout": MESSAGE}})
    assert done.returncode == 1
    assert done.stdout.endswith(
        f"Done on: {ONE}\n"
        f"The hosts differ now. The new generation is on: {ONE}. It is not, or not\n"
        f"  whole, on: {TWO}.\n"
        "To make them equal, go on where this run ended:\n"
        "  pyinfra inventories/site.py deploy.py\n"
    )
    assert converged.deploy().returncode == 0


def test_a_deploy_that_fails_behind_the_units_leaves_the_record_of_the_generation_before(
    converged: Site,
) -> None:
    outdate(converged, ONE)
    state = converged.document["hosts"][ONE]
    state["generations"][-1]["digest"] = OLD
    script = "/data/scripts/llm/switch.sh"
    state["files"][script]["text"] += "# older\n"
    records = copy.deepcopy(state["generations"])
    done = converged.deploy(fails={ONE: {f"write {script}": "planted"}})
    assert done.returncode == 1
    state = converged.document["hosts"][ONE]
    # It runs with the new generation, and is not it.
    unit = state["units"][UNIT]
    assert unit["generation"] == unit["wanted"] != OLD
    assert state["generations"] == records
    assert state["begun"]["digest"] != OLD
    assert converged.document["said"][ONE][-1].startswith("ended failed at Switch")
    assert converged.deploy().returncode == 0
    state = converged.document["hosts"][ONE]
    assert state["generations"][-1]["digest"] != OLD and "begun" not in state
    assert converged.deploy().returncode == 0
    assert converged.changes(ONE) == []


def test_a_host_without_a_hot_model_comes_after_those_with_one(converged: Site) -> None:
    outdate(converged, ONE, hot=False)
    outdate(converged, TWO)
    done = converged.deploy()
    assert done.returncode == 0
    assert [host for host, _ in changed(converged)] == [TWO] * 4 + [ONE] * 2
    assert "begin" not in converged.changes(ONE)


def test_a_generation_that_failed_is_given_to_no_cold_host_either(converged: Site) -> None:
    outdate(converged, ONE, hot=False)
    outdate(converged, TWO)
    done = converged.deploy(fails={TWO: {"job rollout": MESSAGE}})
    assert done.returncode == 1
    assert converged.changes(ONE) == []
    assert f"Held back: {ONE}, where no model runs, as before" in closing(done)


def test_what_restarts_nothing_is_done_on_all_hosts_by_the_same_operations(converged: Site) -> None:
    for host in HOSTS:
        outdate(converged, host, hot=False)
    done = converged.deploy()
    assert done.returncode == 0
    for host in HOSTS:
        assert converged.changes(host) == [f"write {FILE}", "systemctl daemon-reload"]


def test_a_restart_that_an_earlier_run_owed_has_its_turn_too(converged: Site) -> None:
    for host in HOSTS:
        state = converged.document["hosts"][host]["units"][UNIT]
        state |= {"ActiveState": "active", "SubState": "running", "generation": OLD}
    done = converged.deploy()
    assert done.returncode == 0
    steps = ["begin", "systemctl daemon-reload", ROLLOUT]
    assert changed(converged) == [(host, step) for host in (ONE, TWO) for step in steps]


def test_a_hot_unit_that_no_target_names_any_more_is_ended_in_turn(converged: Site) -> None:
    path = "/etc/systemd/system/vllm-old.service"
    for host in HOSTS:
        state = converged.document["hosts"][host]
        state["files"][path] = {**state["files"][FILE], "text": "# Generated by Lockstep\n"}
        hot = {"ActiveState": "active", "SubState": "running"}
        state["units"]["vllm-old.service"] = {**state["units"][UNIT], **hot}
    done = converged.deploy()
    assert done.returncode == 0
    steps = [
        *("begin", "systemctl daemon-reload", ROLLOUT),
        *("systemctl disable --now --quiet vllm-old.service", f"remove {path}"),
        "systemctl daemon-reload",
    ]
    assert changed(converged) == [(host, step) for host in (ONE, TWO) for step in steps]


@pytest.fixture
def floored(converged: Site) -> Iterator[Site]:
    """Group data demands that qwen stays as fast as it was."""
    data = converged.repository / "group_data/site.py"
    data.write_text(
        "from group_data import all as every\n"
        '_qwen = {**every.targets["qwen"], "floor": {"decode_tok_s": 60, "not_below": "90 %"}}\n'
        'targets = {**every.targets, "qwen": _qwen}\n'
    )
    yield converged
    data.unlink()


def test_with_a_floor_the_old_engine_is_measured_and_the_new_one_must_pass(floored: Site) -> None:
    outdate(floored, ONE)
    done = floored.deploy()
    assert done.returncode == 0, done.stdout + done.stderr
    # The gateway knows the targets from its start.
    gateway = "/etc/systemd/system/lockstep-gateway.service"
    files = f"write /etc/lockstep/targets.json {FILE} {gateway}"
    notes = ("note generation", "record")
    assert [line for line in floored.changes(ONE) if line not in notes] == [
        f"{FLOOR} --baseline",
        "begin",
        files,
        "systemctl daemon-reload",
        ROLLOUT,
    ]
    # The floor alone restarts nothing, and measures nothing.
    assert [line for line in floored.changes(TWO) if " floor" in line] == []


def test_a_dry_run_says_what_would_be_restarted_in_which_order(converged: Site) -> None:
    for host in reversed(HOSTS):
        outdate(converged, host)
    before = copy.deepcopy(converged.document["hosts"])
    done = converged.deploy("--dry")
    assert done.returncode == 0
    assert changed(converged) == []
    assert converged.document["hosts"] == before
    assert done.stdout.endswith(
        "Hot models that would be restarted, each host once the one before it serves:\n"
        f"1. {ONE}: {UNIT}\n2. {TWO}: {UNIT}\n"
    )


def test_options_that_leave_no_host_its_turn_are_refused(converged: Site) -> None:
    done = converged.deploy("--parallel", "1")
    assert done.returncode == 1
    said = " ".join(done.stderr.split())
    assert "--parallel 1 cannot be used" in said and "Remedy: leave such options out, or" in said
    assert changed(converged) == []
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("words", "parallel", "found"),
    [
        (["-y"], 3, None),
        (["-y", "--serial"], 3, "--serial"),
        (["--no-wait"], 3, "--no-wait"),
        (["-y", "--parallel", "2"], 2, "--parallel 2"),
        (["-y"], 2, "pyinfra's own 2 hosts at a time"),
    ],
)
def test_which_options_leave_no_host_its_turn(
    monkeypatch: pytest.MonkeyPatch, words: list[str], parallel: int, found: str | None
) -> None:
    monkeypatch.setattr("sys.argv", ["pyinfra", *words])
    with ctx_state.use(SimpleNamespace(config=SimpleNamespace(PARALLEL=parallel))):
        assert obstacle(3) == found


def test_dockers_restart_ends_models_and_so_goes_from_host_to_host(converged: Site) -> None:
    for host in HOSTS:
        units = converged.document["hosts"][host]["units"]
        hot = {"ActiveState": "active", "SubState": "running"}
        units[UNIT] |= {**hot, "generation": units[UNIT]["wanted"]}
        units["docker.service"] = {**units[UNIT], **hot, "outdated": True, "wanted": ""}
    done = converged.deploy(fails={TWO: {"job docker-restarted": "it does not start"}})
    assert done.returncode == 1
    steps = [
        "systemctl daemon-reload",
        "systemctl reset-failed docker.service",
        "timeout --verbose 300 systemctl restart docker.service",
        f"job docker-restarted: systemctl start {UNIT}",
    ]
    assert changed(converged) == [(ONE, step) for step in steps] + [(TWO, s) for s in steps[:3]]
    assert f"Done on: {ONE}" in closing(done)
