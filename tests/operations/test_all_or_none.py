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


def outdate(state: dict[str, Any]) -> None:
    for name in OLDER:
        unit, file = state["units"][name], state["files"][SYSTEMD + name]
        file["text"] = file["text"].replace(unit["wanted"], OLD)
        unit |= {"wanted": OLD, "restart_key": OLD, "ActiveState": "active", "SubState": "running"}
    state["files"][WATCH]["text"] += "# older\n"
    state["generations"][-1]["digest"] = OLD


@pytest.fixture(scope="module")
def hosts(repository: Path) -> dict[int, Site]:
    """Number → hosts just after a deploy, with files of an earlier one; qwen is hot."""
    sites = {}
    for count in (2, 3):
        path = inventory(repository, f"all{count}", {"rollout": "all"}, count=count)
        sites[count] = Site(repository, {}, path)
        sites[count].deploy()
        for state in sites[count].document["hosts"].values():
            outdate(state)
    return sites


@pytest.mark.parametrize(("count", "step"), [*((2, step) for step in STEPS), (3, "job rollout")])
def test_all_hosts_are_as_before_whatever_fails_on_the_last(
    hosts: dict[int, Site], count: int, step: str
) -> None:
    site = hosts[count].again()
    earlier_hosts = copy.deepcopy(site.document["hosts"])
    names = list(earlier_hosts)
    site.deploy(fails={names[-1]: {step: "planted"}}, exits=1)
    assert site.document["hosts"] == earlier_hosts
    order = [host for host, line in site.document["order"] if line == "return"]
    assert order == sorted(order, reverse=True)
    # With the note alone nothing is changed yet.
    assert set(names[:-1]) <= set(order) or step == "note generation"
    assert f"FAILED {names[-1]}: " in site.output and "The hosts differ" not in site.output
    assert site.document["said"][names[0]][-1] == f"ended failed on {names[-1]}"


def test_where_none_fails_all_are_told_so_and_nothing_is_kept(hosts: dict[int, Site]) -> None:
    site = hosts[2].again()
    site.deploy()
    for name, state in site.document["hosts"].items():
        assert "journal" not in state and site.document["said"][name][-1] == "ended done"
        planted_steps = [any(step in line for step in STEPS) for line in site.changes(name)]
        assert all(planted_steps), "each has its failure above"
        assert {state["units"][unit]["restart_key"] for unit in OLDER} & {OLD} == set()
    site.deploy()
    assert [line for name in site.document["hosts"] for line in site.changes(name)] == []


def test_a_host_that_cannot_be_asked_ends_the_run_before_any_change(hosts: dict[int, Site]) -> None:
    site = hosts[2].again()
    first, second = site.document["hosts"]
    site.deploy(fails={second: {"preflight": "python3: not found"}}, exits=1)
    assert site.changes(first) == site.changes(second) == []
    assert f'rollout is "all", and these cannot be asked: {second}.' in site.output
