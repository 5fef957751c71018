"""`switch.sh` on hosts: both stand-in engines, and one of them at a time."""

import json
import shlex
import signal
from concurrent.futures import ThreadPoolExecutor

import pytest
from stack import Host, until

KNOBS = "/run/unified-memory"
WEDGE = "/run/lockstep/findings/wedge.json"


@pytest.fixture(scope="module", autouse=True)
def nothing_hot_afterwards(stack):
    """Leave spark1 as the next tests expect it."""
    yield
    stack.spark1.switch("none")


def test_another_unit_that_systemctl_starts_stops_the_hot_one(lab_host):
    assert lab_host.switch("qwen").code == 0
    unit = "sglang-mistral4.service"
    # Tests before may have started it as often as its start limit allows.
    lab_host.root(f"systemctl reset-failed {unit}; systemctl start {unit}")
    assert lab_host.active() == {unit}
    assert lab_host.status()["hot"] == "mistral"
    assert lab_host.root("docker ps --format '{{.Names}}'").split() == [
        "sglang-mistral4",
        "open-webui",
    ]


@pytest.fixture
def knobs(lab_host):
    """Turn knobs of a stand-in engine before its start; usual positions afterwards."""
    yield lambda engine, values: lab_host.root(
        f"echo {shlex.quote(json.dumps(values))} > {KNOBS}/standin-{engine}.json"
    )
    lab_host.root(f"rm -f {KNOBS}/standin-*.json")


def test_a_start_that_hangs_is_cancelled_and_what_was_hot_is_back(stack, lab_host, knobs):
    assert lab_host.switch("mistral").code == 0
    knobs("vllm", {"load_seconds": 600})
    with ThreadPoolExecutor() as pool:
        switch = pool.submit(lab_host.switch, "qwen")
        until(lambda: lab_host.active() == {"vllm-qwen36.service"}, "spark1: qwen starts")
        answer = stack.lockstep("switch", "cancel", "--limit", lab_host.name)
        assert answer.code == 0, answer.text
        assert "mistral is hot again" in answer.out
        assert switch.result().code == 5
    status = lab_host.status()
    assert (status["hot"], status["problems"], status["last_switch"]) == ("mistral", [], None)
    assert lab_host.active() == {"sglang-mistral4.service"}
    assert "no switch is under way" in " ".join(lab_host.switch("cancel").text.split())


def test_an_operator_who_stops_a_loading_model_does_not_make_it_failed(lab_host, knobs):
    # One that ends by itself: the start that is cancelled, above.
    knobs("sglang", {"load_seconds": 60, "ignore_sigterm": True})
    unit = "sglang-mistral4.service"
    checking(lab_host, unit)
    lab_host.root(f"systemctl stop {unit}")
    assert (lab_host.show(unit, "ActiveState"), lab_host.show(unit, "Result")) == (
        "inactive",
        "success",
    )


def test_a_check_that_somebody_ends_does_not_count_as_passed(lab_host, knobs):
    knobs("sglang", {"load_seconds": 60})
    unit = "sglang-mistral4.service"
    lab_host.root(f"kill -TERM {checking(lab_host, unit)}")
    # The pause before the next start, which nothing that is bound to the unit may shorten.
    until(lambda: lab_host.show(unit, "SubState") == "auto-restart", f"spark1: {unit} waits")
    result = lab_host.show(unit, "Result")
    lab_host.root(f"systemctl stop {unit}")
    assert result == "exit-code"


def test_a_launcher_run_by_hand_switches_and_a_switch_that_is_killed_is_finished(lab_host, knobs):
    knobs("sglang", {"load_seconds": 5})
    # It starts no engine itself: a second one would freeze the machine.
    launcher = "/data/scripts/llm/sglang-mistral4-launch.sh"
    with ThreadPoolExecutor() as pool:
        switch = pool.submit(lab_host.run, launcher)
        until(lambda: lab_host.active() == {"sglang-mistral4.service"}, "spark1: mistral starts")
        lab_host.root("systemctl kill --kill-whom=main -s KILL lockstep-switch.service")
        assert lab_host.switch("wait").code == 137
        assert switch.result().code == 137
    status = lab_host.status()
    assert (status["hot"], status["problems"]) == ("mistral", [])
    assert "cut off (signal, killed by signal 9), then: mistral is hot" in status["last_switch"]


def checking(host: Host, unit: str) -> str:
    """Start a unit that loads for long; returns the process that checks the start."""
    # Tests before may have started it as often as its start limit allows.
    host.root(
        f"systemctl stop {unit}; systemctl reset-failed {unit}; systemctl start --no-block {unit}"
    )
    until(lambda: host.show(unit, "SubState") == "start-post", f"{host.name}: {unit} loads")
    pid = host.show(unit, "ControlPID")
    question = (
        f"tr '\\0' ' ' < /proc/{pid}/cmdline; echo; awk '/^SigBlk/{{print $2}}' /proc/{pid}/status"
    )

    def is_checked() -> bool:
        # Python's own start takes a while, and only then the check waits for a SIGTERM.
        command, blocked_signals = host.root(question).splitlines()
        sigterm = 1 << (signal.SIGTERM - 1)
        return command.startswith("/usr/bin/python3 ") and bool(int(blocked_signals, 16) & sigterm)

    until(is_checked, f"{host.name}: {unit} is checked")
    return pid


