"""targets.json is the host's own dataclass: what is written is what its programs read."""

from __future__ import annotations

import json
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from example import HOSTS, bound, pins
from example import rendered as of_example
from pair import rendered as of_pair

from lockstep.inventory.settings import MemoryFloor
from lockstep.onhost.core import config
from lockstep.units.targets_json import TARGETS, known_to_host, targets_file
from lockstep.units.variants import variants

TEXTS = [
    *(of_example(host)[TARGETS].text for host in HOSTS),
    *(of_pair(rank)[TARGETS].text for rank in (0, 1)),
]


def differences(value: Any, written: Any, key: str = "") -> list[str]:
    """Keys of JSON that no field of a dataclass has, and fields that no key has."""
    if isinstance(value, dict):
        assert value.keys() == written.keys()
        return [
            one for name in value for one in differences(value[name], written[name], f"{key}.*")
        ]
    if isinstance(value, tuple):
        pairs = zip(value, written, strict=True)
        return [one for item, other in pairs for one in differences(item, other, f"{key}[]")]
    if not is_dataclass(value):
        return []
    names = {field.name for field in fields(value)}
    inside = (
        one
        for name in names & written.keys()
        for one in differences(getattr(value, name), written[name], f"{key}.{name}")
    )
    return [*(f"{key}.{name}" for name in names ^ written.keys()), *inside]


@pytest.mark.parametrize("text", TEXTS)
def test_every_key_is_a_field_and_every_field_a_key(tmp_path: Path, text: str) -> None:
    path = tmp_path / "targets.json"
    path.write_text(text)
    assert differences(config.load_host(path), json.loads(text)) == []
    odd = json.loads(text)
    target = next(iter(odd["targets"].values()))
    target["nice"] = 5
    del target["alike"]
    path.write_text(json.dumps(odd))
    found = differences(config.load_host(path), odd)
    assert sorted(found) == [".targets.*.alike", ".targets.*.nice"]


@pytest.mark.parametrize("name", HOSTS)
def test_a_host_reads_what_was_written_for_it(tmp_path: Path, name: str) -> None:
    settings = HOSTS[name]
    targets = bound(settings)
    found = variants(settings, targets, pins(settings, targets), engine_id="")
    path = tmp_path / "targets.json"
    path.write_text(targets_file(settings, found).text)
    assert config.load_host(path) == known_to_host(settings, found)


def test_a_file_of_an_earlier_deploy_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    old = json.loads(TEXTS[0])
    for target in old["targets"].values():
        del target["weights"]
        target["gone"] = 1
    path = tmp_path / "targets.json"
    path.write_text(json.dumps(old))
    assert config.load_host(path).target("qwen").weights == ()


def test_what_a_target_may_be_asked_is_told_by_its_command_line() -> None:
    targets = {
        name: target
        for host in HOSTS
        for name, target in json.loads(of_example(host)[TARGETS].text)["targets"].items()
    }
    # SGLang's scheduler ends when it is asked for log-probabilities while it drafts.
    assert {name: one["logprobs"] for name, one in targets.items() if not one["logprobs"]} == {
        "mistral": False
    }
    assert all(one["tools"] and one["sense"] == "answers" for one in targets.values())
    assert len({one["identity"] for one in targets.values()}) == len(targets)


@pytest.mark.parametrize(
    ("share", "said", "floors"),
    [
        (0.5, {}, (8.0, 4.0)),
        # Half of what the least of Sparks has at rest, 119.56 - 5.7 - 1.2 GiB, less what it holds.
        (0.8, {}, (6.7, 4.0)),
        # Not below what earlyoom would end it at.
        (0.85, {}, (4.0, 4.0)),
        (0.85, {"loading_gib": 16.0, "serving_gib": 0.0}, (16.0, 0.0)),
    ],
)
def test_a_default_floor_is_at_most_half_of_what_the_fit_leaves(
    share: float, said: dict[str, float], floors: tuple[float, float]
) -> None:
    host = HOSTS["spark"]
    target = next(each for each in bound(host) if each.name == "qwen")
    data = replace(
        target.data,
        memory_floor=MemoryFloor(**said),
        overrides={"gpu_memory_utilization": share},
    )
    targets = (replace(target, data=data),)
    [made, *_] = variants(host, targets, pins(host, targets), engine_id="")
    told = known_to_host(host, [made]).targets["qwen"]
    assert (told.floor_loading_gib, told.floor_serving_gib) == pytest.approx(floors, abs=0.01)
    assert told.need == made.need, "the gate counts with the floor, as the plan does"
    assert told.need.floor_gib == max(told.floor_loading_gib, told.floor_serving_gib)


@pytest.mark.parametrize(("expected", "floors"), [(115.0, (8.0, 4.0)), (58.0, (7.9, 4.0))])
def test_a_spark_of_64_gb_has_its_own_floors(expected: float, floors: tuple[float, float]) -> None:
    host = replace(HOSTS["spark"], expected=replace(HOSTS["spark"].expected, memory_gib=expected))
    targets = tuple(each for each in bound(host) if each.name == "qwen")
    data = replace(targets[0].data, overrides={"gpu_memory_utilization": 0.56})
    targets = (replace(targets[0], data=data),)
    [made, *_] = variants(host, targets, pins(host, targets), engine_id="")
    told = known_to_host(host, [made]).targets["qwen"]
    assert (told.floor_loading_gib, told.floor_serving_gib) == pytest.approx(floors, abs=0.05)
