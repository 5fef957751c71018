"""Readiness: a unit counts as started after a generated token, and fails as soon as it can."""

import subprocess
import threading
import time
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
    # Thoughts count as tokens, and a warming engine gets another chance.
    thoughts = FakeEngine.answer(None, 16, reasoning_content="The user")
    answers = [(503, {"error": "warming up"}), (200, thoughts)]
    fake.chat = lambda _: answers.pop(0)
    assert waiter(fake.url, main_process.pid).wait(None).startswith("16 tokens in ")


@pytest.mark.parametrize(
    ("kind", "code", "answer", "limit_s", "words"),
    [
        ("chat", 200, FakeEngine.answer("", 1), 1.0, ""),
        ("chat", 200, {}, 1.0, ""),
        # It is wedged, and never answers.
        ("chat", 200, None, 1.0, ""),
        # What is refused or no answer fails at once.
        ("chat", 401, {"error": "Unauthorized"}, 180.0, ": HTTP 401"),
        ("chat", 404, {"error": "model x not found"}, 180.0, ": HTTP 404"),
        ("embedding", 200, {"data": []}, 180.0, ""),
    ],
)
def test_a_green_engine_that_generates_nothing_is_not_ready(
    fake, main_process, kind, code, answer, limit_s, words
):
    never = threading.Event()
    fake.chat = lambda _: (code, never.wait(180) if answer is None else answer)
    waiting = waiter(fake.url, main_process.pid, kind=kind, start_timeout_s=limit_s)
    assert_failure(4, f"fails the test question{words}", lambda: waiting.wait(None))
    assert limit_s == 1.0 or len(fake.requests) == 1
    never.set()


def test_a_port_that_never_opens_fails_with_the_limit_or_the_main_processs_end(main_process):
    # In words: no number of an error.
    words = r"start_timeout_s 1.*http://127.0.0.1:9/health: Connection refused$"
    waiting = waiter(NOWHERE, main_process.pid, start_timeout_s=1.0)
    assert_failure(1, words, lambda: waiting.wait(None))
    # Nobody reaps it here, so it stays as a zombie: that counts as dead.
    with subprocess.Popen(["sleep", "1"]) as dying:
        waiting = waiter(NOWHERE, dying.pid)
        assert_failure(3, "died before the engine was ready", lambda: waiting.wait(None))
    # Its id is free for another process now.
    assert_failure(3, "died", waiting.process.check_alive)
    assert_failure(3, "died", lambda: waiter(NOWHERE, dying.pid))


def test_a_main_process_that_dies_when_asked_fails_at_once(main_process, tmp_path, fake):
    never = threading.Event()

    def die(_):
        main_process.kill()
        never.wait(180)
        return 500, {}

    fake.chat = die
    waiting = waiter(fake.url, main_process.pid)
    assert_failure(3, "main process .* died", lambda: waiting.wait(None))
    paths = layout.Paths(tmp_path)
    assert_failure(3, "main process .* died", lambda: waiting.check_sense(None, paths))
    never.set()


STRANGER = ["nc (process 7 of eve)"]


@pytest.mark.parametrize("looks", [[STRANGER], [[], STRANGER]], ids=["at once", "after a look"])
def test_whoever_else_answers_at_its_port_is_no_engine_and_gets_no_prompt_once_seen(
    fake, main_process, tmp_path, monkeypatch, looks
):
    waiting = waiter(fake.url, main_process.pid)
    is_unasked, waiting.impostor_texts = len(looks) == 1, iter(looks).__next__
    words = r"nc \(process 7 of eve\) answers at"
    assert_failure(readiness.EXIT_STRANGER, words, lambda: waiting.wait(None))
    assert (fake.requests == []) == is_unasked
    # Nor are its answers recorded.
    monkeypatch.setattr(sense_check, "judge_engine_sense", lambda *_: sense_check.SenseVerdict(()))
    waiting.impostor_texts, paths = lambda: STRANGER, host_root(tmp_path, {})
    with pytest.raises(errors.Problem, match=r"is none of vllm-qwen36\.service"):
        waiting.check_sense(None, paths)
    assert watch_findings.load(paths).senses == {}


