"""The engine inside an image is asked about its recipes: by the lab's own stand-in engines."""

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import pytest
from a_probe import program
from onhost_fakes import run_program

from lab.images.image_content import TAGS, program_files
from lockstep.onhost.core import errors
from lockstep.onhost.images import model_recipe_check

# Each starts Python, as a host does.
pytestmark = pytest.mark.slow

DIGEST = "sha256:" + 64 * "a"
NAME = f"sha256-{64 * 'a'}.json"
REFERENCE = f"registry.example:5000/a/vllm@{DIGEST}"
VLLM = {
    "name": "qwen",
    "argv": ["vllm", "serve", "/not/here", "--port", "30001", "--chat-template", "/not/here"],
    "environment": {"VLLM_NO_USAGE_STATS": "1", "HF_HOME": "/data"},
}
SGLANG = {
    "name": "mistral",
    "argv": ["sglang", "serve", "--model-path", "/not/here", "--attention-backend", "triton"],
    "environment": {"SGLANG_ANYTHING": "1"},
}


@pytest.fixture
def image(tmp_path):
    """The packages of the newest stand-in images, side by side."""
    folder = tmp_path / "image"
    entries = [entry for tag in TAGS if tag.tag == "latest" for entry in program_files(tag)]
    for entry in entries:
        if entry.path.startswith("usr/lib/python3"):
            path = folder / entry.path.partition("dist-packages/")[2]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(entry.content)
    return folder


def ask(image: Path, engine: str, *recipes: dict[str, Any], **environment: str) -> dict[str, Any]:
    question = image / "question.json"
    question.write_text(json.dumps(recipes))
    environment = {**os.environ, "PYTHONPATH": str(image), **environment}
    result = run_program("image-answer", engine, str(question), environment=environment)
    assert result.returncode == 0, result.stderr
    answer: dict[str, Any] = json.loads(result.stdout)
    return answer


def test_only_recipes_that_are_refused_are_named(image):
    flag = {**VLLM, "name": "flag", "argv": [*VLLM["argv"], "--swap-space", "4"]}
    fault = "vLLM 0.32.0 refuses it: vllm: error: unrecognized arguments: --swap-space"
    verdict = {"version": "0.32.0", "faults": [f"recipe flag: {fault}"], "unanswered": None}
    assert ask(image, "vllm", VLLM, flag) == verdict
    flag = {**SGLANG, "name": "flag", "argv": [*SGLANG["argv"], "--cuda-graph-max-bs", "8"]}
    fault = "SGLang 0.5.23 refuses it: sglang: error: unrecognized arguments: --cuda-graph-max-bs"
    assert ask(image, "sglang", SGLANG, flag)["faults"] == [f"recipe flag: {fault}"]


@pytest.mark.parametrize(("engine", "recipe"), [("vllm", VLLM), ("sglang", SGLANG)])
def test_an_engine_that_cannot_be_imported_for_want_of_a_gpu_refuses_nothing(image, engine, recipe):
    answer = ask(image, engine, recipe, STANDIN_NEEDS_GPU="1")
    assert answer["faults"] == []
    assert "cannot be imported: libcuda.so.1" in answer["unanswered"]


def test_what_fails_without_judging_an_argument_is_no_refusal(image):
    (image / "vllm/envs.py").write_text(
        "def port():\n    raise OSError('Read-only file system')\n\n\n"
        "environment_variables = {'VLLM_PORT': port}\n"
    )
    answer = ask(image, "vllm", {**VLLM, "environment": {"VLLM_PORT": "1"}})
    message = "recipe qwen: vLLM 0.32.0 cannot be asked: Read-only file system"
    assert (answer["faults"], answer["unanswered"]) == ([], message)


# model_recipe_check.py, with a Docker that answers for the image.


@pytest.fixture
def check(tmp_path, monkeypatch, capsys):
    """The program, with a `docker` that does this."""
    monkeypatch.setattr(model_recipe_check, "FOLDER", tmp_path)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    (tmp_path / "questions").mkdir()
    (tmp_path / "questions" / NAME).write_text(json.dumps([VLLM]))

    def run(docker: str):
        program(tmp_path / "bin", "docker", docker)
        code = errors.run_main("recipe_check", lambda: model_recipe_check.main([REFERENCE, "vllm"]))
        return (code, *capsys.readouterr())

    return run


def says(**answer: Any) -> str:
    whole = {"version": "0.32.0", "faults": [], "unanswered": None, **answer}
    return f"echo a banner; echo '{json.dumps(whole)}'"


def record(folder: Path) -> Any:
    return json.loads((folder / "images" / NAME).read_text())


def test_the_container_has_no_network_no_gpu_no_rights_and_nothing_to_write_on(tmp_path, check):
    message = "vllm 0.32.0 in registry.example:5000/a/vllm takes 1 recipe(s)\n"
    assert check(f'echo "$@" > {tmp_path}/argv; {says()}') == (0, message, "")
    assert (tmp_path / "argv").read_text() == (
        "run --rm --init --pull never --network none --cap-drop ALL "
        "--security-opt no-new-privileges --log-driver none --read-only "
        "--tmpfs /tmp:exec --env HOME=/tmp --env PYTHONDONTWRITEBYTECODE=1 "
        "--env HF_HUB_OFFLINE=1 --env VLLM_NO_USAGE_STATS=1 "
        "--mount type=bind,source=/usr/local/lib/lockstep,target=/lockstep,readonly "
        f"--mount type=bind,source={tmp_path}/questions/{NAME},target=/question.json,readonly "
        f"--entrypoint python3 {REFERENCE} /lockstep image-answer vllm /question.json\n"
    )
    asked = hashlib.sha256((tmp_path / "questions" / NAME).read_bytes()).hexdigest()
    verdict = {"version": "0.32.0", "faults": [], "unanswered": None}
    assert record(tmp_path) == {"engine": "vllm", **verdict, "asked": asked, "taken": []}


REFUSAL = "recipe qwen: vLLM 0.32.0 refuses it: --swap-space"


@pytest.mark.parametrize(
    ("answer", "code", "output"),
    [
        ({"faults": [REFUSAL]}, errors.EXIT_FAILED, f"image check: {REFUSAL}\nChange the recipe"),
        ({"unanswered": "no libcuda.so.1"}, 0, "warning: no libcuda.so.1\n"),
    ],
)
def test_a_refusal_is_kept_with_a_remedy_and_silence_is_a_warning(
    tmp_path, check, answer, code, output
):
    found_code, found_output, _ = check(says(**answer))
    assert found_code == code and output in found_output
    assert record(tmp_path).items() >= answer.items()


@pytest.mark.parametrize(
    ("docker", "reason"),
    [("echo no python3 here >&2; exit 127", "no python3 here"), ("exit 137", "nothing (exit 137)")],
)
def test_a_container_that_fails_leaves_no_record(tmp_path, check, docker, reason):
    code, _, message = check(docker)
    assert code == errors.EXIT_FAILED and message.endswith(f"takes its recipes: {reason}\n")
    assert not (tmp_path / "images").exists()
