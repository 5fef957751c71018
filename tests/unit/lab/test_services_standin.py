"""The stand-in engines: the command lines, life and HTTP API of vLLM and SGLang."""

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
from gateway_proof import CHAT, MESSAGES, PLAIN, read
from gateway_proof import Answer as Soaked
from lab_servers import Answer, ask, free_port, program, until

from lab.content.standin import engine as standin
from lockstep.fit.catalogue import FOLDER
from lockstep.inventory.settings import Paths, Settings
from lockstep.lock.pins import ModelPin, Pins
from lockstep.onhost.core import config
from lockstep.onhost.engine import log_phases, openai_api, sense_pooling
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
    named = [model] if name == "vllm" else ["--model-path", model]
    usual: dict[str, object] = {"need_model": 0, "load_seconds": 0.1, "decode_rate": 5000}
    environment = {f"STANDIN_{key.upper()}": str(value) for key, value in (usual | knobs).items()}
    environment |= {"STANDIN_RECORD": str(tmp_path / "argv.json"), "HF_HOME": str(tmp_path)}
    environment["STANDIN_KNOBS_FOLDER"] = str(tmp_path)
    serve = [*named, "--host", "127.0.0.1", "--port", str(port), *words]
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


def refused(url: str) -> bool:
    try:
        ask(url)
    except OSError as error:
        return "refused" in str(error)
    return False


def test_vllm_refuses_connections_until_it_is_ready(tmp_path: Path) -> None:
    with engine(tmp_path, "vllm", never_ready=1) as stand_in:
        until((tmp_path / "argv.json").exists, "started")
        stand_in.engine_process()
        assert refused(f"{stand_in.url}/health")


def test_sglang_answers_503_until_it_is_ready(tmp_path: Path) -> None:
    with engine(tmp_path, "sglang", never_ready=1) as stand_in:
        assert until(stand_in.health, "an answer") == 503
        stand_in.turn(never_ready=0)
        stand_in.ready()


@pytest.mark.parametrize("name", ["vllm", "sglang"])
def test_the_exact_command_line_and_environment_are_recorded(tmp_path: Path, name: str) -> None:
    config = '{"method": "dflash", "model": "some/draft"}'
    with engine(tmp_path, name, "--speculative-config", config, "--flag=a b") as stand_in:
        served = ask(f"{stand_in.ready().url}/standin/argv").json
    recorded = json.loads((tmp_path / "argv.json").read_text())
    assert served == recorded
    assert recorded["argv"][-3:] == ["--speculative-config", config, "--flag=a b"]
    assert recorded["environment"]["STANDIN_LOAD_SECONDS"] == "0.1"


@pytest.mark.parametrize(("available", "lives"), [(102, False), (106, True)])
def test_sglang_loads_and_then_ends_where_its_share_does_not_hold_what_it_loaded(
    tmp_path: Path, available: float, lives: bool
) -> None:
    """With 0.65, the share of before: the gate let it start from 83 GiB on."""
    model = "/merged/mistralai--Mistral-Small-4-119B-2603-NVFP4/1"
    words = ("--mem-fraction-static", "0.65")
    with engine(tmp_path, "sglang", *words, model=model, available_gib=available) as stand_in:
        if lives:
            stand_in.ready()
            return
        output, _ = stand_in.process.communicate(timeout=180)
    assert stand_in.process.returncode == 1
    assert "Loaded weights leave no GPU memory for the KV cache under --mem-fraction" in output
    assert "Raise --mem-fraction-static above 0.665 (minimum viable" in output


def test_vllm_refuses_its_share_before_it_loads(tmp_path: Path) -> None:
    words = ("--gpu-memory-utilization", "0.8")
    with engine(tmp_path, "vllm", *words, available_gib=95) as stand_in:
        output, _ = stand_in.process.communicate(timeout=180)
    assert "Free memory on device cuda:0 (92.30/121.7 GiB) on startup is less than" in output


