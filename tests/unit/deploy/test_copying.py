"""Copies between Sparks: leases of one run, in inventory order."""

from typing import Any

from a_spark import GIB, healthy, pins_for, spark

from lockstep.deploy.copying import CopyingHost, leases
from lockstep.host.specs import engine_spec
from lockstep.preflight import ENGINE, questions
from lockstep.system.folders import IMAGE_STORE

PLANS = [spark(f"spark{number}") for number in (1, 2, 3)]
PINS = pins_for(PLANS[0])
HELD = {name: {64 * "e": 20 * GIB} for name in PINS.checkpoints}


def members(*models: dict[str, Any] | None) -> list[CopyingHost]:
    """One host for each entry; a host of None lacks every file."""
    group = []
    for number, (plan, held_models) in enumerate(zip(PLANS, models, strict=False), 1):
        facts = healthy(plan, 0)
        facts["docker"]["images"] = list(questions(PLANS[0], PINS)["images"].values())
        facts["checkpoints"] = held_models or facts["checkpoints"]
        facts["lacking"] = []
        group.append(CopyingHost(plan, facts, f"10.0.0.{number}"))
    return group


def test_nothing_to_copy_needs_no_lease_and_an_unfinished_file_is_still_to_come() -> None:
    assert leases(members(HELD, HELD), PINS) == leases(members(None), PINS) == {}
    name, sha = next(iter(PINS.checkpoints)), 64 * "e"
    for held_files in ({f"{sha}.incomplete": 20 * GIB}, {sha: 1}):
        host_leases = leases(members({**HELD, name: held_files}, HELD), PINS)
        assert host_leases["spark1"]["expects"] == {"weights": [sha]}


def test_each_host_knows_its_peers_and_the_first_fetches_what_nobody_has() -> None:
    host_leases = leases(members(None, HELD, None), PINS)
    assert {name: lease["expects"] for name, lease in host_leases.items()} == {
        "spark1": {"weights": [64 * "e"]},
        "spark2": {},
        "spark3": {"weights": [64 * "e"]},
    }
    peers = host_leases["spark3"]["peers"]
    assert [peer["name"] for peer in peers if peer["earlier"]] == ["spark1", "spark2"]
    peer = {"name": "spark2", "address": "10.0.0.2", "port": 7077, "earlier": False}
    assert host_leases["spark1"]["peers"][0] == peer
    # One run has one token, and the next another.
    (token,) = {lease["token"] for lease in host_leases.values()}
    later_leases = leases(members(None, HELD, None), PINS)
    assert token not in {lease["token"] for lease in later_leases.values()}
    assert len(token) >= 43


def test_what_an_engine_is_built_of_is_expected_by_the_stage_that_fetches_it() -> None:
    first, second = members(HELD, HELD)
    lacking = CopyingHost(first.plan, {**first.facts, "lacking": [ENGINE]}, first.address)
    host_leases = leases([lacking, second], PINS)
    assert host_leases["spark2"]["expects"] == {}
    expected_items = host_leases["spark1"]["expects"]
    assert host_leases["spark1"]["flat"] == [IMAGE_STORE, "/opt/lockstep/engines/store"]
    assert sorted(expected_items) == ["engine-flashinfer", "engine-pytorch", "engine-vllm"]
    engine = engine_spec(first.plan, PINS)
    wheels = (*engine["packages"], *engine["built_with"], engine["precompiled"])
    commit = engine["vllm"]["commit"]
    names = {name for names in expected_items.values() for name in names}
    assert names == {commit, *(wheel["sha256"] for wheel in wheels)}
    assert commit in expected_items["engine-vllm"]
    # An image is expected under the name of the job that brings it.
    image, *other_images = first.facts["docker"]["images"]
    facts = {**first.facts, "docker": {**first.facts["docker"], "images": other_images}}
    host_leases = leases([CopyingHost(first.plan, facts, first.address), second], PINS)
    digest = image.rpartition(":")[2]
    assert host_leases["spark1"]["expects"] == {f"image-{digest[:12]}": [digest]}
