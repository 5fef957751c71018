"""Readiness: a unit counts as started after a generated token, and fails as soon as it can."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import contextmanager
from urllib.parse import urlsplit

import pytest
from a_disk import Disk, write_checkpoint
from a_model import NOWHERE, about, model
from local_server import refused_address
from onhost_fakes import FakeEngine, host_root, let_listen, write_meminfo

from lockstep.onhost.core import atomic_files, errors, layout
from lockstep.onhost.engine import (
    free_pages_during_load,
    openai_api,
    readiness,
    sense_check,
    start_check_sigterm,
    weight_reading,
)
from lockstep.onhost.records import models_by_boot, watch_findings
from lockstep.onhost.system import disk_read_ahead


@pytest.fixture
def main_process():
    process = subprocess.Popen(["sleep", "600"])
    yield process
    process.kill()
    process.wait()


def waiter(url: str, pid: int, **keys: object) -> readiness.ReadyWaiter:
    fields = {"served_name": "qwen-served", "start_timeout_s": 180.0, **keys}
    return readiness.ReadyWaiter(model(url=url, **fields), readiness.MainProcess(pid), print)


def assert_failure(code: int, words: str, wait) -> None:
    with pytest.raises(errors.Problem, match=words) as problem:
        wait()
    assert problem.value.code == code


def test_a_generated_token_makes_it_ready(fake, main_process, monkeypatch):
    # A proxy in the environment is not asked.
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    assert waiter(fake.url, main_process.pid).wait("s3cret").startswith("2 tokens in ")
    messages = [{"role": "user", "content": "Say hello."}]
    body = {"model": "qwen-served", "messages": messages, "max_tokens": 16}
    assert fake.requests == [{**body, "temperature": 0, "stream": False}]
    assert fake.keys == ["Bearer s3cret"]


def test_thoughts_count_as_tokens_and_a_warming_engine_gets_another_chance(fake, main_process):
    thoughts = FakeEngine.answer(None, 16, reasoning_content="The user")
    answers = [(503, {"error": "warming up"}), (200, thoughts)]
    fake.chat = lambda _: answers.pop(0)
    assert waiter(fake.url, main_process.pid).wait(None).startswith("16 tokens in ")


@pytest.mark.parametrize("answer", [FakeEngine.answer("", 0), FakeEngine.answer("", 1), {}, None])
def test_a_green_engine_that_generates_nothing_is_not_ready(fake, main_process, answer):
    # None: it is wedged, and never answers.
    never = threading.Event()
    fake.chat = lambda _: (200, never.wait(180) if answer is None else answer)
    waiting = waiter(fake.url, main_process.pid, start_timeout_s=1.0)
    assert_failure(4, "fails the test question", lambda: waiting.wait(None))
    never.set()


@pytest.mark.parametrize(
    ("kind", "code", "answer", "words"),
    [
        ("chat", 401, {"error": "Unauthorized"}, "fails the test question: HTTP 401"),
        ("chat", 404, {"error": "model x not found"}, "fails the test question: HTTP 404"),
        ("embedding", 200, {"data": []}, "fails the test question"),
    ],
)
def test_a_refusal_and_what_is_no_answer_fail_at_once(
    fake, main_process, kind, code, answer, words
):
    fake.chat = lambda _: (code, answer)
    waiting = waiter(fake.url, main_process.pid, kind=kind)
    assert_failure(4, words, lambda: waiting.wait(None))
    assert len(fake.requests) == 1


def only_when_green(fake: FakeEngine) -> None:
    """Let an engine refuse what it is asked before it is green, which it is not yet."""
    fake.health = 503
    fake.chat = lambda _: (200, fake.answer("hello", 2)) if fake.health == 200 else (400, {})


def test_an_engine_that_turns_green_later_is_waited_for(fake, main_process, capsys):
    only_when_green(fake)
    threading.Timer(1.0, lambda: setattr(fake, "health", 200)).start()

    assert waiter(fake.url, main_process.pid).wait(None).startswith("2 tokens in ")
    imports, green = capsys.readouterr().out.splitlines()
    assert imports == "loading the engine's program"
    assert green.startswith("/health is green after ")


def test_a_port_that_never_opens_fails_with_the_limit_or_the_main_processs_end(main_process):
    # In words: no number of an error.
    words = r"start_timeout_s 1.*http://127.0.0.1:9/health: Connection refused$"
    waiting = waiter(NOWHERE, main_process.pid, start_timeout_s=1.0)
    assert_failure(1, words, lambda: waiting.wait(None))
    # Nobody reaps it here, so it stays as a zombie: that counts as dead.
    with subprocess.Popen(["sleep", "1"]) as dying:
        waiting = waiter(NOWHERE, dying.pid)
        assert_failure(3, "died before the engine was ready", lambda: waiting.wait(None))


@pytest.mark.parametrize("stage", ["test_question", "sense"])
def test_a_main_process_that_dies_while_its_engine_is_asked_fails_at_once(
    main_process, tmp_path, monkeypatch, fake, stage
):
    never = threading.Event()

    def die(*_: object, **__: object) -> tuple[int, object]:
        main_process.kill()
        never.wait(180)
        return 500, {}

    fake.chat = die
    monkeypatch.setattr(sense_check, "judge_engine_sense", die)
    waiting = waiter(fake.url, main_process.pid)
    ask = {
        "test_question": lambda: waiting.wait(None),
        "sense": lambda: waiting.check_sense(None, layout.Paths(tmp_path)),
    }
    assert_failure(3, "main process .* died", ask[stage])
    never.set()


STRANGER = ["nc (process 7 of eve)"]


@pytest.mark.parametrize("looks", [[STRANGER], [[], STRANGER]], ids=["at once", "after a look"])
def test_whoever_else_answers_at_its_port_is_no_engine_and_gets_no_prompt_once_seen(
    fake, main_process, looks
):
    waiting = waiter(fake.url, main_process.pid)
    is_unasked, waiting.impostor_texts = len(looks) == 1, iter(looks).__next__
    words = r"nc \(process 7 of eve\) answers at"
    assert_failure(readiness.EXIT_STRANGER, words, lambda: waiting.wait(None))
    assert (fake.requests == []) == is_unasked


def test_answers_of_another_listener_are_not_recorded(fake, main_process, tmp_path, monkeypatch):
    waiting = waiter(fake.url, main_process.pid)
    sound = sense_check.SenseVerdict(())
    monkeypatch.setattr(sense_check, "judge_engine_sense", lambda *_: sound)
    waiting.impostor_texts = lambda: STRANGER
    paths = host_root(tmp_path, {})
    with pytest.raises(errors.Problem, match=r"is none of vllm-qwen36\.service"):
        waiting.check_sense(None, paths)
    assert watch_findings.load(paths).senses == {}


def test_a_main_process_that_has_died_is_told_at_once_and_again():
    process = subprocess.Popen(["sleep", "60"])
    engine_process = readiness.MainProcess(process.pid)
    engine_process.check_alive()
    process.kill()
    process.wait()
    # Its id is free for another process now.
    for look in (engine_process.check_alive, lambda: readiness.MainProcess(process.pid)):
        with pytest.raises(errors.Problem, match=f"main process {process.pid} died"):
            look()


def test_the_key_comes_from_its_file_and_a_missing_one_is_named(tmp_path):
    (tmp_path / "key").write_text("s3cret\n")
    assert openai_api.api_key(model(api_key_file=str(tmp_path / "key"))) == "s3cret"
    with pytest.raises(errors.Problem, match=r"API key of qwen: .*none: No such file"):
        openai_api.api_key(model(api_key_file=str(tmp_path / "none")))


@pytest.fixture
def host_maker(fake, main_process, tmp_path, monkeypatch):
    """Makes a host with one model; its program `ready` is then called with no arguments."""
    monkeypatch.setattr(start_check_sigterm, "register_program_after_stop", lambda _: None)

    def make(listens: bool = True, **keys: object) -> tuple[layout.Paths, Callable[[], int]]:
        q = {"engine": "vllm", "unit": "q.service", "url": fake.url, "start_timeout_s": 180}
        paths = host_root(tmp_path / "root", {"q": about(**{**q, **keys})})
        if listens:
            let_listen(paths, 77, "/system.slice/q.service", port=urlsplit(fake.url).port)
        return paths, lambda: readiness.main(["q", "--main-pid", str(main_process.pid)], paths)

    return make


def test_a_port_at_which_nobody_listens_any_more_was_not_the_engines(fake, host_maker):
    """Somebody was asked for health, closed the port, and answered."""
    _, run = host_maker(listens=False, sense="off")
    assert_failure(readiness.EXIT_STRANGER, "a process that listens no more answers", run)
    assert fake.requests == []


# An old request for records asks no questions.
@pytest.mark.parametrize("sense", ["off", "record"])
def test_a_model_without_sense_is_asked_for_its_test_question_only(
    fake, host_maker, monkeypatch, sense
):
    monkeypatch.setattr(sense_check, "judge_engine_sense", lambda *_: pytest.fail("it was asked"))
    _, run = host_maker(sense=sense)
    assert (run(), len(fake.requests)) == (0, 1)


def test_pages_are_kept_free_until_the_engine_is_ready(fake, host_maker):
    paths, run = host_maker(load_free_gib=12)
    write_meminfo(paths, 40.0, 11.0)
    drop_caches = paths.proc / "sys/vm/drop_caches"

    def turn_green() -> None:
        while not drop_caches.read_text():
            time.sleep(0.05)
        fake.health = 200

    only_when_green(fake)
    threading.Thread(target=turn_green, daemon=True).start()
    watch_findings.save(paths, watch_findings.MemoryKill("q", "q.service", "loading", 8.0, 7.9))
    disk = Disk(paths)
    device = paths.root.stat().st_dev
    disk_read_ahead.raise_read_ahead("q", [device], paths, pytest.fail)

    assert run() == 0
    assert disk.kib == 128
    # It is hot again, whatever ended it before.
    assert watch_findings.load(paths).kills == {}


def test_a_load_is_told_beside_what_its_disk_gives(host_maker, monkeypatch, capsys):
    paths, run = host_maker(weights=["/models/m"], sense="off")
    write_checkpoint(paths)
    atomic_files.write_json(paths.disk_rates, {Disk(paths).device: 470.0})

    @contextmanager
    def watching(guard):
        guard.say_progress(weight_reading.LoadProgress(2**30, 2 * 2**30, 410e6))
        yield

    monkeypatch.setattr(free_pages_during_load.LoadGuard, "watching", watching)
    assert run() == 0
    line = "lockstep ready: loading weights: 1.0 of 2.0 GiB, 410 MB/s (this disk gives 470)"
    assert line in capsys.readouterr().out.splitlines()


def test_an_engine_behind_a_listener_is_asked_itself(
    fake, main_process, tmp_path, host_maker, monkeypatch
):
    ends = []
    monkeypatch.setattr(start_check_sigterm, "register_program_after_stop", ends.append)
    # Nothing listens at the first address: the gateway is down. It asks for the key, which the
    # engines' account may not read.
    keys = {"url": f"http://{refused_address()}", "engine_url": fake.url}
    key_file = str(tmp_path / "nobody/reads")
    paths, run = host_maker(engine="sglang", api_key_file=key_file, **keys)

    assert run() == 0
    # A power cut from now on meets a hot model.
    boots = [(boot.model, boot.phase) for boot in models_by_boot.load(paths).boots]
    assert boots == [("q", models_by_boot.HOT)]
    # systemd runs no ExecStop= of a unit that is stopped meanwhile.
    [end] = ends
    assert end[2:] == ("end-engine", "--asked", "--within", "10", str(main_process.pid))


def test_answers_that_make_sense_are_recorded_for_later(
    main_process, host_maker, monkeypatch, capsys
):
    sound = sense_check.SenseVerdict((sense_check.SenseCheck("echo", "sound", ""),))
    monkeypatch.setattr(sense_check, "judge_engine_sense", lambda *_: sound)
    paths, run = host_maker(sense="answers")
    assert run() == 0
    assert "lockstep test_question: q makes sense: echo (0.0 s)" in capsys.readouterr().out
    host_view = watch_findings.load(paths).senses["q"]
    assert (host_view.pid, host_view.state) == (main_process.pid, "sound")


def test_a_model_that_talks_nonsense_does_not_become_hot(host_maker, monkeypatch):
    check = sense_check.SenseCheck("count", "nonsense", "expected 1 to 100")
    wrong = sense_check.SenseVerdict((check,))
    monkeypatch.setattr(sense_check, "judge_engine_sense", lambda *_: wrong)
    paths, run = host_maker(sense="answers")
    words = "q talks nonsense.*count: expected 1 to 100.*another image, quantisation"
    assert_failure(5, words, run)
    assert watch_findings.load(paths).senses["q"].state == "nonsense"
    phases = [boot.phase for boot in models_by_boot.load(paths).boots]
    assert phases in ([], [models_by_boot.STARTING])