def test_a_secret_is_recorded_as_its_hash_only() -> None:
    code = "from standin import record; print(record.started_with([]))"
    with program(code, [], HF_TOKEN="hf_secret") as process:
        output, _ = process.communicate()
    assert "hf_secret" not in output and "sha256:" in output


def test_a_chat_is_answered_with_text_and_counted_tokens(tmp_path: Path) -> None:
    with engine(tmp_path, "vllm", "--served-model-name", "qwen") as stand_in:
        answer = stand_in.ready().chat(model="qwen", max_tokens=5).json
        models = ask(f"{stand_in.url}/v1/models").json
    assert answer["choices"][0]["message"]["content"] == "The stand-in engine has no "
    assert answer["choices"][0]["finish_reason"] == "length"
    assert answer["usage"] == {"prompt_tokens": 5, "completion_tokens": 5, "total_tokens": 10}
    assert [card["id"] for card in models["data"]] == ["qwen"]


def test_a_stream_has_role_tokens_reason_usage_and_an_end(tmp_path: Path) -> None:
    with engine(tmp_path, "vllm") as stand_in:
        options = {"stream": True, "stream_options": {"include_usage": True}, "max_tokens": 3}
        body = stand_in.ready().chat(**options).body.decode()
    *events, end = [part.removeprefix("data: ") for part in body.strip().split("\n\n")]
    chunks = [json.loads(event) for event in events]
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks[:-1]]
    assert end == "[DONE]"
    assert deltas[0] == {"role": "assistant", "content": ""}
    assert "".join(delta.get("content", "") for delta in deltas) == "The stand-in engine "
    assert chunks[-2]["choices"][0]["finish_reason"] == "length"
    assert chunks[-1]["usage"]["completion_tokens"] == 3


def test_a_stream_counts_along_when_asked(tmp_path: Path) -> None:
    both = {"include_usage": True, "continuous_usage_stats": True}
    with engine(tmp_path, "vllm") as stand_in:
        answer = stand_in.ready().chat(stream=True, stream_options=both, max_tokens=3)
    *events, _ = [part.removeprefix("data: ") for part in answer.body.decode().split("\n\n")[:-1]]
    counts = [json.loads(event)["usage"]["completion_tokens"] for event in events]
    assert counts == [0, 1, 2, 3, 3, 3]


def test_vllm_does_not_know_another_model_and_sglang_does_not_care(tmp_path: Path) -> None:
    with engine(tmp_path, "vllm") as stand_in:
        answer = stand_in.ready().chat(model="other")
        assert (answer.status, answer.json["error"]["type"]) == (404, "NotFoundError")
    with engine(tmp_path, "sglang") as stand_in:
        assert stand_in.ready().chat(model="other").status == 200


def test_mistral_on_sglang_refuses_two_user_messages_in_a_row(tmp_path: Path) -> None:
    with engine(tmp_path, "sglang", model="mistralai/Mistral-Small") as stand_in:
        answer = stand_in.ready().chat(messages=HELLO + HELLO)
        assert (answer.status, "must alternate" in answer.json["message"]) == (400, True)
        call = {"role": "assistant", "content": None, "tool_calls": [{"id": "1"}]}
        result = {"role": "tool", "content": "4", "tool_call_id": "1"}
        assert stand_in.chat(messages=[*HELLO, call, result]).status == 200
        stand_in.turn(check_alternation=False)
        assert stand_in.chat(messages=HELLO + HELLO).status == 200


def test_a_text_only_model_refuses_an_image(tmp_path: Path) -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,"}}
    with engine(tmp_path, "vllm", "--language-model-only") as stand_in:
        assert stand_in.ready().chat(messages=[{"role": "user", "content": [image]}]).status == 400


def test_thinking_is_as_the_command_line_says_unless_the_request_says_otherwise(
    tmp_path: Path,
) -> None:
    off = '{"enable_thinking": false}'
    words = ("--reasoning-parser", "qwen3", "--default-chat-template-kwargs", off)
    with engine(tmp_path, "vllm", *words) as stand_in:
        default = stand_in.ready().chat().json
        asked = stand_in.chat(chat_template_kwargs={"enable_thinking": True}).json
    assert default["choices"][0]["message"]["reasoning"] is None
    assert asked["choices"][0]["message"]["reasoning"].startswith("Let me see")


