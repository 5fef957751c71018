"""Two Sparks that serve one model together, deployed by the real pyinfra command, in memory."""

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

FIRST, SECOND = HOSTS
KEY = "/etc/lockstep/secrets/peer-authority.pem"
AGENT = "lockstep-cluster.service"
PROGRAMS = "/usr/bin/python3 /usr/local/lib/lockstep"
ROLLOUT, SWITCH = f"{PROGRAMS} rollout", f"{PROGRAMS} switch"
DOWN = f"job cluster-down: {SWITCH} none --wait"
UP = f"job cluster-up: {ROLLOUT} up both"
MADE = f"{PROGRAMS} peer-certificates {KEY} {FIRST} agent"
TAKEN = f"{PROGRAMS} peer-certificates --take {KEY} {SECOND} agent"
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


@pytest.fixture
def hot_pair(again: Site) -> Site:
    """The pair with its model hot on both, by other units than this deploy writes."""
    for host in HOSTS:
        unit = again.document["hosts"][host]["units"]["vllm-both.service"]
        unit |= {"ActiveState": "active", "SubState": "running", "restart_key": "0" * 16}
    return again


def text(site: Site, host: str, path: str = KEY) -> str:
    return str(site.document["hosts"][host]["files"][path]["text"])


def test_the_authority_is_made_on_rank_0_and_carried_without_being_shown(duo: Site) -> None:
    key = text(duo, FIRST)
    assert key == text(duo, SECOND)
    key_lines = [[line for line in duo.changes(host) if KEY in line] for host in HOSTS]
    assert key_lines == [[MADE], [TAKEN]]
    assert key not in duo.output
    assert not any(key in line for host in HOSTS for line in duo.commands(host))
    # Each member makes a certificate of its own, which is never shown either.
    for host in HOSTS:
        identity = text(duo, host, peer_identity("agent", host))
        assert identity == f"agent of {host} by {key}" and identity not in duo.output
    assert peer_identity("agent", FIRST) not in duo.document["hosts"][SECOND]["files"]


def test_a_certificate_that_is_lost_open_or_damaged_is_made_again(again: Site) -> None:
    paths = {host: peer_identity("agent", host) for host in HOSTS}
    for changes in ((None, {"text": "damaged"}), ({"mode": "0644"}, None)):
        for (host, path), change in zip(paths.items(), changes, strict=True):
            files = again.document["hosts"][host]["files"]
            have = files.pop(path)
            files |= {path: {**have, **change}} if change else {}
        again.deploy()
        for host, command in ((FIRST, MADE), (SECOND, TAKEN)):
            assert again.changes(host) == [command, f"systemctl restart {AGENT}"]
            assert text(again, host, paths[host]) == f"agent of {host} by {text(again, FIRST)}"


def test_a_deploy_is_not_done_where_a_unit_does_not_come_up(again: Site) -> None:
    again.document["hosts"][SECOND]["units"]["lockstep-memory.service"]["settled"] = False
    again.deploy(exits=1)
    reason = "lockstep-memory.service is activating (auto-restart): why"
    assert f"FAILED {SECOND}: Verify | Read back the state of the host {reason}" in again.output
    assert f"Done on: {FIRST}" in again.output


def test_the_agent_runs_on_every_member_and_a_second_deploy_changes_nothing(duo, again) -> None:
    for host in HOSTS:
        units = duo.document["hosts"][host]["units"]
        assert (units[AGENT]["UnitFileState"], units[AGENT]["ActiveState"]) == ("enabled", "active")
        assert units["vllm-both.service"]["UnitFileState"] == "disabled"
    again.deploy()
    assert [again.commands(host) for host in HOSTS] == [["? all"], ["? all"]]
    assert again.document["hosts"] == duo.document["hosts"]


def test_a_member_whose_key_differs_gets_that_of_rank_0(again: Site) -> None:
    again.document["hosts"][SECOND]["files"][KEY]["text"] = "sk-another"
    again.deploy()
    assert again.changes(FIRST) == []
    assert again.changes(SECOND) == [TAKEN, f"systemctl restart {AGENT}"]
    assert text(again, SECOND) == text(again, FIRST)


def test_a_member_alone_keeps_its_key_and_is_refused_without_one(again: Site) -> None:
    again.deploy("--limit", SECOND)
    assert again.changes(SECOND) == []
    del again.document["hosts"][SECOND]["files"][KEY]
    again.deploy("--limit", SECOND, exits=1)
    assert "key-elsewhere" in again.output and f"is to come from {FIRST}, which" in again.output
    assert again.commands(SECOND) == ["? all"]


def test_a_dry_run_names_the_model_and_all_members_that_it_would_go_down_on(hot_pair) -> None:
    result = hot_pair.deploy("--dry", "--limit", SECOND)
    assert result.stdout.endswith(
        "\nHot models of clusters that would go down on all members, and up again when all\n"
        f"  are done:\n- both: {', '.join(HOSTS)}\n"
    )
    assert "each host once the one before it serves" not in result.stdout
    assert hot_pair.changes(SECOND) == []


def test_a_hot_model_that_changes_goes_down_on_all_members_and_up_again(hot_pair: Site) -> None:
    hot_pair.deploy()
    *earlier_steps, up = hot_pair.changes(FIRST)
    # Once for all members, whoever comes first; no rank is restarted alone, and rank 0 alone
    # starts the group. Each has noted what it had before that.
    steps = [*earlier_steps, *hot_pair.changes(SECOND)]
    assert sorted(steps) == [DOWN, "note paths", "note paths"]
    assert up == UP


def test_where_it_does_not_serve_every_member_fails_and_says_that_it_returned(hot_pair) -> None:
    why = "both: with what was deployed it does not start"
    hot_pair.deploy(fails={FIRST: {"rollout up": why}}, exits=1)
    # The deploy itself has everybody return, between the two starts.
    *_, up, down, return_step, start_step = hot_pair.changes(FIRST)
    assert (up, down, start_step) == (UP, DOWN, f"job cluster-up: {SWITCH} both --wait")
    assert re.fullmatch(rf"{ROLLOUT} ended [0-9a-f]{{16}} '?{why}'?", return_step)
    assert hot_pair.changes(SECOND)[-1] == return_step
    operation = "Switch | Start the cluster's model again"
    for message in (
        f"FAILED {FIRST}: {operation} {why} both is hot again on all members, as it was",
        f"FAILED {SECOND}: {operation}",
        "both does not serve with what was deployed; this host returned with the other",
    ):
        assert message in hot_pair.output


def test_the_members_of_this_run_start_it_when_rank_0_is_left_out(hot_pair: Site) -> None:
    hot_pair.deploy("--limit", SECOND)
    assert FIRST not in hot_pair.document["ran"]
    assert hot_pair.changes(SECOND)[-1] == UP


def test_with_a_minimum_rank_0_measures_before_and_after(hot_pair: Site) -> None:
    duo_inventory(hot_pair.repository, minimum={"not_below": "90 %"})
    try:
        hot_pair.deploy()
    finally:
        duo_inventory(hot_pair.repository)
    minimum = f"{PROGRAMS} minimum"
    *earlier_steps, up, last = hot_pair.changes(FIRST)
    assert last == "record"
    assert f"{minimum} --baseline" in earlier_steps and up.endswith(f" --gate -- {minimum}")
    assert not any(" minimum" in line for line in hot_pair.changes(SECOND))
