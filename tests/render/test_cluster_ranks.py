"""The arguments of each rank of a cluster; the whole files of rank 0 are in `golden/member`."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from example import pins
from pair import plans, rank_files
from test_units_by_systemd import directives

from lockstep.files.managed_file import PROGRAMS
from lockstep.units.model_variants import variants

UNITS = "/etc/systemd/system"
RANKS = (0, 1)


@pytest.mark.parametrize("unit", ["vllm-deepseek", "sglang-mistral4", "vllm"])
def test_no_rank_is_restarted_alone_and_each_is_admitted_first(unit: str) -> None:
    for rank in RANKS:
        text = rank_files(rank)[f"{UNITS}/{unit}.service"].text
        assert directives(text, "Restart") == ["no"]
        admit, gate = re.findall(rf"ExecStartPre=\+.*{PROGRAMS} (\S+)", text)
        assert (admit, gate) == ("cluster", "gate")
        # Only rank 0 can say that a token was generated.
        assert bool(directives(text, "ExecStartPost")) == (rank == 0)
        assert "[Install]" not in text.replace("# No [Install] section", "")


def test_the_ranks_differ_in_nothing_but_rank_address_and_what_answers() -> None:
    path = "/data/scripts/llm/vllm-deepseek-launch.sh"
    first, second = (set(rank_files(rank)[path].text.splitlines()) for rank in RANKS)
    # Rank 0's engine is behind the listener that asks for the key.
    assert sorted(line.strip(" \\") for line in first - second) == [
        *("--env VLLM_HOST_IP=10.77.0.11", "--node-rank 0", "--port 31002")
    ]
    assert sorted(line.strip(" \\") for line in second - first) == [
        *("--env VLLM_HOST_IP=10.77.0.12", "--headless", "--node-rank 1", "--port 30002")
    ]


def test_only_the_members_reach_the_ports_of_the_group() -> None:
    for rank in RANKS:
        rules = rank_files(rank)["/etc/lockstep/firewall.nft"].text
        peer_number = 12 - rank
        assert f"ip saddr {{ 10.77.0.{peer_number}/32, 10.77.1.{peer_number}/32 }} accept" in rules
        assert "7079" not in rules and "29501" not in rules
        # Rank 1 has no API to open.
        assert ("30002" in rules) == (rank == 0)


def test_what_rank_1_is_told_of_its_cluster() -> None:
    first, second = (
        json.loads(rank_files(rank)["/etc/lockstep/models.json"].text) for rank in RANKS
    )
    pair = first["clusters"]["pair"]
    assert second["clusters"] == {"pair": {**pair, "rank": 1}}
    assert {name: model["url"] for name, model in second["models"].items()} == {
        "qwen": "http://127.0.0.1:30001",
        "deepseek": "http://10.77.0.11:30002",
        # At rank 0's loopback: nobody else reaches it.
        "mistral": "",
        "fork": "",
    }
    assert "api_key_file" not in second["models"]["deepseek"]


def hashes(
    rank: int,
    change: Callable[[Any], Any] = lambda model: model,
    engine_id: str = "0123456789ab",
    **changed_pins: Any,
) -> dict[str, str]:
    """Model → the hash by which members compare their deploys."""
    plan = plans()[rank]
    known_pins = replace(pins(plan.settings, plan.models), **changed_pins)
    models = tuple(map(change, plan.models))
    model_variants = variants(plan.settings, models, known_pins, engine_id=engine_id)
    alike = {variant.name: variant.served_model.alike for variant in model_variants}
    return {name: value for name, value in alike.items() if value}


def with_flag(model: Any) -> Any:
    overrides = {**model.data.overrides, "max_num_seqs": 3}
    return replace(model, data=replace(model.data, overrides=overrides))


def without_rdma(model: Any) -> Any:
    return replace(model, group=model.group and replace(model.group, devices=()))


def other_pins(kind: str, **change: str) -> dict[str, Any]:
    """Pins of rank 1 where all of a kind are others."""
    known_pins = getattr(pins(plans()[1].settings, plans()[1].models), kind)
    return {kind: {name: replace(pin, **change) for name, pin in known_pins.items()}}


@pytest.mark.parametrize(
    ("changes", "differ"),
    [
        ({"change": with_flag}, {"deepseek", "mistral", "fork"}),
        ({"change": without_rdma}, {"deepseek", "mistral", "fork"}),
        (other_pins("checkpoints", commit=40 * "f"), {"deepseek", "mistral", "fork"}),
        (other_pins("images", digest="sha256:" + 64 * "f"), {"deepseek", "mistral"}),
        ({"engine_id": "ba9876543210"}, {"fork"}),
    ],
    ids=["flag", "link", "weights", "image", "engine"],
)
def test_a_member_with_another_part_has_another_hash(changes: Any, differ: Any) -> None:
    first, second = hashes(0), hashes(1, **changes)
    # Members that were deployed alike have one hash; a host's own model is compared with nobody's.
    assert first == hashes(1) and list(first) == ["deepseek", "mistral", "fork"]
    assert {name for name in first if first[name] != second[name]} == differ