def test_an_offered_tool_is_called_with_its_required_arguments(tmp_path: Path) -> None:
    parameters = {"properties": {"n": {"type": "integer"}}, "required": ["n"]}
    tool = {"type": "function", "function": {"name": "add", "parameters": parameters}}
    with engine(tmp_path, "vllm") as stand_in:
        choice = stand_in.ready().chat(tools=[tool]).json["choices"][0]
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["tool_calls"][0]["function"] == {
        "name": "add",
        "arguments": '{"n": 1}',
    }


def test_vllm_counts_requests_tokens_and_drafts(tmp_path: Path) -> None:
    words = ("--speculative-config", '{"model": "some/draft"}')
    with engine(tmp_path, "vllm", *words) as stand_in:
        stand_in.ready().chat(max_tokens=6)
        text = ask(f"{stand_in.url}/metrics").body.decode()
    label = '{engine="0",model_name="some/model"}'
    for line in (
        f"vllm:generation_tokens_total{label} 6",
        f"vllm:num_requests_running{label} 0",
        'vllm:request_success_total{engine="0",finished_reason="length",model_name="some/model"} 1',
        f"vllm:spec_decode_num_draft_tokens_total{label} 6",
        f"vllm:spec_decode_num_accepted_tokens_total{label} 4",
    ):
        assert line in text.splitlines()


def test_sglang_publishes_metrics_only_when_asked_to(tmp_path: Path) -> None:
    with engine(tmp_path, "sglang") as stand_in:
        assert ask(f"{stand_in.ready().url}/metrics").status == 404
    with engine(tmp_path, "sglang", "--enable-metrics") as stand_in:
        stand_in.ready().chat(max_tokens=4)
        text = ask(f"{stand_in.url}/metrics").body.decode()
    assert 'sglang:generation_tokens_total{model_name="some/model"} 4' in text.splitlines()


def test_a_wedged_vllm_is_healthy_and_generates_nothing(tmp_path: Path) -> None:
    with engine(tmp_path, "vllm") as stand_in:
        stand_in.ready().turn(wedged=True)
        assert stand_in.health() == 200
        request = ["curl", "-s", "-m", "0.5", f"{stand_in.url}/v1/completions", "-d", "{}"]
        assert subprocess.run(request, check=False).returncode == 28
        stand_in.turn(wedged=False)
        assert stand_in.chat().status == 200


def test_the_metrics_of_a_wedged_engine_stand_still(tmp_path: Path) -> None:
    with engine(tmp_path, "vllm") as stand_in:
        stand_in.ready().chat(max_tokens=4)
        before = ask(f"{stand_in.url}/metrics").body
        stand_in.turn(wedged=True)
        request = ["curl", "-s", "-m", "0.5", f"{stand_in.url}/v1/completions", "-d", "{}"]
        assert subprocess.run(request, check=False).returncode == 28
        assert ask(f"{stand_in.url}/metrics").body == before


def test_a_wedged_sglang_does_not_answer_health(tmp_path: Path) -> None:
    with engine(tmp_path, "sglang") as stand_in:
        stand_in.ready().turn(wedged=True)
        request = ["curl", "-s", "-m", "0.5", f"{stand_in.url}/health"]
        assert subprocess.run(request, check=False).returncode == 28


def test_an_abandoned_request_is_counted_and_frees_the_engine(tmp_path: Path) -> None:
    with engine(tmp_path, "vllm") as stand_in:
        stand_in.ready().turn(decode_rate=10)
        request = ["curl", "-s", "-m", "0.3", f"{stand_in.url}/v1/completions", "-d", "{}"]
        subprocess.run(request, check=False)

        def aborted() -> bool:
            text = ask(f"{stand_in.url}/metrics").body.decode()
            return 'finished_reason="abort",model_name="some/model"} 1' in text

        until(aborted, "the request is given up")


