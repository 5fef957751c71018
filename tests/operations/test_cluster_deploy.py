"""Two Sparks that serve one model together, deployed by the real pyinfra command, in memory."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from a_site import Site, inventory
from a_spark import pins_for, spark
from fake_spark import HOSTS

from group_data import all as all_hosts
from lockstep.files.managed_file import peer_identity
from lockstep.lock import lockfile

pytestmark = pytest.mark.slow

KEY = "/etc/lockstep/secrets/peer-authority.pem"
AGENT = "lockstep-cluster.service"
PROGRAMS = "/usr/bin/python3 /usr/local/lib/lockstep"
ROLLOUT, SWITCH = f"{PROGRAMS} rollout", f"{PROGRAMS} switch"
DOWN = f"job cluster-down: {SWITCH} none --wait"
UP = f"job cluster-up: {ROLLOUT} up both"
MADE = f"{PROGRAMS} peer-certificates"
TAKEN = f"{MADE} --take {KEY} {HOSTS[1]} agent"


BOTH = {"recipe": "deepseek-v4-flash-2x", "unit": "vllm-both", "port": 30009}


def duo_inventory(repository: Path, **more: object) -> str:
    """A pair with one model of both, and these keys of the inventory for it."""
    model = {**BOTH, "cluster": "pair", **more}
    data = {
        "lock": "duo.lock.yaml",
        "models": {**all_hosts.models, "both": model},
        "clusters": {"pair": {"hosts": HOSTS}},
    }
    host_data = [
        {**data, "fabric": {"interfaces": {"enp1s0f0np0": f"10.0.0.{number}/24"}}}
        for number in (1, 2)
    ]
    return inventory(repository, "duo", *host_data)


@pytest.fixture(scope="session")
def duo(repository: Path) -> Site:
    """A pair after its first deploy."""
    models = {**all_hosts.models, "both": BOTH}
    lockfile.save(repository / "duo.lock.yaml", pins_for(spark(models=models)))
    site = Site(repository, {}, duo_inventory(repository))
    site.deploy()
    return site


@pytest.fixture
def again(duo: Site) -> Site:
    """The same pair, to be changed."""
    return duo.again()


def text(site: Site, host: str, path: str = KEY) -> str:
    return str(site.document["hosts"][host]["files"][path]["text"])


def identity(site: Site, host: str) -> str:
    return text(site, host, peer_identity("agent", host))


def test_the_authority_is_made_on_rank_0_and_carried_without_being_shown(duo: Site) -> None:
    first, second = HOSTS
    key = text(duo, first)
    assert key == text(duo, second)
    key_lines = [[line for line in duo.changes(host) if KEY in line] for host in HOSTS]
    assert key_lines == [[f"{MADE} {KEY} {first} agent"], [TAKEN]]
    assert key not in duo.output
    assert not any(key in line for host in HOSTS for line in duo.commands(host))
    # Each member makes a certificate of its own, which is never shown either.
    for host in HOSTS:
        assert identity(duo, host) == f"agent of {host} by {key}"
        assert identity(duo, host) not in duo.output
    assert peer_identity("agent", first) not in duo.document["hosts"][second]["files"]


def test_a_certificate_that_is_lost_open_or_damaged_is_made_again(again: Site) -> None:
    first, second = HOSTS
    for host, command in ((first, f"{MADE} {KEY} {first} agent"), (second, TAKEN)):
        path = peer_identity("agent", host)
        for change in (None, {"mode": "0644"}, {"text": "damaged"}):
            files = again.document["hosts"][host]["files"]
            have = files.pop(path)
            files |= {path: {**have, **change}} if change else {}
            again.deploy()
            assert again.changes(host) == [command, f"systemctl restart {AGENT}"]
            assert identity(again, host) == f"agent of {host} by {text(again, first)}"
        again.deploy()
        assert again.changes(host) == []


def test_a_deploy_is_not_done_where_a_unit_does_not_come_up(again: Site) -> None:
    first, second = HOSTS
    again.document["hosts"][second]["units"]["lockstep-memory.service"]["settled"] = False
    again.deploy(exits=1)
    reason = "lockstep-memory.service is activating (auto-restart): why"
    assert f"FAILED {second}: Verify | Read back the state of the host {reason}" in again.output
    assert f"Done on: {first}" in again.output


def test_the_agent_runs_on_every_member_and_a_second_deploy_changes_nothing(
    duo: Site, again: Site
) -> None:
    for host in HOSTS:
        units = duo.document["hosts"][host]["units"]
        assert (units[AGENT]["UnitFileState"], units[AGENT]["ActiveState"]) == ("enabled", "active")
        assert units["vllm-both.service"]["UnitFileState"] == "disabled"
    again.deploy()
    assert [again.commands(host) for host in HOSTS] == [["? all"], ["? all"]]
    assert again.document["hosts"] == duo.document["hosts"]


def test_a_key_that_differs_in_text_or_group_is_replaced_by_that_of_rank_0(again: Site) -> None:
    first, second = HOSTS
    for field, value in (("text", "sk-another"), ("group", "lockstep")):
        again.document["hosts"][second]["files"][KEY][field] = value
        again.deploy()
        assert again.changes(first) == []
        assert again.changes(second) == [TAKEN, f"systemctl restart {AGENT}"]
        assert text(again, second) == text(again, first)


def test_the_key_of_a_cluster_of_an_earlier_version_is_removed_once(again: Site) -> None:
    first, second = HOSTS
    old = "/etc/lockstep/secrets/cluster-old.key"
    files = again.document["hosts"][second]["files"]
    files[old] = files[KEY]
    for expected_changes in ([f"remove {old}", "systemctl daemon-reload"], []):
        again.deploy()
        assert (again.changes(first), again.changes(second)) == ([], expected_changes)


def test_a_member_alone_keeps_its_key_and_is_refused_without_one(again: Site) -> None:
    first, second = HOSTS
    again.deploy("--limit", second)
    assert again.changes(second) == []
    del again.document["hosts"][second]["files"][KEY]
    again.deploy("--limit", second, exits=1)
    assert "key-elsewhere" in again.output and f"is to come from {first}, which" in again.output
    assert again.commands(second) == ["? all"]


def outdate_units(site: Site) -> None:
    """Make the model hot on both, with other units than this deploy writes."""
    for host in HOSTS:
        unit = site.document["hosts"][host]["units"]["vllm-both.service"]
        unit |= {"ActiveState": "active", "SubState": "running", "restart_key": "0" * 16}


def test_a_dry_run_names_the_model_and_all_members_that_it_would_go_down_on(again: Site) -> None:
    outdate_units(again)
    message = (
        "\nHot models of clusters that would go down on all members, and up again when all\n"
        f"  are done:\n- both: {', '.join(HOSTS)}\n"
    )
    for options in ((), ("--limit", HOSTS[1])):
        result = again.deploy("--dry", *options)
        assert result.stdout.endswith(message)
        assert "each host once the one before it serves" not in result.stdout
        assert not any(again.changes(host) for host in again.document["ran"])


def test_a_hot_model_that_changes_goes_down_on_all_members_and_up_again(again: Site) -> None:
    outdate_units(again)
    again.deploy()
    *earlier_steps, up = again.changes(HOSTS[0])
    before_there = again.changes(HOSTS[1])
    # Once for all members, whoever comes first; no rank is restarted alone, and rank 0 alone
    # starts the group. Each has noted what it had before that.
    assert sorted([*earlier_steps, *before_there]) == [DOWN, "note paths", "note paths"]
    assert up == UP


def test_where_it_does_not_serve_every_member_fails_and_says_that_it_returned(again: Site) -> None:
    first, second = HOSTS
    outdate_units(again)
    why = "both: with what was deployed it does not start"
    again.deploy(fails={first: {"rollout up": why}}, exits=1)
    # The deploy itself has everybody return, between the two starts.
    *_, up, down, return_step, start_step = again.changes(first)
    assert (up, down, start_step) == (UP, DOWN, f"job cluster-up: {SWITCH} both --wait")
    assert re.fullmatch(rf"{ROLLOUT} ended [0-9a-f]{{16}} '?{why}'?", return_step)
    assert again.changes(second)[-1] == return_step
    operation = "Switch | Start the cluster's model again"
    for message in (
        f"FAILED {first}: {operation} {why} both is hot again on all members, as it was",
        f"FAILED {second}: {operation}",
        "both does not serve with what was deployed; this host returned with the other",
    ):
        assert message in again.output


def test_the_members_of_this_run_start_it_when_rank_0_is_left_out(again: Site) -> None:
    first, second = HOSTS
    outdate_units(again)
    again.deploy("--limit", second)
    assert first not in again.document["ran"]
    assert again.changes(second)[-1] == UP


def test_with_a_minimum_rank_0_measures_before_and_after(again: Site) -> None:
    first, second = HOSTS
    outdate_units(again)
    duo_inventory(again.repository, minimum={"not_below": "90 %"})
    try:
        again.deploy()
    finally:
        duo_inventory(again.repository)
    minimum = f"{PROGRAMS} minimum"
    *earlier_steps, up, last = again.changes(first)
    assert last == "record"
    assert f"{minimum} --baseline" in earlier_steps and up.endswith(f" --gate -- {minimum}")
    assert not any(" minimum" in line for line in again.changes(second))
    assert sum("job cluster-down" in line for line in (*earlier_steps, *again.changes(second))) == 1
