"""Which Sparks copy from which: leases of one run, in inventory order."""

from __future__ import annotations

from typing import Any

from a_spark import GIB, healthy, pins_for, spark

from lockstep.deploy.copying import Member, leases
from lockstep.host.specs import engine_spec
from lockstep.preflight import ENGINE, questions
from lockstep.system.folders import IMAGE_STORE

PLANS = [spark(f"spark{number}") for number in (1, 2, 3)]
PINS = pins_for(PLANS[0])
HELD = {name: {64 * "e": 20 * GIB} for name in PINS.models}


def members(*models: dict[str, Any] | None) -> list[Member]:
    """One member for each; None lacks every file."""
    found = []
    for number, (plan, held) in enumerate(zip(PLANS, models, strict=False), 1):
        facts = healthy(plan, 0)
        facts["docker"]["images"] = _every_image()
        facts["models"] = held or facts["models"]
        facts["lacking"] = []
        found.append(Member(plan, facts, f"10.0.0.{number}"))
    return found


def _every_image() -> list[str]:
    return list(questions(PLANS[0], PINS)["images"].values())


def test_nothing_to_copy_needs_no_lease() -> None:
    assert leases(members(HELD, HELD), PINS) == {}


def test_one_host_has_nobody_to_copy_from() -> None:
    assert leases(members(None), PINS) == {}


def test_each_host_knows_its_peers_and_the_first_fetches_what_nobody_has() -> None:
    found = leases(members(None, HELD, None), PINS)
    assert list(found) == ["spark1", "spark2", "spark3"]
    assert {name: lease["expects"] for name, lease in found.items()} == {
        "spark1": {"weights": [64 * "e"]},
        "spark2": {},
        "spark3": {"weights": [64 * "e"]},
    }
    earlier = {
        name: [peer["name"] for peer in lease["peers"] if peer["earlier"]]
        for name, lease in found.items()
    }
    assert earlier == {"spark1": [], "spark2": ["spark1"], "spark3": ["spark1", "spark2"]}
    assert found["spark1"]["peers"][0] == {
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
    name, sha = next(iter(PINS.models)), 64 * "e"
    for held in ({f"{sha}.incomplete": 20 * GIB}, {sha: 1}):
        found = leases(members({**HELD, name: held}, HELD), PINS)
        assert found["spark1"]["expects"] == {"weights": [sha]}


def test_what_an_engine_is_built_of_is_expected_by_the_stage_that_fetches_it() -> None:
    first, second = members(HELD, HELD)
    lacking = Member(first.plan, {**first.facts, "lacking": [ENGINE]}, first.address)
    found = leases([lacking, second], PINS)
    assert found["spark2"]["expects"] == {}
    expected = found["spark1"]["expects"]
    assert sorted(expected) == ["engine-flashinfer", "engine-pytorch", "engine-vllm"]
    engine = engine_spec(first.plan, PINS)
    wheels = {wheel["sha256"] for wheel in (*engine["packages"], *engine["built_with"])}
    commits = {engine["vllm"]["commit"]}
    compiled = {engine["precompiled"]["sha256"]}
    assert {name for names in expected.values() for name in names} == wheels | compiled | commits
    assert commits <= set(expected["engine-vllm"])
    assert found["spark1"]["flat"] == [IMAGE_STORE, "/opt/lockstep/engines/store"]


def test_an_image_is_expected_under_the_name_of_the_job_that_brings_it() -> None:
    first, second = members(HELD, HELD)
    lacking = dict(first.facts)
    lacking["docker"] = {**first.facts["docker"], "images": _every_image()[1:]}
    found = leases([Member(first.plan, lacking, first.address), second], PINS)
    digest = _every_image()[0].rpartition(":")[2]
    assert found["spark1"]["expects"] == {f"image-{digest[:12]}": [digest]}
