"""Models that generate nothing: the real vLLM makes vectors, stand-ins make wrong ones."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from stack import Host, Stack

KNOBS = "/run/unified-memory/standin-vllm.json"
ONE = ("-y", "--limit", "spark1")
TINY = "lab/tiny-qwen3"
#: A class for classification ranks texts.
RANKS = {"runner": "pooling", "hf_overrides": {"architectures": ["Qwen3ForSequenceClassification"]}}


def qwen(unit: str, port: int, **overrides: Any) -> dict[str, Any]:
    """The stand-in of Qwen's engine, under another name."""
    recipe = "qwen3.6-35b-a3b-prismaquant-dflash-k3"
    return {"recipe": recipe, "unit": unit, "port": port, "overrides": overrides}


TARGETS = {
    "vectors": {
        "recipe": "tiny-qwen3",
        "unit": "vllm-vectors",
        "port": 8201,
        # Without it the last token decides, and the tiny model's layers pass nothing on to it.
        "overrides": {"runner": "pooling", "pooler_config": {"pooling_type": "MEAN"}},
    },
    "made": qwen("vllm-made", 8202, runner="pooling"),
    "order": qwen("vllm-order", 8203, **RANKS),
}


@pytest.fixture(scope="module")
def inventory(stack: Stack, first: object) -> Iterator[Path]:
    """spark1 with these targets beside the others; nothing of them is left afterwards."""
    path = stack.inventory("kinds", targets=TARGETS)
    stack.good_deploy(*ONE, inventory=path)
    yield path
    assert stack.one.switch("none").code == 0
    stack.good_deploy(*ONE)


@pytest.fixture
def broken(stack: Stack, inventory: Path) -> Iterator[Host]:
    """A host whose next stand-in engines are what a test writes into the file of knobs."""
    yield stack.one
    stack.one.root(f"rm -f {KNOBS}")


def asked(host: Host, port: int, path: str, **body: Any) -> Any:
    """What an engine answers to a client."""
    words = ["curl", "-fsS", "--max-time", "60", "-H", "Content-Type: application/json"]
    argv = [*words, "-d", json.dumps(body), f"http://127.0.0.1:{port}{path}"]
    return json.loads(host.root(shlex.join(argv)))


def test_the_real_vllm_becomes_hot_with_a_model_that_makes_vectors(
    stack: Stack, inventory: Path
) -> None:
    answer = stack.one.switch("vectors")
    assert answer.code == 0, answer.text
    # The hidden size of the model.
    assert answer.out.rstrip().endswith(", 2 vectors of 128 numbers"), answer.out
    found = stack.one.status()
    assert (found["hot"], found["targets"]["vectors"]["ready"]) == ("vectors", True)
    assert found["targets"]["vectors"]["detail"].startswith("2 vectors of 128 numbers in ")
    again = stack.one.switch("vectors")
    assert (again.code, "is hot already (2 vectors" in " ".join(again.out.split())) == (0, True)
    for port, model in ((8201, "tiny-qwen3"), (8090, "vectors")):
        [part] = asked(stack.one, port, "/v1/embeddings", model=model, input="x")["data"]
        assert len(part["embedding"]) == 128


def test_a_reranker_becomes_hot_and_ranks(broken: Host) -> None:
    answer = broken.switch("order")
    assert answer.code == 0, answer.text
    assert answer.out.rstrip().endswith(", 3 texts in the right order"), answer.out
    assert broken.status()["hot"] == "order"


@pytest.mark.parametrize(
    ("target", "knobs", "reason"),
    [
        ("made", {"broken_vector": "nan"}, "without vectors"),
        ("made", {"broken_vector": "length"}, "gave vectors of [64, 63] numbers"),
        # Formally right: the questions after the canary find it.
        ("made", {"broken_vector": "shifted"}, "two equal texts have a cosine of"),
        ("order", {"wrong_order": True}, "three texts came in the wrong order"),
    ],
)
def test_a_broken_one_does_not_become_hot(
    broken: Host, target: str, knobs: dict[str, object], reason: str
) -> None:
    assert broken.switch("none").code == 0
    broken.root(f"echo {shlex.quote(json.dumps(knobs))} > {KNOBS}")
    answer = broken.switch(target)
    # Nothing was hot before.
    assert answer.code == 4, answer.text
    assert reason in " ".join(answer.text.split())
    assert broken.status()["hot"] is None