def test_the_key_comes_from_its_file_and_a_missing_one_is_named(tmp_path):
    (tmp_path / "key").write_text("s3cret\n")
    assert openai_api.api_key(model(api_key_file=str(tmp_path / "key"))) == "s3cret"
    with pytest.raises(errors.Problem, match=r"API key of qwen: .*none: No such file"):
        openai_api.api_key(model(api_key_file=str(tmp_path / "none")))


@pytest.fixture
def host_maker(fake, main_process, tmp_path, monkeypatch):
    """Makes a host with one model; its program `ready` is then called with no arguments."""
    monkeypatch.setattr(start_check_sigterm, "exit_check_on_sigterm", lambda _: None)

    def make(listens=True, **keys):
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


def test_pages_are_kept_free_and_a_load_is_told_until_the_engine_is_ready(
    fake, host_maker, monkeypatch, capsys
):
    paths, run = host_maker(load_free_gib=12, weights=["/models/m"])
    write_checkpoint(paths)
    write_meminfo(paths, 40.0, 11.0)
    drop_caches = paths.proc / "sys/vm/drop_caches"

    def turn_green():
        while not drop_caches.read_text():
            time.sleep(0.05)
        fake.health = 200

    watching = free_pages_during_load.LoadGuard.watching

    def watch_with_progress(guard):
        guard.say_progress(weight_reading.LoadProgress(2**30, 2 * 2**30, 410e6))
        return watching(guard)

    monkeypatch.setattr(free_pages_during_load.LoadGuard, "watching", watch_with_progress)
    fake.health = 503
    fake.chat = lambda _: (200, fake.answer("hello", 2)) if fake.health == 200 else (400, {})
    threading.Thread(target=turn_green, daemon=True).start()
    watch_findings.save(paths, watch_findings.MemoryKill("q", "q.service", "loading", 8.0, 7.9))
    disk = Disk(paths)
    atomic_files.write_json(paths.disk_rates, {disk.device: 470.0})
    device = paths.root.stat().st_dev
    disk_read_ahead.raise_read_ahead("q", [device], paths, pytest.fail)

    assert (run(), disk.kib) == (0, 128)
    # It is hot again, whatever ended it before.
    assert watch_findings.load(paths).kills == {}
    line = "lockstep ready: loading weights: 1.0 of 2.0 GiB, 410 MB/s (this disk gives 470)"
    assert line in capsys.readouterr().out.splitlines()


def test_an_engine_behind_a_listener_is_asked_itself(
    fake, main_process, tmp_path, host_maker, monkeypatch
):
    ends = []
    monkeypatch.setattr(start_check_sigterm, "exit_check_on_sigterm", ends.append)
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


@pytest.mark.parametrize("sense", ["off", "record", "sound", "nonsense"])
def test_answers_decide_whether_a_model_becomes_hot_and_are_recorded(
    fake, main_process, host_maker, monkeypatch, capsys, sense
):
    check = sense_check.SenseCheck("count", sense, "expected 1 to 100")
    looks = [sense_check.SenseVerdict((check,))]
    monkeypatch.setattr(sense_check, "judge_engine_sense", lambda *_: looks.pop())
    # An old request for records asks no questions.
    is_asked = sense in ("sound", "nonsense")
    paths, run = host_maker(sense="answers" if is_asked else sense)
    if sense == "nonsense":
        words = "q talks nonsense.*count: expected 1 to 100.*another image, quantisation"
        assert_failure(5, words, run)
        phases = [boot.phase for boot in models_by_boot.load(paths).boots]
        assert phases in ([], [models_by_boot.STARTING])
    else:
        assert (run(), len(fake.requests)) == (0, 1)
        message = "lockstep test_question: q makes sense: count (0.0 s)"
        assert (message in capsys.readouterr().out) == is_asked
    found_senses = watch_findings.load(paths).senses
    records = [(record.pid, record.state) for record in found_senses.values()]
    assert records == ([(main_process.pid, sense)] if is_asked else [])
