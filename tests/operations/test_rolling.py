"""Hot models restart host after host to the first failure, or, by `rollout: "all"`, all or none."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from a_site import Site, inventory
from an_older_site import FILE, OLD, UNIT, outdate, plan_restart_of_docker, site_changes
from fake_spark import HOSTS

pytestmark = pytest.mark.slow

ONE, TWO = HOSTS
MESSAGE = "qwen: it does not start; returning to what there was\nqwen is hot again"
MINIMUM = "/usr/bin/python3 /usr/local/lib/lockstep minimum"
# The default mistral has a minimum, so each host asks which of its hot models has one.
ROLLOUT = f"job rollout: /usr/bin/python3 /usr/local/lib/lockstep rollout go --gate -- {MINIMUM}"


def test_hot_hosts_are_changed_one_after_another_in_the_inventorys_order(
    converged_site: Site,
) -> None:
    for host in HOSTS:
        outdate(converged_site, host)
    converged_site.deploy()
    steps = [f"write {FILE}", "systemctl daemon-reload", ROLLOUT]
    assert site_changes(converged_site) == [(host, step) for host in (ONE, TWO) for step in steps]
    for host in HOSTS:
        unit = converged_site.document["hosts"][host]["units"][UNIT]
        assert unit["restart_key"] == unit["wanted"] != OLD


def test_where_the_first_fails_the_second_keeps_everything_that_it_has(
    converged_site: Site,
) -> None:
    for host in HOSTS:
        outdate(converged_site, host)
    earlier_host = copy.deepcopy(converged_site.document["hosts"][TWO])
    result = converged_site.deploy(fails={ONE: {"job rollout": MESSAGE}}, exits=1)
    assert converged_site.changes(TWO) == []
    assert converged_site.document["hosts"][TWO] == earlier_host
    assert result.stdout.endswith(
        f"FAILED  {ONE}: Services | Restart hot models, one host at a time\n"
        "        qwen: it does not start; returning to what there was\n"
        "        qwen is hot again\n"
        f"Held back: {TWO}, where vllm-qwen36 runs on\n"
        "Run the same command again: it goes on where this run ended.\n"
    )


def test_where_the_second_fails_the_end_says_which_host_has_which_generation(
    converged_site: Site,
) -> None:
    for host in HOSTS:
        outdate(converged_site, host)
        converged_site.document["hosts"][host]["generations"][-1]["digest"] = OLD
    result = converged_site.deploy(fails={TWO: {"job rollout": MESSAGE}}, exits=1)
    assert result.stdout.endswith(
        f"Done on: {ONE}\n"
        f"The hosts differ now. The new generation is on: {ONE}. It is not, or not\n"
        f"  whole, on: {TWO}.\n"
        "To make them equal, go on where this run ended:\n"
        "  pyinfra inventories/site.py deploy.py\n"
    )
    converged_site.deploy()


def test_a_deploy_that_fails_behind_the_units_leaves_the_host_as_it_was_before(
    converged_site: Site,
) -> None:
    outdate(converged_site, ONE)
    state = converged_site.document["hosts"][ONE]
    state["generations"][-1]["digest"] = OLD
    script = "/data/scripts/llm/switch.sh"
    state["files"][script]["text"] += "# older\n"
    earlier_host = copy.deepcopy(state)
    converged_site.deploy(fails={ONE: {f"write {script}": "planted"}}, exits=1)
    assert ROLLOUT in converged_site.changes(ONE), "its model ran with the new files"
    assert converged_site.changes(ONE)[-1] == "return"
    assert converged_site.document["hosts"][ONE] == earlier_host
    assert converged_site.document["said"][ONE][-1].startswith("ended failed at Switch")
    converged_site.deploy()
    state = converged_site.document["hosts"][ONE]
    assert state["generations"][-1]["digest"] != OLD and "begun" not in state
    converged_site.deploy()
    assert converged_site.changes(ONE) == []


def test_a_host_without_a_hot_model_comes_after_those_with_one(converged_site: Site) -> None:
    outdate(converged_site, ONE, hot=False)
    outdate(converged_site, TWO)
    converged_site.deploy()
    assert [host for host, _ in site_changes(converged_site)] == [TWO] * 3 + [ONE] * 2


def test_a_generation_that_failed_is_given_to_no_cold_host_either(converged_site: Site) -> None:
    outdate(converged_site, ONE, hot=False)
    outdate(converged_site, TWO)
    converged_site.deploy(fails={TWO: {"job rollout": MESSAGE}}, exits=1)
    assert converged_site.changes(ONE) == []
    assert f"Held back: {ONE}, where no model runs, as before" in converged_site.output


def test_what_restarts_nothing_is_done_on_all_hosts_by_the_same_operations(
    converged_site: Site,
) -> None:
    for host in HOSTS:
        outdate(converged_site, host, hot=False)
    converged_site.deploy()
    for host in HOSTS:
        assert converged_site.changes(host) == [f"write {FILE}", "systemctl daemon-reload"]


def test_a_hot_unit_that_no_model_names_any_more_is_ended_in_turn(converged_site: Site) -> None:
    path = "/etc/systemd/system/vllm-old.service"
    for host in HOSTS:
        state = converged_site.document["hosts"][host]
        state["files"][path] = {**state["files"][FILE], "text": "# Generated by Lockstep\n"}
        hot = {"ActiveState": "active", "SubState": "running"}
        state["units"]["vllm-old.service"] = {**state["units"][UNIT], **hot}
    converged_site.deploy()
    steps = [
        *("systemctl daemon-reload", ROLLOUT, "note paths"),
        *("systemctl disable --now --quiet vllm-old.service", f"remove {path}"),
        "systemctl daemon-reload",
    ]
    assert site_changes(converged_site) == [(host, step) for host in (ONE, TWO) for step in steps]


@pytest.fixture
def site_with_minimum(converged_site: Site) -> Iterator[Site]:
    """Group data demands that qwen stays as fast as it was."""
    data = converged_site.repository / "group_data/site.py"
    data.write_text(
        "from group_data import all as every\n"
        '_qwen = {**every.models["qwen"], "minimum": {"decode_tok_s": 60, "not_below": "90 %"}}\n'
        'models = {**every.models, "qwen": _qwen}\n'
    )
    yield converged_site
    data.unlink()


def test_with_a_minimum_the_old_engine_is_measured_and_the_new_one_must_pass(
    site_with_minimum: Site,
) -> None:
    outdate(site_with_minimum, ONE)
    site_with_minimum.deploy()
    # The gateway knows the models from its start.
    gateway = "/etc/systemd/system/lockstep-gateway.service"
    files = f"write /etc/lockstep/models.json {FILE} {gateway}"
    notes = ("note generation", "record")
    assert [line for line in site_with_minimum.changes(ONE) if line not in notes] == [
        f"{MINIMUM} --baseline",
        files,
        "systemctl daemon-reload",
        ROLLOUT,
    ]
    # The minimum alone restarts nothing, and measures nothing.
    assert [line for line in site_with_minimum.changes(TWO) if " minimum" in line] == []


def test_a_dry_run_says_what_would_be_restarted_in_which_order(converged_site: Site) -> None:
    for host in reversed(HOSTS):
        outdate(converged_site, host)
    earlier_hosts = copy.deepcopy(converged_site.document["hosts"])
    # Where nothing is done, options may leave no host its turn.
    result = converged_site.deploy("--dry", "--serial", "--parallel", "1")
    assert site_changes(converged_site) == []
    assert converged_site.document["hosts"] == earlier_hosts
    assert result.stdout.endswith(
        "Hot models that would be restarted, each host once the one before it serves:\n"
        f"1. {ONE}: {UNIT}\n2. {TWO}: {UNIT}\n"
    )


@pytest.mark.parametrize(
    "options",
    [("--serial",), ("--no-wait",), ("--parallel=1",), ("--data", "_serial=1")],
    ids=" ".join,
)
def test_options_that_leave_no_host_its_turn_are_refused(
    converged_site: Site, options: Sequence[str]
) -> None:
    converged_site.deploy(*options, exits=1)
    assert "cannot be used: the deploy itself says" in converged_site.output
    assert site_changes(converged_site) == []


def test_dockers_restart_ends_models_and_so_goes_from_host_to_host(converged_site: Site) -> None:
    for host in HOSTS:
        plan_restart_of_docker(converged_site, host)
    converged_site.deploy(fails={TWO: {"job docker-restarted": "it does not start"}}, exits=1)
    steps = [
        "systemctl daemon-reload",
        "systemctl reset-failed docker.service",
        "timeout --verbose 300 systemctl restart docker.service",
        f"job docker-restarted: systemctl start {UNIT}",
    ]
    assert site_changes(converged_site) == [(ONE, step) for step in steps] + [
        (TWO, s) for s in steps[:3]
    ]
    assert f"Done on: {ONE}" in converged_site.output


SYSTEMD = "/etc/systemd/system/"
OLDER = tuple(f"{name}.service" for name in ("vllm-qwen36", "lockstep-gateway", "open-webui"))
WATCH = "/data/scripts/llm/switch.sh"
# Each command that changes a host between its old and its new generation, but for the return.
STEPS = (
    "note generation",
    "write /etc/systemd/system/vllm-qwen36",
    "systemctl daemon-reload",
    "job rollout",
    f"write {WATCH}",
    "write /etc/systemd/system/open-webui",
    "job restart-open-webui",
    "record",
)


def outdate_whole(state: dict[str, Any]) -> None:
    for name in OLDER:
        unit, file = state["units"][name], state["files"][SYSTEMD + name]
        file["text"] = file["text"].replace(unit["wanted"], OLD)
        unit |= {"wanted": OLD, "restart_key": OLD, "ActiveState": "active", "SubState": "running"}
    state["files"][WATCH]["text"] += "# older\n"
    state["generations"][-1]["digest"] = OLD


@pytest.fixture(scope="module")
def older_sites(repository: Path) -> dict[int, Site]:
    """Number → older_sites just after a deploy, with files of an earlier one; qwen is hot."""
    sites = {}
    for count in (2, 3):
        path = inventory(repository, f"all{count}", {"rollout": "all"}, count=count)
        sites[count] = Site(repository, {}, path)
        sites[count].deploy()
        for state in sites[count].document["hosts"].values():
            outdate_whole(state)
    return sites


@pytest.mark.parametrize(("count", "step"), [*((2, step) for step in STEPS), (3, "job rollout")])
def test_all_hosts_are_as_before_whatever_fails_on_the_last(
    older_sites: dict[int, Site], count: int, step: str
) -> None:
    site = older_sites[count].again()
    earlier_hosts = copy.deepcopy(site.document["hosts"])
    names = list(earlier_hosts)
    site.deploy(fails={names[-1]: {step: "planted"}}, exits=1)
    assert site.document["hosts"] == earlier_hosts
    order = [host for host, line in site.document["order"] if line == "return"]
    assert order == sorted(order, reverse=True)
    # With the note alone nothing is changed yet.
    assert set(names[:-1]) <= set(order) or step == "note generation"
    assert f"FAILED {names[-1]}: " in site.output and "The older_sites differ" not in site.output
    assert site.document["said"][names[0]][-1] == f"ended failed on {names[-1]}"


def test_where_none_fails_all_are_told_so_and_nothing_is_kept(older_sites: dict[int, Site]) -> None:
    site = older_sites[2].again()
    site.deploy()
    for name, state in site.document["hosts"].items():
        assert "journal" not in state and site.document["said"][name][-1] == "ended done"
        planted_steps = [any(step in line for step in STEPS) for line in site.changes(name)]
        assert all(planted_steps), "each has its failure above"
        assert {state["units"][unit]["restart_key"] for unit in OLDER} & {OLD} == set()
    site.deploy()
    assert [line for name in site.document["hosts"] for line in site.changes(name)] == []


def test_a_host_that_cannot_be_asked_ends_the_run_before_any_change(
    older_sites: dict[int, Site],
) -> None:
    site = older_sites[2].again()
    first, second = site.document["hosts"]
    site.deploy(fails={second: {"preflight": "python3: not found"}}, exits=1)
    assert site.changes(first) == site.changes(second) == []
    assert f'rollout is "all", and these cannot be asked: {second}.' in site.output
