"""Copies between Sparks: leases of one run, in inventory order."""

from __future__ import annotations

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
        facts["docker"]["images"] = _every_image()
        facts["checkpoints"] = held_models or facts["checkpoints"]
        facts["lacking"] = []
        group.append(CopyingHost(plan, facts, f"10.0.0.{number}"))
    return group


def _every_image() -> list[str]:
    return list(questions(PLANS[0], PINS)["images"].values())


def test_nothing_to_copy_needs_no_lease() -> None:
    assert leases(members(HELD, HELD), PINS) == {}


def test_one_host_has_nobody_to_copy_from() -> None:
    assert leases(members(None), PINS) == {}


def test_each_host_knows_its_peers_and_the_first_fetches_what_nobody_has() -> None:
    host_leases = leases(members(None, HELD, None), PINS)
    assert list(host_leases) == ["spark1", "spark2", "spark3"]
    assert {name: lease["expects"] for name, lease in host_leases.items()} == {
        "spark1": {"weights": [64 * "e"]},
        "spark2": {},
        "spark3": {"weights": [64 * "e"]},
    }
    earlier = {
        name: [peer["name"] for peer in lease["peers"] if peer["earlier"]]
        for name, lease in host_leases.items()
    }
    assert earlier == {"spark1": [], "spark2": ["spark1"], "spark3": ["spark1", "spark2"]}
    assert host_leases["spark1"]["peers"][0] == {
        "name": "spark2",
        "address": "10.0.0.2",
        "port": 7077,
        "earlier": False,
    }


def test_one_run_has_one_token_and_the_next_another() -> None:
    first, second = (leases(members(None, HELD), PINS) for _ in range(2))
    tokens = {lease["token"] for lease in first.values()}
    assert len(tokens) == 1
    assert tokens.isdisjoint(lease["token"] for lease in second.values())
    assert len(tokens.pop()) >= 43


def test_an_unfinished_or_shorter_file_is_still_to_come() -> None:
    name, sha = next(iter(PINS.checkpoints)), 64 * "e"
    for held_files in ({f"{sha}.incomplete": 20 * GIB}, {sha: 1}):
        host_leases = leases(members({**HELD, name: held_files}, HELD), PINS)
        assert host_leases["spark1"]["expects"] == {"weights": [sha]}


def test_what_an_engine_is_built_of_is_expected_by_the_stage_that_fetches_it() -> None:
    first, second = members(HELD, HELD)
    lacking = CopyingHost(first.plan, {**first.facts, "lacking": [ENGINE]}, first.address)
    host_leases = leases([lacking, second], PINS)
    assert host_leases["spark2"]["expects"] == {}
    expected_items = host_leases["spark1"]["expects"]
    assert sorted(expected_items) == ["engine-flashinfer", "engine-pytorch", "engine-vllm"]
    engine = engine_spec(first.plan, PINS)
    wheels = {wheel["sha256"] for wheel in (*engine["packages"], *engine["built_with"])}
    commits = {engine["vllm"]["commit"]}
    precompiled_hashes = {engine["precompiled"]["sha256"]}
    assert {
        name for names in expected_items.values() for name in names
    } == wheels | precompiled_hashes | commits
    assert commits <= set(expected_items["engine-vllm"])
    assert host_leases["spark1"]["flat"] == [IMAGE_STORE, "/opt/lockstep/engines/store"]


def test_an_image_is_expected_under_the_name_of_the_job_that_brings_it() -> None:
    first, second = members(HELD, HELD)
    lacking = dict(first.facts)
    lacking["docker"] = {**first.facts["docker"], "images": _every_image()[1:]}
    host_leases = leases([CopyingHost(first.plan, lacking, first.address), second], PINS)
    digest = _every_image()[0].rpartition(":")[2]
    assert host_leases["spark1"]["expects"] == {f"image-{digest[:12]}": [digest]}