def test_an_account_without_the_rule_may_look_and_not_switch(lab_host):
    lab_host.root("id guest >/dev/null 2>&1 || useradd --create-home guest")
    switch = "/data/scripts/llm/switch.sh"
    earlier_units = lab_host.active()
    try:
        answer = lab_host.run(f"sudo -n -u guest {switch} none")
        assert answer.code == 77
        assert "no sudo rule" in " ".join(answer.err.split())
        assert lab_host.run(f"sudo -n -u guest {switch} status").code == 0
        assert lab_host.active() == earlier_units
    finally:
        lab_host.root("userdel --remove guest 2>&1")


def test_no_other_account_holds_up_a_switch_or_a_job(lab_host):
    """An account that can open a file can lock it by flock. The switch is an alias script's."""
    assert lab_host.switch("none").code == 0
    locks = "/run/lockstep/*.lock /run/lockstep/jobs/*.lock"
    assert "/run/lockstep/switch.lock" in lab_host.root(f"ls {locks}")
    lock_command = f"for lock in {locks}; do flock --nonblock $lock echo $lock; done; true"
    assert lab_host.run(f"sudo -n -u nobody sh -c '{lock_command}' 2>/dev/null").out == ""
    hold = "while :; do flock --nonblock $lock sleep 99 || sleep 0.2; done"
    holding = f"for lock in {locks}; do ({hold}) & done; wait"
    lab_host.root(f"systemd-run --quiet --collect --unit=eve --uid=nobody sh -c '{holding}'")
    try:
        answer = lab_host.run("/data/scripts/llm/qwen36-switch-from-mistral.sh")
    finally:
        lab_host.root("systemctl stop eve")
    assert answer.code == 0, answer.text
    assert lab_host.active() == {"vllm-qwen36.service"}
    # Who switched is no secret, and is over.
    lab_host.root("test ! -e /run/lockstep/switch.json")


def test_nobody_else_at_its_port_is_taken_for_an_engine(lab_host):
    """A program that answered there would read prompts."""
    assert lab_host.switch("qwen").code == 0
    listening = "import http.server as s; s.test(s.SimpleHTTPRequestHandler, port=8000)"
    eve = "systemd-run --quiet --collect --unit=eve --uid=nobody"
    lab_host.root(f"{eve} python3 -c {shlex.quote(listening)}")
    until(lambda: ":8000" in lab_host.root("ss -Hltn"), "somebody else listens")
    try:
        answer = lab_host.switch("tiny")
        assert answer.code == 1, answer.text
        assert "of nobody) listens at http://127.0.0.1:8000" in " ".join(answer.text.split())
        assert "nothing was stopped" in " ".join(answer.text.split())
        assert lab_host.active() == {"vllm-qwen36.service"}
    finally:
        lab_host.root("systemctl stop eve")


def test_nonsense_that_the_timer_finds_is_told_and_nothing_is_restarted(stack, lab_host):
    """Nonsense that fails a switch: tests/unit/onhost/engine/test_readiness.py."""
    assert lab_host.switch("qwen").code == 0
    pid = lab_host.show("vllm-qwen36", "MainPID")
    knob = "http://127.0.0.1:30001/standin/knob"
    lab_host.root(f"""curl -fsS -d '{{"corruption": "salad"}}' {knob}""")
    # As if the last look had been yesterday.
    lab_host.root("rm -f /run/lockstep/findings/sense-*; systemctl start lockstep-sense.service")
    lab_host.logs("qwen talks nonsense", "-u lockstep-sense")
    assert "talks nonsense: echo" in lab_host.status()["models"]["qwen"]["sense"]
    assert "talks nonsense: echo" in stack.diff("--json", "--limit", "spark1").out
    assert lab_host.show("vllm-qwen36", "MainPID") == pid
    assert lab_host.switch("none").code == 0


def test_a_wedged_engine_is_restarted(lab_host):
    """The work of lockstep-wedge.timer, which comes every minute, is done at once.

    When it is left down: tests/unit/onhost/switching/test_wedge_watch.py.
    """
    assert lab_host.show("lockstep-wedge.timer", "ActiveState") == "active"
    assert lab_host.switch("qwen").code == 0
    unit = "vllm-qwen36.service"
    lab_host.root(f"rm -f {WEDGE}; systemctl stop lockstep-wedge.timer")
    look = "python3 /usr/local/lib/lockstep wedge --token-wait 3"
    try:
        pid = lab_host.show(unit, "MainPID")
        lab_host.hold_streams(30001, asked_name(lab_host, 30001), 1)
        knob = "http://127.0.0.1:30001/standin/knob"
        lab_host.root(f"curl -fsS -d '{{\"is_wedged\": true}}' {knob}")
        assert "restarting" in lab_host.root(f"{look}; {look}")
        until(lambda: lab_host.show(unit, "MainPID") not in (pid, "0"), "spark1: restarted")
        assert lab_host.switch("wait").code == 0
    finally:
        lab_host.root("systemctl start lockstep-wedge.timer")


def asked_name(host: Host, port: int) -> str:
    """The model's name in an engine's API."""
    return str(host.get(f"http://127.0.0.1:{port}/v1/models")["data"][0]["id"])
