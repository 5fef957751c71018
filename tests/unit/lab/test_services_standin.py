"""The stand-in engines: as unkind as vLLM and SGLang in command line, life and HTTP API.

How vLLM's makes vectors, and how nonsense of them is found: tests/lab/engines/test_llamacpp.py.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fork import Fork
from lab_servers import Answer, ask, free_port, until

from lab.content.standin import engine as standin
from lockstep.fit.catalogue import FOLDER
from lockstep.inventory.settings import HostPaths, Settings
from lockstep.lock.pins import CheckpointPin, Pins
from lockstep.onhost.engine import log_phases
from lockstep.recipes.recipe_file import Recipe, load_catalogue
from lockstep.units.served_weights import weight_overrides

# Each starts an engine.
pytestmark = pytest.mark.slow

HELLO = [{"role": "user", "content": "hello"}]


class Engine:
    def __init__(self, process: subprocess.Popen[str], port: int) -> None:
        self.process = process
        self.url = f"http://127.0.0.1:{port}"

    def ready(self) -> Engine:
        until(lambda: self.health() == 200, "ready")
        return self

    def health(self) -> int:
        return ask(f"{self.url}/health").status

    def turn(self, **knobs: object) -> Answer:
        return ask(f"{self.url}/standin/knob", knobs)

    def chat(self, **body: Any) -> Answer:
        return ask(f"{self.url}/v1/chat/completions", {"messages": HELLO, **body})

    def metrics(self) -> str:
        return ask(f"{self.url}/metrics").body.decode()

    def silent(self, path: str, body: object = None, seconds: str = "0.3") -> bool:
        """Tell whether a client that asks so gives up without an answer."""
        data = () if body is None else ("-d", json.dumps(body))
        command = ["curl", "-s", "-m", seconds, f"{self.url}{path}", *data]
        return subprocess.run(command, check=False).returncode == 28

    @contextlib.contextmanager
    def stream(self, max_tokens: int = 10_000) -> Iterator[http.client.HTTPResponse]:
        """An answer whose first token has come, open until the block ends."""
        body = {"messages": HELLO, "stream": True, "ignore_eos": True, "max_tokens": max_tokens}
        connection = http.client.HTTPConnection(self.url.removeprefix("http://"), timeout=180)
        with contextlib.closing(connection):
            connection.request("POST", "/v1/chat/completions", json.dumps(body))
            answer = connection.getresponse()
            answer.read1()
            yield answer

    def engine_process(self) -> int:
        children = f"/proc/{self.process.pid}/task/{self.process.pid}/children"
        return int(until(lambda: Path(children).read_text().split(), "engine process")[0])


@contextlib.contextmanager
def engine(
    tmp_path: Path, name: str, *words: str, model: str = "some/model", **knobs: object
) -> Iterator[Engine]:
    port = free_port()
    model_words = [model] if name == "vllm" else ["--model-path", model]
    usual: dict[str, object] = {"need_model": 0, "load_seconds": 0.1, "decode_rate": 5000}
    environment = {f"STANDIN_{key.upper()}": str(value) for key, value in (usual | knobs).items()}
    environment |= {"STANDIN_RECORD": str(tmp_path / "argv.json"), "HF_HOME": str(tmp_path)}
    environment["STANDIN_KNOBS_FOLDER"] = str(tmp_path)
    serve = [*model_words, "--host", "127.0.0.1", "--port", str(port), *words]
    with Fork(
        lambda: standin.serve(name, "9.9", [name, *serve], serve),
        env={"PATH": os.environ["PATH"], **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        try:
            yield Engine(process, port)
        finally:
            process.kill()


def run_to_end(
    tmp_path: Path, name: str, *words: str, model: str = "some/model", **knobs: object
) -> tuple[int, str]:
    """The exit code of an engine that ends by itself, and all that it said."""
    with engine(tmp_path, name, *words, model=model, **knobs) as stand_in:
        output, _ = stand_in.process.communicate(timeout=180)
    return int(stand_in.process.returncode), output


def is_refused(url: str) -> bool:
    try:
        ask(url)
    except OSError as error:
        return "refused" in str(error)
    return False


MISTRAL = "/merged/mistralai--Mistral-Small-4-119B-2603-NVFP4/1"
DRAFTED = ("--speculative-config", '{"model": "some/draft"}')
# With 0.65, the share of before: the gate let it start from 83 GiB on.
SHARE = ("--mem-fraction-static", "0.65")


def snapshot(home: Path, model: str, *files: str) -> None:
    repository = home / "hub" / f"models--{model.replace('/', '--')}"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text("abc")
    (repository / "snapshots" / "abc").mkdir(parents=True)
    for file in files:
        (repository / "snapshots" / "abc" / file).write_text("x")


@pytest.mark.parametrize(
    ("name", "words", "knobs", "files", "code", "message"),
    [
        pytest.param(
            *("vllm", ("--gpu-memory-utilization", "0.8"), {"available_gib": 95}, (), 1),
            "Free memory on device cuda:0 (92.30/121.7 GiB) on startup is less than",
            id="the share of vLLM before it loads",
        ),
        pytest.param(
            *("sglang", SHARE, {"available_gib": 102, "model": MISTRAL}, (), 1),
            "Raise --mem-fraction-static above 0.665 (minimum viable",
            id="the share of SGLang when it has loaded",
        ),
        pytest.param(
            *("vllm", ("--swap-space",), {}, (), 2),
            "unrecognized arguments: --swap-space",
            id="a flag that vLLM no longer has",
        ),
        pytest.param(
            *("sglang", ("--cuda-graph-max-bs=8",), {}, (), 2),
            "unrecognized arguments: --cuda-graph-max-bs=8",
            id="a flag that SGLang no longer has",
        ),
        pytest.param(
            *("vllm", (), {"need_model": 1}, (), 1),
            "cannot find revision main",
            id="no files of the model",
        ),
        pytest.param(
            *("vllm", DRAFTED, {"need_model": 1}, ("config.json", "model.safetensors"), 1),
            "some/draft",
            id="no files of the draft",
        ),
        pytest.param(
            *("sglang", (), {"need_model": 1}, ("params.json", "consolidated.safetensors"), 1),
            "some/model has no config.json",
            id="what Mistral's own layout lacks",
        ),
        pytest.param(
            *("vllm", (), {"exit_code": 7, "crash_after": 0.3}, (), 7),
            "the engine crashed after",
            id="a crash",
        ),
        pytest.param(
            *("vllm", (), {"exit_code": 7, "crash_while_loading": 1, "load_seconds": 0.3}, (), 7),
            "the engine crashed while loading",
            id="a crash while it loads",
        ),
    ],
)
def test_it_ends_as_the_real_one_does_for(
    tmp_path: Path,
    name: str,
    words: tuple[str, ...],
    knobs: dict[str, Any],
    files: tuple[str, ...],
    code: int,
    message: str,
) -> None:
    if files:
        snapshot(tmp_path, "some/model", *files)
    exit_code, output = run_to_end(tmp_path, name, *words, **knobs)
    assert (exit_code, message in output) == (code, True), output


def test_where_its_share_holds_what_it_loaded_sglang_serves(tmp_path: Path) -> None:
    with engine(tmp_path, "sglang", *SHARE, model=MISTRAL, available_gib=106) as stand_in:
        stand_in.ready()


def test_vllm_takes_mistrals_own_layout(tmp_path: Path) -> None:
    snapshot(tmp_path, "some/model", "params.json", "consolidated.safetensors")
    with engine(tmp_path, "vllm", need_model=1) as stand_in:
        stand_in.ready()


def test_a_kernel_that_the_driver_cannot_compile_ends_it_at_the_graphs(tmp_path: Path) -> None:
    code, output = run_to_end(tmp_path, "vllm", unsupported_ptx=True, load_seconds=0.2)
    phases = [log_phases.announced_phase(line) for line in output.splitlines()]
    assert code == 1
    assert "capturing CUDA graphs, 0 %" in phases
    assert "a kernel cannot be compiled here: the image's CUDA is newer than the driver's" in phases


def test_a_file_turns_knobs_and_an_unknown_one_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "standin-vllm.json").write_text('{"explode": true}')
    code, output = run_to_end(tmp_path, "vllm")
    assert (code, "explode" in output) == (2, True)
    (tmp_path / "standin-vllm.json").write_text('{"decode_rate": 3000}')
    with engine(tmp_path, "vllm") as stand_in:
        answer = stand_in.ready().turn(decode_rate=1, explode=True)
        assert (answer.status, "explode" in answer.json["error"]) == (400, True)
        assert ask(f"{stand_in.url}/standin/knob").json["decode_rate"] == 3000


def test_a_secret_of_its_environment_is_recorded_as_its_hash_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    record_text = json.dumps(standin.record.started_with([]))
    assert "hf_secret" not in record_text and "sha256:" in record_text


IMAGE = [{"type": "image_url", "image_url": {"url": "data:image/png;base64,"}}]


def test_vllm_refuses_what_it_does_not_serve(tmp_path: Path) -> None:
    headers = {"Authorization": "Bearer key"}
    with engine(tmp_path, "vllm", "--language-model-only", "--api-key", "key") as stand_in:
        assert stand_in.ready().chat().status == 401
        assert ask(f"{stand_in.url}/v1/models", headers=headers).status == 200
        path = f"{stand_in.url}/v1/chat/completions"
        for body, status, kind in (
            ({"messages": HELLO, "model": "other"}, 404, "NotFoundError"),
            ({"messages": [{"role": "user", "content": IMAGE}]}, 400, "BadRequestError"),
            ({"messages": HELLO, "tools": []}, 400, "BadRequestError"),
        ):
            answer = ask(path, body, headers=headers)
            assert (answer.status, answer.json["error"]["type"]) == (status, kind)


def template(folder: Path, text: str) -> str:
    """A model's folder with a chat template."""
    (folder / "chat_template.jinja").write_text(text)
    return str(folder)


