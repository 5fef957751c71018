"""Readiness: a unit counts as started after a generated token, and fails as soon as it can."""

from __future__ import annotations

import json
import subprocess
import threading
import time

import pytest
from local_server import refused_address
from onhost_fakes import FakeEngine, host_root, write_meminfo

from lockstep.onhost.core import config, errors, layout, orderly_end
from lockstep.onhost.engine import openai_api, ready, sense, sense_record
from lockstep.onhost.records import boots, ended


@pytest.fixture
def spoken():
    return []


@pytest.fixture
def fake():
    fake = FakeEngine()
    yield fake
    fake.close()


@pytest.fixture
def main_process():
    process = subprocess.Popen(["sleep", "60"])
    yield process
    process.kill()
    process.wait()


def waiter(url: str, pid: int, spoken: list[str], **values: float) -> ready.Waiter:
    fields = {"memory_gib": 1.0, "start_timeout_s": 30.0, **values}
    target = config.Target("qwen", "vllm-qwen36.service", url, "qwen-served", **fields)
    return ready.Waiter(target, ready.MainProcess(pid), spoken.append)


def test_a_generated_token_makes_it_ready(fake, main_process, spoken):
    said = waiter(fake.url, main_process.pid, spoken).wait("s3cret")

    assert said.startswith("2 tokens in ")
    assert fake.requests == [
        {
            "model": "qwen-served",
            "messages": [{"role": "user", "content": "Say hello."}],
            "max_tokens": 16,
            "temperature": 0,
            "stream": False,
        }
    ]
    assert fake.keys == ["Bearer s3cret"]


def test_thinking_without_an_answer_counts_as_tokens(fake, main_process, spoken):
    fake.chat = lambda _: (200, fake.answer(None, 16, reasoning_content="The user"))

    assert waiter(fake.url, main_process.pid, spoken).wait(None).startswith("16 tokens in ")


@pytest.mark.parametrize("answer", [FakeEngine.answer("", 0), FakeEngine.answer("", 1), {}])
def test_a_green_engine_that_generates_nothing_is_not_ready(fake, main_process, spoken, answer):
    fake.chat = lambda _: (200, answer)

    with pytest.raises(errors.Problem, match="fails the canary") as problem:
        waiter(fake.url, main_process.pid, spoken, start_timeout_s=1.0).wait(None)
    assert problem.value.code == 4


def test_a_wedged_engine_that_never_answers_is_not_ready(fake, main_process, spoken):
    never = threading.Event()
    fake.chat = lambda _: (200, never.wait(20))

    with pytest.raises(errors.Problem, match="fails the canary") as problem:
        waiter(fake.url, main_process.pid, spoken, start_timeout_s=1.0).wait(None)
    never.set()
    assert problem.value.code == 4


@pytest.mark.parametrize(
    ("code", "body"), [(401, {"error": "Unauthorized"}), (404, {"error": "model x not found"})]
)
def test_a_refused_canary_fails_at_once(fake, main_process, spoken, code, body):
    fake.chat = lambda _: (code, body)

    with pytest.raises(errors.Problem, match=f"HTTP {code}") as problem:
        waiter(fake.url, main_process.pid, spoken, start_timeout_s=40.0).wait(None)
    assert problem.value.code == 4


@pytest.mark.parametrize(
    ("kind", "answer"),
    [("embedding", {"data": []}), ("rerank", {"results": [{"index": 0, "relevance_score": 1}]})],
)
def test_vectors_and_orders_that_are_none_fail_at_once(fake, main_process, spoken, kind, answer):
    fake.chat = lambda _: (200, answer)

    with pytest.raises(errors.Problem, match="fails the canary") as problem:
        waiter(fake.url, main_process.pid, spoken, kind=kind).wait(None)
    assert problem.value.code == 4
    assert len(fake.requests) == 1


def test_a_warming_engine_gets_another_chance(fake, main_process, spoken):
    answers = [(503, {"error": "warming up"}), (200, fake.answer("hello", 2))]
    fake.chat = lambda _: answers.pop(0)

    assert waiter(fake.url, main_process.pid, spoken).wait(None).startswith("2 tokens in ")