@pytest.mark.parametrize(("name", "code"), [("vllm", 0), ("sglang", 1)])
def test_the_server_ends_when_its_engine_process_is_killed(
    tmp_path: Path, name: str, code: int
) -> None:
    with engine(tmp_path, name) as stand_in:
        os.kill(stand_in.ready().engine_process(), signal.SIGKILL)
        assert stand_in.process.wait(180) == code


def test_the_engine_process_does_not_outlive_the_server(tmp_path: Path) -> None:
    with engine(tmp_path, "vllm") as stand_in:
        child = stand_in.ready().engine_process()
        stand_in.process.kill()
        until(lambda: not Path(f"/proc/{child}/cmdline").is_file() or _zombie(child), "it ends")


def _zombie(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"


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
            until(lambda: refused(f"{stand_in.url}/health"), "the port is closed")
            assert stand_in.process.poll() is None
        assert stand_in.process.wait(180) == 0


def test_sglang_answers_what_it_was_asked_before_it_ends(tmp_path: Path) -> None:
    with engine(tmp_path, "sglang", decode_rate=50) as stand_in:
        with stand_in.ready().stream(max_tokens=60) as answer:
            stand_in.process.terminate()
            assert answer.read().endswith(b"data: [DONE]\n\n")
        assert stand_in.process.wait(180) == 0


@pytest.mark.parametrize(
    "knobs", [{"crash_after": 0.3}, {"crash_while_loading": 1, "load_seconds": 0.3}]
)
def test_a_crash_ends_with_the_wanted_exit_code(tmp_path: Path, knobs: dict[str, object]) -> None:
    with engine(tmp_path, "vllm", exit_code=7, **knobs) as stand_in:
        assert stand_in.process.wait(180) == 7


def test_a_kernel_that_the_driver_cannot_compile_ends_it_at_the_graphs(tmp_path: Path) -> None:
    with engine(tmp_path, "vllm", unsupported_ptx=True, load_seconds=0.2) as stand_in:
        assert stand_in.process.wait(20) == 1
        assert stand_in.process.stdout
        said = [log_phases.phase(line) for line in stand_in.process.stdout]
    assert "capturing CUDA graphs, 0 %" in said
    assert "a kernel cannot be compiled here: the image's CUDA is newer than the driver's" in said


def test_knobs_can_be_turned_before_the_start_by_a_file(tmp_path: Path) -> None:
    (tmp_path / "standin-vllm.json").write_text('{"crash_while_loading": true, "exit_code": 9}')
    with engine(tmp_path, "vllm", load_seconds=0.2) as stand_in:
        assert stand_in.process.wait(180) == 9


def test_an_unknown_knob_is_refused_by_name_and_changes_nothing(tmp_path: Path) -> None:
    with engine(tmp_path, "vllm") as stand_in:
        answer = stand_in.ready().turn(decode_rate=1, explode=True)
        assert (answer.status, "explode" in answer.json["error"]) == (400, True)
        assert ask(f"{stand_in.url}/standin/knob").json["decode_rate"] == 5000


@pytest.mark.parametrize(
    ("name", "flag"), [("vllm", "--swap-space"), ("sglang", "--cuda-graph-max-bs=8")]
)
def test_a_flag_that_the_version_no_longer_has_ends_the_start(
    tmp_path: Path, name: str, flag: str
) -> None:
    with engine(tmp_path, name, flag) as stand_in:
        output, _ = stand_in.process.communicate(timeout=180)
    assert stand_in.process.returncode == 2
    assert f"unrecognized arguments: {flag}" in output


def test_a_taken_port_ends_the_start(tmp_path: Path) -> None:
    with engine(tmp_path, "vllm") as first:
        first.ready()
        port = first.url.rpartition(":")[2]
        with engine(tmp_path, "vllm", "--port", port) as second:
            output, _ = second.process.communicate(timeout=180)
    assert (second.process.returncode, "Address already in use" in output) == (1, True)


def snapshot(home: Path, model: str, *files: str) -> None:
    repository = home / "hub" / f"models--{model.replace('/', '--')}"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text("abc")
    (repository / "snapshots" / "abc").mkdir(parents=True)
    for file in files:
        (repository / "snapshots" / "abc" / file).write_text("x")


def test_an_engine_does_not_start_without_the_model_s_files(tmp_path: Path) -> None:
    with engine(tmp_path, "vllm", need_model=1) as stand_in:
        output, _ = stand_in.process.communicate(timeout=180)
    assert (stand_in.process.returncode, "cannot find revision main" in output) == (1, True)


def test_sglang_wants_the_files_that_mistrals_own_layout_lacks(tmp_path: Path) -> None:
    snapshot(tmp_path, "some/model", "params.json", "consolidated.safetensors")
    with engine(tmp_path, "vllm", need_model=1) as stand_in:
        stand_in.ready()
    with engine(tmp_path, "sglang", need_model=1) as stand_in:
        output, _ = stand_in.process.communicate(timeout=180)
    assert "some/model has no config.json" in output


DEFAULTS = ["mistral-small-4-119b-nvfp4-sglang", "mistral-small-4-119b-nvfp4-sglang-eagle"]
COMMIT = 40 * "a"
OWN = ("params.json", "tokenizer.json", "consolidated-00001-of-00001.safetensors")


def served(home: Path, recipe: Recipe) -> str:
    """What SGLang is given as a recipe's model, with the files that it finds on a host."""
    settings = Settings("s", {}, paths=Paths(models=str(home)))
    draft = recipe.lockstep.draft
    models = (recipe.model, draft.model) if draft else (recipe.model,)
    pins = Pins(models={name: ModelPin("main", COMMIT, ()) for name in models})
    folder = Path(str(weight_overrides(settings, recipe, pins)["model"]))
    folder.mkdir(parents=True)
    for file in (*OWN, *(name for each in recipe.lockstep.borrow for name in each.files)):
        (folder / file).write_text("x")
    return str(folder)


@pytest.mark.parametrize("old", [0, 1])
@pytest.mark.parametrize("name", DEFAULTS)
def test_sglang_loads_mistral_on_both_sides_of_its_change(
    tmp_path: Path, name: str, old: int
) -> None:
    recipe = load_catalogue(FOLDER / "recipes")[name]
    model = served(tmp_path, recipe)
    with engine(tmp_path, "sglang", model=model, need_model=1, old_mistral_format=old) as stand_in:
        stand_in.ready()


def test_sglang_before_its_change_fails_on_a_config_or_an_id(tmp_path: Path) -> None:
    recipe = load_catalogue(FOLDER / "recipes")[DEFAULTS[0]]
    folder = Path(served(tmp_path, recipe))
    snapshot(tmp_path / "ids", recipe.model, *OWN)
    (folder / "config.json").write_text("x")
    for model, home in ((str(folder), tmp_path), (recipe.model, tmp_path / "ids")):
        knobs = {"need_model": 1, "old_mistral_format": 1}
        with engine(home, "sglang", model=model, **knobs) as stand_in:
            output, _ = stand_in.process.communicate(timeout=180)
        assert "w_kc is None" in output
        with engine(home, "sglang", model=model, need_model=1) as stand_in:
            stand_in.ready()


def test_a_missing_draft_ends_the_start(tmp_path: Path) -> None:
    snapshot(tmp_path, "some/model", "config.json", "model.safetensors")
    words = ("--speculative-config", '{"model": "some/draft"}')
    with engine(tmp_path, "vllm", *words, need_model=1) as stand_in:
        output, _ = stand_in.process.communicate(timeout=180)
    assert "some/draft" in output


def test_an_api_key_guards_the_api_and_not_the_health(tmp_path: Path) -> None:
    with engine(tmp_path, "vllm", "--api-key", "key") as stand_in:
        assert stand_in.ready().chat().status == 401
        allowed = {"Authorization": "Bearer key"}
        assert ask(f"{stand_in.url}/v1/models", headers=allowed).status == 200


POOLING = [
    ("vllm", ("--runner", "pooling"), "embedding"),
    ("vllm", ("--convert", "classify"), "rerank"),
    ("sglang", ("--is-embedding", "--enable-metrics"), "embedding"),
    ("sglang", ("--is-embedding", "--enable-metrics"), "rerank"),
]


def pooled(stand_in: Engine, kind: str) -> config.Target:
    return config.Target("q", "q.service", stand_in.url, "some/model", 1.0, 5.0, kind=kind)


@pytest.mark.parametrize(("name", "words", "kind"), POOLING)
def test_a_model_that_generates_nothing_passes_its_own_canary_and_no_other(
    tmp_path: Path, name: str, words: tuple[str, ...], kind: str
) -> None:
    with engine(tmp_path, name, *words) as stand_in:
        target = pooled(stand_in.ready(), kind)
        before = openai_api.counters(target, None)
        assert " in " in openai_api.canary(target, None, 5)
        assert sense_pooling.WRONG[kind](target, None, 5) == ""
        after = openai_api.counters(target, None)
        assert before and after and after.moving != before.moving
        assert stand_in.chat().status == 404


@pytest.mark.parametrize(
    ("kind", "knobs", "found"),
    [
        ("embedding", {"broken_vector": "nan"}, "without vectors"),
        ("embedding", {"broken_vector": "length"}, r"vectors of \[64, 63\] numbers"),
        ("rerank", {"wrong_order": True}, "wrong order"),
    ],
)
def test_a_broken_one_does_not_pass_the_canary(
    tmp_path: Path, kind: str, knobs: dict[str, object], found: str
) -> None:
    with engine(tmp_path, "sglang", "--is-embedding", **knobs) as stand_in:
        target = pooled(stand_in.ready(), kind)
        with pytest.raises(openai_api.NotReady, match=found):
            openai_api.canary(target, None, 5)


@pytest.mark.parametrize("broken", ["constant", "shifted"])
def test_vectors_without_sense_pass_the_canary_and_not_the_questions(
    tmp_path: Path, broken: str
) -> None:
    with engine(tmp_path, "vllm", "--runner", "pooling", broken_vector=broken) as stand_in:
        target = pooled(stand_in.ready(), "embedding")
        openai_api.canary(target, None, 5)
        assert sense_pooling.embedding(target, None, 5)


def test_a_wedged_one_answers_nothing(tmp_path: Path) -> None:
    with engine(tmp_path, "vllm", "--runner", "pooling") as stand_in:
        target = pooled(stand_in.ready(), "embedding")
        stand_in.turn(wedged=1)
        assert stand_in.health() == 200
        with pytest.raises(openai_api.NotReady, match="timed out"):
            openai_api.canary(target, None, 0.5)


@pytest.mark.parametrize(("name", "path"), [("vllm", CHAT), ("sglang", PLAIN), ("vllm", MESSAGES)])
def test_every_event_of_an_answer_tells_which_engine_gave_it(
    tmp_path: Path, name: str, path: str
) -> None:
    said = "ab12 cd34"
    text = f"Repeat these words:\n\n{said}"
    body: dict[str, Any] = {"model": "some/model", "max_tokens": 100}
    body |= {"prompt": text} if path == PLAIN else {"messages": [{"role": "user", "content": text}]}
    with engine(tmp_path, name) as made:
        made.ready()
        for stream in (False, True):
            answer = ask(f"{made.url}{path}", {**body, "stream": stream})
            kind = "text/event-stream" if stream else "application/json"
            found = read(Soaked(answer.status, kind, answer.body))
            assert (found.text, found.ended, found.error) == (said, True, None)
            assert found.engines == {f"{name} some/model"}
            assert len(found.answers) == 1