def test_an_engine_refuses_in_the_words_of_the_models_template(tmp_path: Path) -> None:
    """The real templates, and every path: tests/unit/onhost/gateway/process/test_packages.py."""
    text = """{% if messages[1:] %}{{ raise_exception("one's enough") }}{% endif %}"""
    with engine(tmp_path, "sglang", model=template(tmp_path, text)) as stand_in:
        answer = stand_in.ready().chat(messages=HELLO + HELLO)
        assert (answer.status, answer.json["message"]) == (400, "one's enough")
        assert stand_in.chat(model="other").status == 200
        stand_in.turn(check_template=False)
        assert stand_in.chat(messages=HELLO + HELLO).status == 200


SAID = "{% for m in messages %}{% if m.role != 'user' %}{{ raise_exception(m | tojson) }}"
CALL = {"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}


@pytest.mark.parametrize(
    ("name", "message", "expected_message"),
    [
        ("vllm", {"role": "developer", "content": "x"}, {"role": "system", "content": "x"}),
        (
            "sglang",
            {"role": "system", "content": [{"type": "text", "text": letter} for letter in "xy"]},
            {"role": "system", "content": "x\ny"},
        ),
        (
            "vllm",
            {"role": "assistant", "content": "", "tool_calls": [CALL]},
            {
                "role": "assistant",
                "content": "",
                "tool_calls": [{**CALL, "function": {"name": "f", "arguments": {"a": 1}}}],
            },
        ),
    ],
)
def test_what_an_engine_makes_of_a_message_before_its_template_sees_it(
    tmp_path: Path, name: str, message: dict[str, Any], expected_message: dict[str, Any]
) -> None:
    text = SAID + "{% endif %}{% endfor %}"
    with engine(tmp_path, name, model=template(tmp_path, text)) as stand_in:
        answer = stand_in.ready().chat(messages=[message]).json
        assert json.loads(answer.get("error", answer)["message"]) == expected_message


def test_a_wedged_sglang_does_not_answer_health(tmp_path: Path) -> None:
    with engine(tmp_path, "sglang") as stand_in:
        stand_in.ready().turn(is_wedged=True)
        assert stand_in.silent("/health")


def test_an_abandoned_request_is_counted_and_frees_the_engine(tmp_path: Path) -> None:
    with engine(tmp_path, "vllm") as stand_in:
        stand_in.ready().turn(decode_rate=10)
        assert stand_in.silent("/v1/completions", {})
        given_up = 'finished_reason="abort",model_name="some/model"} 1'
        until(lambda: given_up in stand_in.metrics(), "the request is given up")


@pytest.mark.parametrize(("name", "code"), [("vllm", 0), ("sglang", 1)])
def test_the_server_ends_when_its_engine_process_is_killed(
    tmp_path: Path, name: str, code: int
) -> None:
    with engine(tmp_path, name) as stand_in:
        os.kill(stand_in.ready().engine_process(), signal.SIGKILL)
        assert stand_in.process.wait(180) == code


def test_sigterm_ends_with_success_unless_the_engine_is_deaf_to_it(tmp_path: Path) -> None:
    with engine(tmp_path, "vllm") as stand_in:
        stand_in.ready().turn(ignore_sigterm=True)
        stand_in.process.terminate()
        assert stand_in.process.stdout
        assert any("SIGTERM ignored" in line for line in stand_in.process.stdout)
        assert stand_in.chat().status == 200
        stand_in.turn(ignore_sigterm=False)
        stand_in.process.terminate()
        assert stand_in.process.wait(180) == 0


def test_vllm_waits_for_its_clients_when_its_engine_process_is_gone(tmp_path: Path) -> None:
    with engine(tmp_path, "vllm", decode_rate=50) as stand_in:
        child = stand_in.ready().engine_process()
        with stand_in.stream():
            stand_in.process.terminate()
            until(lambda: not Path(f"/proc/{child}").exists(), "the engine process is gone")
            assert stand_in.process.stdout
            assert any("Waiting for connections" in line for line in stand_in.process.stdout)
            until(lambda: is_refused(f"{stand_in.url}/health"), "the port is closed")
            assert stand_in.process.poll() is None
        assert stand_in.process.wait(180) == 0


def test_sglang_answers_what_it_was_asked_before_it_ends(tmp_path: Path) -> None:
    with engine(tmp_path, "sglang", decode_rate=50) as stand_in:
        with stand_in.ready().stream(max_tokens=60) as answer:
            stand_in.process.terminate()
            assert answer.read().endswith(b"data: [DONE]\n\n")
        assert stand_in.process.wait(180) == 0


DEFAULTS = ["mistral-small-4-119b-nvfp4-sglang", "mistral-small-4-119b-nvfp4-sglang-eagle"]
COMMIT = 40 * "a"
OWN = ("params.json", "tokenizer.json", "consolidated-00001-of-00001.safetensors")


def served_model(home: Path, recipe: Recipe) -> str:
    """The model argument that SGLang gets for a recipe, with the files that it finds on a host."""
    settings = Settings("s", {}, paths=HostPaths(models=str(home)))
    draft = recipe.lockstep.draft
    models = (recipe.model, draft.model) if draft else (recipe.model,)
    pins = Pins(checkpoints={name: CheckpointPin("main", COMMIT, ()) for name in models})
    folder = Path(str(weight_overrides(settings, recipe, pins)["model"]))
    folder.mkdir(parents=True)
    for file in (*OWN, *(name for borrow in recipe.lockstep.borrow for name in borrow.files)):
        (folder / file).write_text("x")
    return str(folder)


@pytest.mark.parametrize("old", [0, 1])
@pytest.mark.parametrize("name", DEFAULTS)
def test_sglang_loads_mistral_on_both_sides_of_its_change(
    tmp_path: Path, name: str, old: int
) -> None:
    recipe = load_catalogue(FOLDER / "recipes")[name]
    model = served_model(tmp_path, recipe)
    with engine(tmp_path, "sglang", model=model, need_model=1, old_mistral_format=old) as stand_in:
        stand_in.ready()


def test_sglang_before_its_change_fails_on_a_config_or_an_id(tmp_path: Path) -> None:
    recipe = load_catalogue(FOLDER / "recipes")[DEFAULTS[0]]
    folder = Path(served_model(tmp_path, recipe))
    snapshot(tmp_path / "ids", recipe.model, *OWN)
    (folder / "config.json").write_text("x")
    for model, home in ((str(folder), tmp_path), (recipe.model, tmp_path / "ids")):
        knobs = {"need_model": 1, "old_mistral_format": 1}
        assert "w_kc is None" in run_to_end(home, "sglang", model=model, **knobs)[1]
        with engine(home, "sglang", model=model, need_model=1) as stand_in:
            stand_in.ready()