def test_an_engine_that_turns_green_later_is_waited_for(fake, main_process, spoken):
    fake.health = 503
    timer = threading.Timer(1.0, lambda: setattr(fake, "health", 200))
    fake.chat = lambda _: (200, fake.answer("hello", 2)) if fake.health == 200 else (400, {})
    timer.start()

    assert waiter(fake.url, main_process.pid, spoken).wait(None).startswith("2 tokens in ")
    imports, green = spoken
    assert imports == "loading the engine's program"
    assert green.startswith("/health is green after ")


def test_a_port_that_never_opens_fails_with_the_limit(main_process, spoken):
    with pytest.raises(errors.Problem, match="start_timeout_s 1") as problem:
        waiter("http://127.0.0.1:9", main_process.pid, spoken, start_timeout_s=1.0).wait(None)
    assert problem.value.code == 1
    # In words: no number of an error.
    assert str(problem.value).endswith("http://127.0.0.1:9/health: Connection refused")


def test_a_main_process_that_dies_while_loading_fails_at_once(spoken):
    # Nobody reaps it here, so it stays as a zombie: that counts as dead.
    main_process = subprocess.Popen(["sleep", "1"])

    with pytest.raises(errors.Problem, match="died before the engine was ready") as problem:
        waiter("http://127.0.0.1:9", main_process.pid, spoken, start_timeout_s=40.0).wait(None)
    main_process.wait()
    assert problem.value.code == 3


def test_a_main_process_that_dies_during_the_canary_fails_at_once(fake, main_process, spoken):
    never = threading.Event()

    def die(_: dict) -> tuple[int, object]:
        main_process.kill()
        never.wait(20)
        return 500, {}

    fake.chat = die
    with pytest.raises(errors.Problem) as problem:
        waiter(fake.url, main_process.pid, spoken, start_timeout_s=40.0).wait(None)
    never.set()
    assert problem.value.code == 3


def test_a_main_process_that_has_died_is_told_at_once_and_again():
    process = subprocess.Popen(["sleep", "60"])
    watched = ready.MainProcess(process.pid)
    watched.check()
    process.kill()
    process.wait()
    # Its id is free for another process now.
    for look in (watched.check, lambda: ready.MainProcess(process.pid)):
        with pytest.raises(errors.Problem, match=f"main process {process.pid} died"):
            look()


def test_a_proxy_in_the_environment_is_not_asked(fake, monkeypatch):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    target = config.Target("q", "q.service", fake.url, "q", 1.0, 5.0)

    openai_api.check_health(target)


def test_the_key_comes_from_its_file_and_a_missing_one_is_named(tmp_path):
    (tmp_path / "key").write_text("s3cret\n")
    target = config.Target("q", "q", "http://x", "q", 1, 5, api_key_file=str(tmp_path / "key"))
    assert openai_api.api_key(target) == "s3cret"

    gone = config.Target("q", "q", "http://x", "q", 1, 5, api_key_file=str(tmp_path / "none"))
    with pytest.raises(errors.Problem, match=r"API key of q: .*none: No such file"):
        openai_api.api_key(gone)


def test_pages_are_kept_free_until_the_engine_is_ready(fake, main_process, tmp_path, monkeypatch):
    monkeypatch.setattr(orderly_end, "leave_behind", lambda _: None)
    target = {
        **{"engine": "vllm", "unit": "q.service", "url": fake.url, "model": "qwen-served"},
        **{"memory_gib": 1.0, "start_timeout_s": 20, "load_free_gib": 12},
    }
    paths = host_root(tmp_path / "root", {"q": target})
    write_meminfo(paths, 40.0, 11.0)
    dropped = paths.proc / "sys/vm/drop_caches"
    fake.health = 503

    def generates(_: object) -> tuple[int, object]:
        return (200, fake.answer("hello", 2)) if fake.health == 200 else (400, {})

    def turn_green() -> None:
        while not dropped.read_text():
            time.sleep(0.05)
        fake.health = 200

    fake.chat = generates
    threading.Thread(target=turn_green, daemon=True).start()

    ended.note(paths, ended.Ended("q", "q.service", "loading", 8.0, 7.9))

    assert ready.main(["q", "--main-pid", str(main_process.pid)], paths) == 0
    # It is hot again, whatever ended it before.
    assert ended.every(paths) == []


