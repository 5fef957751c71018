"""llama.cpp's real server, of Debian, serves GGUF files: gate, test question, switch and bench.

At the end stand-ins of vLLM make vectors and rank texts, and one of SGLang cannot be asked about
its recipe before its start; all of it at one deploy.
"""

import json
import re
import shlex
from typing import Any

import pytest
import yaml
from faults import KNOBS
from stack import REPOSITORY, Host

from lab import RECIPES

PORT = 8101
NAME = "tiny-gguf"
RECIPE = REPOSITORY / "lab" / "recipes" / "tiny-qwen3-gguf.yaml"
HUB = "/data/models/huggingface/hub/models--lab--tiny-qwen3-GGUF"
ONE = ("-y", "--limit", "spark1")


def qwen_as(unit: str, port: int, **overrides: Any) -> dict[str, Any]:
    """The stand-in of Qwen's engine, under another name."""
    recipe = "qwen3.6-35b-a3b-prismaquant-dflash-k3"
    return {"recipe": recipe, "unit": unit, "port": port, "overrides": overrides}


MODELS = {
    "gguf": {"recipe": "tiny-qwen3-gguf", "unit": "llamacpp", "port": PORT, "sense": "off"},
    "vectors": {
        "recipe": "tiny-qwen3-gguf",
        "unit": "llamacpp-vectors",
        "port": 8103,
        "overrides": {"embeddings": True, "pooling": "mean"},
    },
    "made": qwen_as("vllm-made", 8202, runner="pooling"),
    # A class for classification ranks texts.
    "order": qwen_as(
        "vllm-order",
        8203,
        runner="pooling",
        hf_overrides={"architectures": ["Qwen3ForSequenceClassification"]},
    ),
    # Its engine wants the driver's library when it is imported, as a real one may.
    "mistral": {"image": "docker.io/lmsysorg/sglang:needs-gpu"},
}


@pytest.fixture(scope="module")
def models_deploy(stack, first):
    """spark1 with these models beside the others, and that deploy; removed afterwards."""
    path = stack.inventory("llamacpp", models=MODELS)
    yield path, stack.good_deploy(*ONE, inventory=path)
    assert stack.spark1.switch("none").code == 0
    # What answers again is no longer called silent.
    assert "engine not asked" not in stack.good_deploy(*ONE).closing
    assert stack.spark1.root("systemctl list-units --failed --plain --no-legend") == ""
    stack.spark1.root(
        "docker rmi $(docker images -q --filter reference='127.0.0.1:7078/*/*/dgx-spark-llama-cpp')"
        " && docker volume rm llamacpp-cache llamacpp-vectors-cache"
        f" && rm -r {HUB}"
    )


@pytest.fixture(scope="module")
def inventory(models_deploy):
    """The inventory of that deploy."""
    return models_deploy[0]


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
    code, suites, output = stack.bench(
        # A model that fits the processor's cache is not bound by memory, and other hosts of this
        # machine take the processor from a real engine.
        *(tmp_path / "r.json", "--suite", "decode"),
        *("--waive", "bandwidth", "--waive", "steady"),
        inventory=inventory,
    )
    assert code == 0, output
    checks = {check["name"]: check["verdict"] for check in suites["decode"]["checks"]}
    sound = ("test_question", "model", "lock", "tokens", "alone", "answers")
    assert [checks[name] for name in sound] == ["ok"] * len(sound)
    # It does not count requests that have ended.
    assert checks["requests"] == "unread"
    technical = suites["decode"]["summary"]["by_shape"]["technical"]
    assert len(technical["decode_tok_s"]["samples"]) == 3
    assert json.loads((tmp_path / "r.json").read_text())["subject"]["model"] == "gguf"


def test_another_model_takes_its_place_and_it_ends_in_order(hot):
    # Two in its slots, and four that wait for one.
    hot.hold_streams(PORT, NAME, 6)
    answer = hot.switch("qwen")
    assert answer.code == 0, answer.text
    assert hot.show("llamacpp.service", "ActiveState") == "inactive"
    assert hot.show("llamacpp.service", "Result") == "success"


@pytest.fixture
def qwen(hot):
    """Make qwen hot, if the test before left another model."""
    if hot.status()["hot"] != "qwen":
        assert hot.switch("qwen").code == 0
    return hot


def part_of_the_model(host: Host, number: int) -> str:
    """The file that holds one of the two parts."""
    return host.root(f"readlink -f {HUB}/snapshots/*/UD-IQ2_M/*-0000{number}-of-*").strip()


def test_a_part_that_is_gone_is_found_before_anything_stops(qwen):
    part = part_of_the_model(qwen, 2)
    qwen.root(f"mv {part} {part}.away")
    try:
        answer = qwen.switch("gguf")
    finally:
        qwen.root(f"mv {part}.away {part}")
    assert answer.code != 0
    output = " ".join(answer.text.split())
    assert re.search(r"not whole on this host: \S+-00002-of-00002\.gguf; nothing was", output)
    assert qwen.status()["hot"] == "qwen"


