"""The engine inside an image is asked about its recipes: by the lab's own stand-in engines."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from a_probe import program
from forked_host import run_program
from onhost_fakes import REPOSITORY

from lab.images.image_content import TAGS, Tag, program_files
from lockstep.onhost.core import errors

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
def image(tmp_path: Path) -> Path:
    """The packages of the newest stand-in images, side by side."""
    return installed(tmp_path / "image", TAGS[0], TAGS[3])


def installed(folder: Path, *tags: Tag) -> Path:
    for tag in tags:
        for entry in program_files(tag):
            if entry.path.startswith("usr/lib/python3"):
                path = folder / entry.path.partition("dist-packages/")[2]
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(entry.content)
    return folder


def ask(image: Path, engine: str, *recipes: dict[str, Any], **environment: str) -> dict[str, Any]:
    question = image / "question.json"
    question.write_text(json.dumps(recipes))
    environment = {**os.environ, "PYTHONPATH": str(image), **environment}
    done = run_program("image-answer", engine, str(question), environment=environment)
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


@pytest.mark.parametrize(
    ("engine", "version", "recipe"),
    [("vllm", "0.32.0", VLLM), ("sglang", "0.5.23", SGLANG)],
)
def test_a_recipe_that_is_taken_has_no_fault(
    image: Path, engine: str, version: str, recipe: dict[str, Any]
) -> None:
    answer = ask(image, engine, recipe)
    assert answer == {
        "version": version,
        "faults": [],
        "unanswered": None,
    }


GUARDED = {**VLLM, "argv": [*VLLM["argv"], "--moe-backend", "marlin"]}


def test_an_engine_without_the_freeze_guards_flag_refuses_the_recipe(
    image: Path, tmp_path: Path
) -> None:
    assert ask(image, "vllm", GUARDED)["faults"] == []
    older = installed(tmp_path / "older", Tag("spark-arena/older", "x", "vllm", "0.15.1"))
    assert ask(older, "vllm", VLLM)["faults"] == []
    assert ask(older, "vllm", GUARDED)["faults"] == [
        "recipe qwen: vLLM 0.15.1 refuses it: vllm: error: unrecognized arguments: --moe-backend"
    ]


@pytest.mark.parametrize(
    ("engine", "recipe", "change", "fault"),
    [
        (
            "vllm",
            VLLM,
            {"argv": [*VLLM["argv"], "--swap-space", "4"]},
            "recipe qwen: vLLM 0.32.0 refuses it: "
            "vllm: error: unrecognized arguments: --swap-space",
        ),
        (
            "vllm",
            VLLM,
            {"environment": {"VLLM_ATTENTION_BACKEND": "TRITON_MLA"}},
            "recipe qwen: vLLM 0.32.0 does not know the variable VLLM_ATTENTION_BACKEND",
        ),
        (
            "sglang",
            SGLANG,
            {"argv": [*SGLANG["argv"], "--cuda-graph-max-bs", "8"]},
            "recipe mistral: SGLang 0.5.23 refuses it: "
            "sglang: error: unrecognized arguments: --cuda-graph-max-bs",
        ),
    ],
)
def test_only_the_recipe_that_is_refused_is_named(
    image: Path, engine: str, recipe: dict[str, Any], change: dict[str, Any], fault: str
) -> None:
    assert ask(image, engine, recipe, {**recipe, **change})["faults"] == [fault]


def test_an_engine_that_cannot_be_imported_is_no_refusal(image: Path) -> None:
    (image / "vllm/envs.py").write_text("raise ImportError('no libcuda.so.1')\n")
    answer = ask(image, "vllm", GUARDED)
    assert answer["faults"] == []
    assert answer["unanswered"] == "vLLM 0.32.0 cannot be imported: no libcuda.so.1"


@pytest.mark.parametrize(("engine", "recipe"), [("vllm", GUARDED), ("sglang", SGLANG)])
def test_a_stand_in_image_may_want_a_gpu_as_a_real_one(
    image: Path, engine: str, recipe: dict[str, Any]
) -> None:
    answer = ask(image, engine, recipe, STANDIN_NEEDS_GPU="1")
    assert answer["faults"] == []
    assert "cannot be imported: libcuda.so.1" in answer["unanswered"]


def test_what_fails_without_judging_an_argument_is_no_refusal(image: Path) -> None:
    (image / "vllm/envs.py").write_text(
        "def port():\n    raise OSError('Read-only file system')\n\n\n"
        "environment_variables = {'VLLM_PORT': port}\n"
    )
    bad = {**VLLM, "environment": {}, "argv": ["vllm", "serve", "x", "--swap-space", "4"]}
    hindered = {**VLLM, "name": "hindered", "environment": {"VLLM_PORT": "1"}}
    answer = ask(image, "vllm", hindered, bad)
    assert [fault.partition(" refuses it")[0] for fault in answer["faults"]] == [
        "recipe qwen: vLLM 0.32.0"
    ]
    assert answer["unanswered"] == (
        "recipe hindered: vLLM 0.32.0 cannot be asked: Read-only file system"
    )


# image_check.py, with a Docker that answers for the image.


def check(folder: Path, docker: str) -> subprocess.CompletedProcess[str]:
    program(folder / "bin", "docker", docker)
    (folder / "questions").mkdir(exist_ok=True)
    (folder / "questions" / NAME).write_text(json.dumps([VLLM]))
    source = (
        f"import sys; sys.path.insert(0, {str(REPOSITORY)!r}); from pathlib import Path; "
        "from lockstep.onhost.core import errors; from lockstep.onhost.images import image_check; "
        f"image_check.FOLDER = Path({str(folder)!r}); "
        "sys.exit(errors.ended('image_check', lambda: image_check.main(sys.argv[1:])))"
    )
    return subprocess.run(
        [sys.executable, "-c", source, REFERENCE, "vllm"],
        capture_output=True,
        text=True,
        env={
            **os.environ,
            "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
        },
        check=False,
    )


def says(**answer: Any) -> str:
    whole = {"version": "0.32.0", "faults": [], "unanswered": None, **answer}
    return f"echo a banner; echo '{json.dumps(whole)}'"


def record(folder: Path) -> Any:
    return json.loads((folder / "images" / NAME).read_text())


def test_the_container_has_no_network_no_gpu_no_rights_and_nothing_to_write_on(
    tmp_path: Path,
) -> None:
    done = check(tmp_path, f'echo "$@" > {tmp_path}/argv; {says()}')
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "vllm 0.32.0 in registry.example:5000/a/vllm takes 1 recipe(s)\n"
    assert (tmp_path / "argv").read_text() == (
        "run --rm --init --pull never --network none --cap-drop ALL "
        "--security-opt no-new-privileges --log-driver none --read-only "
        "--tmpfs /tmp:exec --env HOME=/tmp --env PYTHONDONTWRITEBYTECODE=1 "
        "--env HF_HUB_OFFLINE=1 --env VLLM_NO_USAGE_STATS=1 "
        "--mount type=bind,source=/usr/local/lib/lockstep,target=/lockstep,readonly "
        f"--mount type=bind,source={tmp_path}/questions/{NAME},target=/question.json,readonly "
        f"--entrypoint python3 {REFERENCE} /lockstep image-answer vllm /question.json\n"
    )
    assert record(tmp_path) == {
        "engine": "vllm",
        "version": "0.32.0",
        "faults": [],
        "unanswered": None,
        "asked": hashlib.sha256((tmp_path / "questions" / NAME).read_bytes()).hexdigest(),
        "taken": [],
    }


def test_a_refusal_is_kept_and_said_with_a_remedy(tmp_path: Path) -> None:
    done = check(tmp_path, says(faults=["recipe qwen: vLLM 0.32.0 refuses it: --swap-space"]))
    assert done.returncode == errors.EXIT_FAILED
    assert done.stdout == (
        "image check: recipe qwen: vLLM 0.32.0 refuses it: --swap-space\n"
        "Change the recipe, or bind it to an image whose engine takes it.\n"
    )
    assert record(tmp_path)["faults"] == ["recipe qwen: vLLM 0.32.0 refuses it: --swap-space"]


def test_an_engine_that_cannot_be_asked_is_a_warning(tmp_path: Path) -> None:
    done = check(tmp_path, says(unanswered="no libcuda.so.1"))
    assert done.returncode == 0
    assert done.stdout == (
        "warning: vllm 0.32.0 in registry.example:5000/a/vllm could not be asked about its "
        "recipes; its start will tell\n"
        "warning: no libcuda.so.1\n"
    )
    assert record(tmp_path)["unanswered"] == "no libcuda.so.1"


@pytest.mark.parametrize(
    ("docker", "said"),
    [("echo no python3 here >&2; exit 127", "no python3 here"), ("exit 137", "nothing (exit 137)")],
)
def test_a_container_that_fails_leaves_no_record(tmp_path: Path, docker: str, said: str) -> None:
    done = check(tmp_path, docker)
    assert done.returncode == errors.EXIT_FAILED
    assert done.stderr == (
        "image_check: registry.example:5000/a/vllm does not say whether its vllm takes its "
        f"recipes: {said}\n"
    )
    assert not (tmp_path / "images").exists()
