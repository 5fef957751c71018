"""The program that switches for the gateway: its callers, its input, and its messages."""

import json
import os
import socket
import subprocess

import pytest
from a_switching_spark import UNITS, SwitchingSpark
from onhost_fakes import program, timeless

from lockstep.onhost.core import errors, switch_lock
from lockstep.onhost.gateway import keys, privileged_switch

NO_PERSONS = (b'"$HOME"}', b'"--a"}', b'["anna"]}', b'"anna", "wait": true}')


def exchange(spark: SwitchingSpark, question: bytes) -> list[dict]:
    """The answer to a line."""
    with socket.socket(socket.AF_UNIX) as asker:
        asker.settimeout(180)
        asker.connect(str(spark.socket))
        asker.sendall(question)
        with asker.makefile("rb") as answer:
            return [json.loads(line) for line in answer]


def request_switch(spark: SwitchingSpark, model: str) -> list[dict]:
    line = json.dumps({"model": model, "person": "anna"}).encode()
    return exchange(spark, line + b"\n")


def test_it_switches_as_switch_sh_does_and_tells_the_phases(spark):
    answer = "answered with 16 tokens in 0.3 s (57.0 tok/s)"
    journal = ["lockstep load: loading the engine's program", f"lockstep answer: {answer}"]
    spark.systemd.unit(UNITS["qwen"], journal=journal, on_start=["sleep", "0.3"])
    *messages, end = request_switch(spark, "qwen")
    assert spark.hot == ["qwen"]
    assert end["code"] == 0
    assert timeless(end["said"]) == f"qwen is hot, started in 0 s, {answer}"
    phases = list(dict.fromkeys(message["phase"] for message in messages))
    assert phases == ["stop", "gate", "load", "test_question", "done"]
    assert messages[0] == {"phase": "stop", "line": "stopping mistral", "kind": "stop"}
    # The job that switch.sh starts too: one at a time, and it outlives this connection.
    (call,) = [call for call in spark.systemd.calls if call.startswith("systemd-run ")]
    assert "--unit=lockstep-switch.service" in call
    assert call.endswith("--worker qwen anna, by the gateway")


def test_a_model_that_fails_is_told_with_the_engines_own_reason(spark):
    spark.tell("qwen", fallback=None)
    reason = "torch.AcceleratorError: out of memory"
    spark.systemd.unit(UNITS["qwen"], start_ok=False, journal=[reason])
    *_, end = request_switch(spark, "qwen")
    assert (spark.hot, end["code"]) == (["mistral"], 1)
    words = f"exit status 3; {reason}; the switch to qwen FAILED; mistral is hot again"
    assert end["said"].endswith(words)


def test_while_somebody_switches_their_name_comes_back(spark):
    with switch_lock.hold_lock(spark.paths.switch_lock, "ben", "mistral"):
        (end,) = request_switch(spark, "qwen")
    assert (spark.hot, end["code"]) == (["mistral"], 75)
    assert timeless(end["said"]) == f"ben is switching to mistral since 0 s (process {os.getpid()})"


def test_a_lost_connection_ends_the_display_and_not_the_switch(spark, tmp_path):
    go = tmp_path / "go"
    wait = ["sh", "-c", f"while ! test -e {go}; do sleep 0.05; done"]
    spark.systemd.unit(UNITS["qwen"], on_start=wait)
    with socket.socket(socket.AF_UNIX) as asker:
        asker.connect(str(spark.socket))
        asker.sendall(b'{"model": "qwen", "person": "anna"}\n')
        with asker.makefile("rb") as answer:
            assert json.loads(answer.readline())["line"] == "stopping mistral"
    holder = switch_lock.holder(spark.paths.switch_lock)
    assert holder and holder.user == "anna, by the gateway"
    go.touch()

    assert spark.processes[0].wait(180) == 0
    # The answer to who asks next waits for the end of it.
    while switch_lock.holder(spark.paths.switch_lock):
        os.sched_yield()
    assert spark.hot == ["qwen"]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        *((line, "expected {") for line in (b"qwen", b"[]", b'{"model": 1, "person": "anna"}')),
        (b'{"model": "qwen"}', "expected {"),
        *((b'{"model": "qwen", "person": ' + more, "expected {") for more in NO_PERSONS),
        (b'{"model": "status", "person": "anna"}', "unknown model 'status'"),
        (b'{"model": "--fall-back", "person": "anna"}', "unknown model '--fall-back'"),
        (b"x" * 5000, "no line of at most 4096 bytes"),
    ],
)
def test_what_is_no_model_and_a_person_and_nothing_else_switches_nothing(spark, line, words):
    (end,) = exchange(spark, line + b"\n")
    assert (end["code"], spark.hot) == (2, ["mistral"])
    assert words in end["said"]
    assert not [call for call in spark.systemd.calls if call.startswith("systemd-run ")]


def test_who_sends_nothing_is_not_waited_for(monkeypatch):
    monkeypatch.setattr(privileged_switch, "_LINE_S", 0.1)
    own_end, client_end = socket.socketpair()
    with own_end, client_end, pytest.raises(errors.Problem, match="no line of"):
        client_end.sendall(b'{"model"')
        privileged_switch.receive_request_line(own_end)


def of_nobody() -> tuple[socket.socket, socket.socket]:
    """A connection of another account; the kernel tells which it was when that was opened."""
    if os.geteuid() != 0:
        pytest.skip("only root can be somebody else")
    os.seteuid(65534)
    try:
        return socket.socketpair()
    finally:
        os.seteuid(0)


def test_a_stranger_is_refused_before_a_word_is_read(monkeypatch):
    own_end, client_end = of_nobody()
    with own_end, client_end:
        command, ends = program("gateway-switch"), {"stdin": own_end, "stdout": own_end}
        result = subprocess.run(command, **ends, stderr=subprocess.PIPE, check=False)
        own_end.close()
        with client_end.makefile("rb") as answer:
            (reply_line,) = answer
    assert (result.returncode, json.loads(reply_line)["code"]) == (77, 77)
    assert b"account 65534 may not switch here" in result.stderr
    # Root is obeyed, and the gateway's own account.
    monkeypatch.setattr(keys, "ACCOUNT", "nobody")
    for own_end, client_end in (of_nobody(), socket.socketpair()):
        with own_end, client_end:
            privileged_switch.check_asker(own_end)
