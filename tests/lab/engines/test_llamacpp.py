"""llama.cpp's real server, of Debian, serves GGUF files: gate, test question, switch and bench."""

import json
import re

import pytest

PORT = 8101
NAME = "tiny-gguf"
HUB = "/data/models/huggingface/hub/models--lab--tiny-qwen3-GGUF"
ONE = ("-y", "--limit", "spark1")
MODELS = {
    "gguf": {"recipe": "tiny-qwen3-gguf", "unit": "llamacpp", "port": PORT, "sense": "off"},
    "vectors": {
        "recipe": "tiny-qwen3-gguf",
        "unit": "llamacpp-vectors",
        "port": 8103,
        "overrides": {"embeddings": True, "pooling": "mean"},
    },
}


@pytest.fixture(scope="module")
def inventory(stack, first):
    """The inventory of spark1 with these models beside the others; removed afterwards."""
    path = stack.inventory("llamacpp", models=MODELS)
    stack.good_deploy(*ONE, inventory=path)
    yield path
    assert stack.spark1.switch("none").code == 0
    stack.good_deploy(*ONE)
    assert stack.spark1.root("systemctl list-units --failed --plain --no-legend") == ""
    stack.spark1.root(
        "docker rmi $(docker images -q --filter reference='127.0.0.1:7078/*/*/dgx-spark-llama-cpp')"
        " && docker volume rm llamacpp-cache llamacpp-vectors-cache"
        f" && rm -r {HUB}"
    )


@pytest.fixture(scope="module")
def hot(stack, inventory):
    """Make a model hot on spark1."""
    answer = stack.spark1.switch("gguf")
    assert answer.code == 0, answer.text
    return stack.spark1


def test_the_real_program_serves_the_pinned_files_of_the_recipes_quantisation(hot):
    output = hot.root(f"cd {HUB}/snapshots/* && find . -name '*.gguf'")
    assert sorted(output.split()) == [
        "./UD-IQ2_M/tiny-qwen3-UD-IQ2_M-00001-of-00002.gguf",
        "./UD-IQ2_M/tiny-qwen3-UD-IQ2_M-00002-of-00002.gguf",
    ]
    command = hot.root(
        "ps -eo args | grep '^llama-server\\|/llama-server' | grep -v docker | head -1"
    )
    assert re.search(rf"{HUB}/snapshots/[0-9a-f]{{40}}/UD-IQ2_M/\S+-00001-of-00002\.gguf", command)
    assert "-hf" not in command.split()
    assert hot.get(f"http://127.0.0.1:{PORT}/props")["build_info"].endswith("Debian")
    # The test question has seen tokens, and people get words.
    status = hot.status()
    model = status["models"]["gguf"]
    assert (status["hot"], model["ready"]) == ("gguf", True)
    assert model["detail"].startswith("a token in ")
    choice = hot.complete(PORT, NAME)["choices"][0]
    assert re.search(r"[a-z]", choice["message"]["content"])


def test_bench_measures_it_by_its_own_counters(stack, inventory, hot, tmp_path):
    file = tmp_path / "r.json"
    options = ("--quick", "--repeat", "3", "--suite", "decode", "-o", str(file))
    # The hosts share this machine's processors, so their load says nothing of a host. A model that
    # fits the processor's cache is not bound by memory, and other hosts take the processor from it.
    waivers = [word for check in ("quiet", "bandwidth", "steady") for word in ("--waive", check)]
    result = stack.lockstep("bench", "spark1", *options, *waivers, inventory=inventory)
    assert result.code == 0, result.text
    record = json.loads(file.read_text())
    [decode] = record["suites"]
    checks = {check["name"]: check["verdict"] for check in decode["checks"]}
    sound = ("test_question", "model", "lock", "tokens", "alone", "answers")
    assert [checks[name] for name in sound] == ["ok"] * len(sound)
    # It does not count requests that have ended.
    assert checks["requests"] == "unread"
    technical = decode["summary"]["by_shape"]["technical"]
    assert len(technical["decode_tok_s"]["samples"]) == 3
    assert record["subject"]["model"] == "gguf"


def test_another_model_takes_its_place_and_it_ends_in_order(hot):
    # Two in its slots, and four that wait for one.
    hot.hold_streams(PORT, NAME, 6)
    answer = hot.switch("qwen")
    assert answer.code == 0, answer.text
    assert hot.show("llamacpp.service", "ActiveState") == "inactive"
    assert hot.show("llamacpp.service", "Result") == "success"


def test_it_becomes_hot_as_a_model_that_makes_vectors(hot):
    answer = hot.switch("vectors")
    assert answer.code == 0, answer.text
    last_line = r", answered with 2 vectors of \d+ numbers in [\d.]+ s$"
    assert re.search(last_line, answer.out.rstrip()), answer.out
    assert hot.status()["models"]["vectors"]["ready"] is True
    # What the wedge watch goes by.
    page = hot.root("curl -fsS http://127.0.0.1:8103/metrics")
    assert re.search(r"^llamacpp:n_decode_total [1-9]", page, re.MULTILINE), page
    body = '{"model": "vectors", "input": "x"}'
    post = f"curl -fsS --max-time 60 -H 'Content-Type: application/json' -d '{body}'"
    [part] = json.loads(hot.root(f"{post} http://127.0.0.1:8090/v1/embeddings"))["data"]
    assert len(part["embedding"]) > 1
