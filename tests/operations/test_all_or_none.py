"""`rollout: "all"`: any operation may fail on the last host, and all hosts are as before."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
from a_site import Site, inventory

pytestmark = pytest.mark.slow

OLD = "0123456789abcdef"
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


def site_of(repository: Path, count: int) -> Site:
    """Hosts just after a deploy, with files of an earlier one; qwen is hot."""
    path = inventory(repository, f"all{count}", {"rollout": "all"}, count=count)
    site = Site(repository, {}, path)
    result = site.deploy()
    assert result.returncode == 0, result.stdout + result.stderr
    for state in site.document["hosts"].values():
        outdate(state)
    return site


def outdate(state: dict[str, Any]) -> None:
    for name in OLDER:
        unit, file = state["units"][name], state["files"][SYSTEMD + name]
        file["text"] = file["text"].replace(unit["wanted"], OLD)
        unit |= {"wanted": OLD, "restart_key": OLD, "ActiveState": "active", "SubState": "running"}
    state["files"][WATCH]["text"] += "# older\n"
    state["generations"][-1]["digest"] = OLD


@pytest.fixture(scope="module")
def hosts(repository: Path) -> dict[int, Site]:
    """The hosts by their number."""
    return {count: site_of(repository, count) for count in (2, 3)}


@pytest.mark.parametrize(("count", "step"), [*((2, step) for step in STEPS), (3, "job rollout")])
def test_all_hosts_are_as_before_whatever_fails_on_the_last(
    hosts: dict[int, Site], count: int, step: str
) -> None:
    site = Site(hosts[count].repository, hosts[count].document["hosts"], hosts[count].inventory)
    earlier_hosts = copy.deepcopy(site.document["hosts"])
    names = list(earlier_hosts)
    result = site.deploy(fails={names[-1]: {step: "planted"}})
    assert result.returncode == 1, result.stdout + result.stderr
    assert site.document["hosts"] == earlier_hosts
    order = [host for host, line in site.document["order"] if line == "return"]
    assert order == sorted(order, reverse=True)
    # With the note alone nothing is changed yet.
    assert set(names[:-1]) <= set(order) or step == "note generation"
    output = " ".join(result.stdout.split())
    assert f"FAILED {names[-1]}: " in output
    assert "The hosts differ" not in output and "Traceback" not in result.stderr
    said_there = site.document["said"][names[0]]
    assert said_there[-1] == f"ended failed on {names[-1]}"


def test_where_none_fails_all_are_told_so_and_nothing_is_kept(hosts: dict[int, Site]) -> None:
    site = Site(hosts[2].repository, hosts[2].document["hosts"], hosts[2].inventory)
    result = site.deploy()
    assert result.returncode == 0, result.stdout + result.stderr
    for name, state in site.document["hosts"].items():
        assert "journal" not in state and site.document["said"][name][-1] == "ended done"
        planted_steps = [any(step in line for step in STEPS) for line in site.changes(name)]
        assert all(planted_steps), "each has its failure above"
        assert {state["units"][unit]["restart_key"] for unit in OLDER} & {OLD} == set()
    assert site.deploy().returncode == 0
    assert [line for name in site.document["hosts"] for line in site.changes(name)] == []


def test_a_host_that_cannot_be_asked_ends_the_run_before_any_change(hosts: dict[int, Site]) -> None:
    site = Site(hosts[2].repository, hosts[2].document["hosts"], hosts[2].inventory)
    first, second = site.document["hosts"]
    result = site.deploy(fails={second: {"preflight": "python3: not found"}})
    assert result.returncode == 1
    assert site.changes(first) == site.changes(second) == []
    assert f'rollout is "all", and these cannot be asked: {second}.' in " ".join(
        result.stderr.split()
    )