def test_a_part_that_it_cannot_read_brings_the_former_model_back(qwen):
    part = part_of_the_model(qwen, 1)
    # Size and time stay: only the engine reads what is in it.
    qwen.root(f"cp -p {part} {part}.kept; printf XXXX | dd of={part} conv=notrunc status=none")
    qwen.root(f"touch -r {part}.kept {part}")
    try:
        answer = qwen.switch("gguf")
    finally:
        qwen.root(f"mv {part}.kept {part}")
    assert answer.code == 1
    assert "llama_model_load: error loading model" in answer.text
    assert "the switch to gguf FAILED; qwen is hot again" in " ".join(answer.text.split())
    assert qwen.status()["hot"] == "qwen"


def test_it_becomes_hot_as_a_model_that_makes_vectors(hot):
    answer = hot.switch("vectors")
    assert answer.code == 0, answer.text
    last_line = r", answered with 2 vectors of \d+ numbers in [\d.]+ s$"
    assert re.search(last_line, answer.out.rstrip()), answer.out
    assert hot.status()["models"]["vectors"]["ready"] is True
    # What the wedge watch goes by.
    page = hot.root("curl -fsS http://127.0.0.1:8103/metrics")
    assert re.search(r"^llamacpp:n_decode_total [1-9]", page, re.MULTILINE), page


def test_its_parser_refuses_a_flag_before_a_unit_is_written(stack, inventory, tmp_path):
    odd = {**yaml.safe_load(RECIPE.read_text(encoding="utf-8"))}
    odd["command"] = odd["command"].rstrip() + " --no-mmap"
    (tmp_path / "odd.yaml").write_text(yaml.safe_dump(odd), encoding="utf-8")
    models = {**MODELS, "odd": {"recipe": "odd", "unit": "odd", "port": 8102}}
    folders = (RECIPES, str(tmp_path))
    target_path = stack.inventory("llamacpp-odd", recipe_folders=folders, models=models)
    result = stack.deploy(*ONE, inventory=target_path)
    assert result.code == 1
    # llama.cpp 0.7 has `--load-mode` in its place.
    assert re.search(r"recipe odd: [^!]{1,80}--no-mmap", " ".join(result.closing.split()))
    assert stack.spark1.root("ls /etc/systemd/system/odd.service 2>&1 || true").startswith("ls:")


def test_stand_ins_of_vllm_make_vectors_and_rank_texts_and_the_gateway_asks_them(stack, inventory):
    host = stack.spark1
    answer = host.switch("made")
    assert answer.code == 0, answer.text
    assert ", answered with 2 vectors of 64 numbers in " in answer.out, answer.out
    status = host.status()
    assert (status["hot"], status["models"]["made"]["ready"]) == ("made", True)
    assert status["models"]["made"]["detail"].startswith("2 vectors of 64 numbers in ")
    again = host.switch("made")
    assert (again.code, "is hot already (2 vectors" in " ".join(again.out.split())) == (0, True)
    body = shlex.quote(json.dumps({"model": "made", "input": "x"}))
    words = "curl -fsS --max-time 60 -H 'Content-Type: application/json'"
    response = host.root(f"{words} -d {body} http://127.0.0.1:8090/v1/embeddings")
    [part] = json.loads(response)["data"]
    assert len(part["embedding"]) == 64
    answer = host.switch("order")
    assert answer.code == 0, answer.text
    assert ", answered with 3 texts in the right order in " in answer.out, answer.out
    assert host.status()["hot"] == "order"


def test_vectors_that_pass_the_test_question_and_make_no_sense_do_not_become_hot(stack, inventory):
    host = stack.spark1
    assert host.switch("none").code == 0
    knobs = shlex.quote(json.dumps({"broken_vector": "shifted"}))
    host.root(f"echo {knobs} > {KNOBS}/standin-vllm.json")
    answer = host.switch("made")
    host.root(f"rm {KNOBS}/standin-vllm.json")
    # Nothing was hot before.
    assert answer.code == 4, answer.text
    assert "two equal texts have a cosine of" in " ".join(answer.text.split())
    assert host.status()["hot"] is None


def test_an_engine_that_cannot_be_asked_is_in_table_and_status_and_starts(stack, models_deploy):
    _, result = models_deploy
    reason = "SGLang 0.5.24 cannot be imported: libcuda.so.1"
    assert f"mistral: the start will tell; {reason}" in " ".join(result.closing.split())
    output = stack.spark1.switch("status").out
    assert f"takes the recipe: {reason}" in " ".join(output.split())
    assert stack.spark1.switch("mistral").code == 0
