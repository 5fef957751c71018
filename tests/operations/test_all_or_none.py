"""`rollout: "all"`: whichever operation fails on the last host, all are as they were before."""

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
    "begin",
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
    """Hosts that a deploy has just been to, with what an earlier one wrote; qwen is hot."""
    path = inventory(repository, f"all{count}", {"rollout": "all"}, count=count)
    site = Site(repository, {}, path)
    done = site.deploy()
    assert done.returncode == 0, done.stdout + done.stderr
    for state in site.document["hosts"].values():
        outdate(state)
    return site


def outdate(state: dict[str, Any]) -> None:
    for name in OLDER:
        unit, file = state["units"][name], state["files"][SYSTEMD + name]
        file["text"] = file["text"].replace(unit["wanted"], OLD)
        unit |= {"wanted": OLD, "generation": OLD, "ActiveState": "active", "SubState": "running"}
    state["files"][WATCH]["text"] += "# older\n"
    state["generations"][-1]["digest"] = OLD


@pytest.fixture(scope="module")
def hosts(repository: Path) -> dict[int, Site]:
    """By their number."""
    return {count: site_of(repository, count) for count in (2, 3)}


@pytest.mark.parametrize(("count", "step"), [*((2, step) for step in STEPS), (3, "job rollout")])
def test_all_hosts_are_as_before_whatever_fails_on_the_last(
    hosts: dict[int, Site], count: int, step: str
) -> None:
    site = Site(hosts[count].repository, hosts[count].document["hosts"], hosts[count].inventory)
    before = copy.deepcopy(site.document["hosts"])
    names = list(before)
    done = site.deploy(fails={names[-1]: {step: "planted"}})
    assert done.returncode == 1, done.stdout + done.stderr
    assert site.document["hosts"] == before
    order = [host for host, line in site.document["order"] if line == "return"]
    assert order == sorted(order, reverse=True) and set(names[:-1]) <= set(order)
    said = " ".join(done.stdout.split())
    assert f"FAILED {names[-1]}: " in said
    assert "The hosts differ" not in said and "Traceback" not in done.stderr
    said_there = site.document["said"][names[0]]
    assert said_there[-1] == f"ended failed on {names[-1]}"


def test_where_none_fails_all_are_told_so_and_nothing_is_kept(hosts: dict[int, Site]) -> None:
    site = Site(hosts[2].repository, hosts[2].document["hosts"], hosts[2].inventory)
    done = site.deploy()
    assert done.returncode == 0, done.stdout + done.stderr
    for name, state in site.document["hosts"].items():
        assert "before" not in state and site.document["said"][name][-1] == "ended done"
        assert site.changes(name)[0] == "begin"
        planted = [any(step in line for step in STEPS) for line in site.changes(name)]
        assert all(planted), "each has its failure above"
        assert {state["units"][unit]["generation"] for unit in OLDER} & {OLD} == set()
    assert site.deploy().returncode == 0
    assert [line for name in site.document["hosts"] for line in site.changes(name)] == []


def test_a_host_that_cannot_be_asked_ends_the_run_before_any_change(hosts: dict[int, Site]) -> None:
    site = Site(hosts[2].repository, hosts[2].document["hosts"], hosts[2].inventory)
    first, second = site.document["hosts"]
    done = site.deploy(fails={second: {"preflight": "python3: not found"}})
    assert done.returncode == 1
    assert site.changes(first) == site.changes(second) == []
    assert f'rollout is "all", and these cannot be asked: {second}.' in " ".join(
        done.stderr.split()
    )
