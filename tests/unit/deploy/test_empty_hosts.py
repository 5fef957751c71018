"""`lockstep deploy` about an empty host: the content that comes there, and its sources."""

from dataclasses import replace
from typing import Any

from a_spark import GIB, healthy, pins_for, spark

from lockstep.deploy.closing import empty_host
from lockstep.deploy.empty_hosts import EmptyHost, empty_hosts
from lockstep.host.desired_state import DesiredState
from lockstep.inventory.cluster_join import join_clusters
from lockstep.preflight import questions


def hosts(*, full: str = "", **data: Any) -> dict[str, EmptyHost]:
    """Two empty hosts that may copy from each other; of `full` everything is there."""
    plans = join_clusters([spark(name, **data) for name in ("spark1", "spark2")], "the inventory")
    pins = pins_for(plans[0])
    named_hosts = {}
    for plan in plans:
        facts = healthy(plan, 0)
        if plan.name == full:
            facts["checkpoints"] = {name: {64 * "e": 20 * GIB} for name in pins.checkpoints}
            facts["docker"]["images"] = list(questions(plan, pins)["images"].values())
        else:
            facts["checkpoints"] = {name: {} for name in pins.checkpoints}
            facts["docker"]["images"] = []
        desired_state = DesiredState(plan, pins)
        keys = {path for key in desired_state.shared_keys for path in key.file_modes(plan.name)}
        seals = {path: {"seal": "of spark1"} if plan.name == full else None for path in keys}
        peers = [other_plan.name for other_plan in plans if other_plan is not plan]
        named_hosts[plan.name] = EmptyHost(
            desired_state, facts, seals, peers, plan.name != full, False
        )
    return named_hosts


def lines_of(named_hosts: dict[str, EmptyHost]) -> list[str]:
    return [line for event in empty_hosts(named_hosts) for line in empty_host(event)]


def test_two_new_hosts_fetch_everything_once_but_for_one_that_copies_from_nobody() -> None:
    lines = lines_of(hosts())
    models = len(hosts()["spark1"].desired_state.pins.checkpoints)
    assert lines[0] == "spark1 is new: this deploy builds it"
    assert lines[1] == f"  weights: {models * 20 * GIB / 1e9:.1f} GB, {models} from the internet"
    at = lines.index("spark2 is new: this deploy builds it")
    assert lines[at + 1].endswith(f" GB, {models} from spark1")
    assert not any("chats" in line for line in lines)
    named_hosts = {name: replace(host, peers=()) for name, host in hosts(full="spark1").items()}
    assert "from spark1" not in lines_of(named_hosts)[1]
    named_hosts = {name: replace(host, empty=False) for name, host in named_hosts.items()}
    assert lines_of(named_hosts) == []


def test_a_wiped_host_gets_weights_images_and_keys_from_its_peer_and_says_what_is_lost() -> None:
    named_hosts = hosts(full="spark1", gateway={"bind": "0.0.0.0", "tls": "own"})
    named_hosts["spark2"] = replace(named_hosts["spark2"], was_deployed=True)
    lines = lines_of(named_hosts)
    assert lines[0] == (
        "spark2 was deployed to before, and nothing of it is there: this deploy builds it"
    )
    assert lines[1].endswith(" from spark1")
    assert lines[2].startswith("  images: ")
    assert "internet" not in lines[2]
    assert any(line.startswith("  from spark1: ") and "authority" in line for line in lines)
    assert lines[-1] == "  chats: Open WebUI begins without any; no backup of them lies elsewhere"
    backup = {"enabled": True, "to": ("sftp:anna@nas.local:/volume1",)}
    named_hosts = hosts(full="spark1", backup=backup)
    named_hosts["spark2"] = replace(named_hosts["spark2"], was_deployed=True)
    assert lines_of(named_hosts)[-1] == (
        "  chats: in its backups (sftp:anna@nas.local:/volume1); "
        "`lockstep backup restore` brings them back (`lockstep help backup`)"
    )