def test_an_engine_behind_a_door_is_asked_itself(fake, main_process, tmp_path, monkeypatch):
    left = []
    monkeypatch.setattr(orderly_end, "leave_behind", left.append)
    target = {
        "engine": "sglang",
        "unit": "q.service",
        # Nothing listens there: the gateway is down.
        "url": f"http://{refused_address()}",
        "engine_url": fake.url,
        # The gateway asks for it, and the engines' account may not read it.
        "api_key_file": str(tmp_path / "nobody/reads"),
        "model": "qwen-served",
        "memory_gib": 1.0,
        "start_timeout_s": 20,
    }
    paths = host_root(tmp_path / "root", {"q": target})

    assert ready.main(["q", "--main-pid", str(main_process.pid)], paths) == 0
    # A power cut from now on meets a hot model.
    assert [(boot.target, boot.phase) for boot in boots.load(paths).boots] == [("q", boots.HOT)]
    # systemd runs no ExecStop= of a unit that is stopped meanwhile.
    [end] = left
    assert end[2:] == ("end-engine", "--asked", "--within", "10", str(main_process.pid))


def sense_of(fake, main_process, tmp_path, monkeypatch, *looks, **keys):
    """Exit code of a start whose answers are judged as given, and the host's paths."""
    monkeypatch.setattr(orderly_end, "leave_behind", lambda _: None)
    left = list(looks)
    monkeypatch.setattr(sense, "look", lambda target, key, record=None: left.pop(0))
    target = {
        **{"engine": "vllm", "unit": "q.service", "url": fake.url, "model": "qwen-served"},
        **{"memory_gib": 1.0, "start_timeout_s": 20, "identity": "one", **keys},
    }
    paths = host_root(tmp_path / "root", {"q": target})
    return ready.main(["q", "--main-pid", str(main_process.pid)], paths), paths


def test_answers_that_make_sense_are_recorded_for_later(
    fake, main_process, tmp_path, monkeypatch, capsys
):
    echo = {"echo": {"sha256": "aa", "leading": []}}
    sound = sense.Verdict((sense.Look("echo", "sound", ""),), answers=echo)
    code, paths = sense_of(fake, main_process, tmp_path, monkeypatch, sound, sense="answers")
    assert code == 0
    assert "lockstep ready: q makes sense: echo (0.0 s)" in capsys.readouterr().out
    seen = sense_record.last(paths)["q"]
    assert (seen.pid, seen.state) == (main_process.pid, "sound")
    assert json.loads(paths.senses.read_text())["q"]["one"]["answers"] == echo


@pytest.mark.parametrize(
    ("by_record", "remedy"), [(False, "another image, quantisation or draft"), (True, "--forget")]
)
def test_a_model_that_talks_nonsense_does_not_become_hot(
    fake, main_process, tmp_path, monkeypatch, by_record, remedy
):
    wrong = sense.Verdict((sense.Look("count", "nonsense", "expected 1 to 100"),), by_record)
    with pytest.raises(errors.Problem) as problem:
        sense_of(fake, main_process, tmp_path, monkeypatch, wrong, sense="answers")
    assert problem.value.code == ready.EXIT_NONSENSE == 5
    assert "q talks nonsense" in str(problem.value)
    assert "count: expected 1 to 100" in str(problem.value)
    assert remedy in str(problem.value)
    paths = layout.Paths(tmp_path / "root")
    assert not paths.senses.exists()
    assert [boot.phase for boot in boots.load(paths).boots] in ([], [boots.STARTING])


def test_a_target_without_sense_is_asked_for_its_canary_only(
    fake, main_process, tmp_path, monkeypatch
):
    code, _ = sense_of(fake, main_process, tmp_path, monkeypatch, sense="off")
    assert (code, len(fake.requests)) == (0, 1)


def test_a_main_process_that_dies_while_its_sense_is_asked_fails_at_once(
    fake, main_process, tmp_path, monkeypatch
):
    never = threading.Event()

    def die(target, key, record=None):
        main_process.kill()
        never.wait(20)

    monkeypatch.setattr(sense, "look", die)
    waiting = waiter(fake.url, main_process.pid, [])
    with pytest.raises(errors.Problem) as problem:
        waiting.make_sense(None, layout.Paths(tmp_path))
    never.set()
    assert problem.value.code == 3
