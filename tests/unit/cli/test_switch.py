"""`lockstep switch`: several Sparks at once over plain ssh, one line each, the worst code."""

import io
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from an_inventory import ANNA, PAIR, write_inventory
from click.testing import Result
from over_ssh import environment, invoke_lockstep, start_lockstep
from rich.console import Console

from lockstep.cli import switch as module
from lockstep.cli.switch import Phases, worst
from lockstep.fleet.login import login

HOSTS = {
    "spark-1.local": {"ssh_user": "anna", **ANNA},
    "spark-2.local": {"ssh_hostname": "10.0.0.2", "ssh_port": 2222, **ANNA},
}
# Notes its arguments, and answers as the host that it was asked for.
SSH = """\
for word in "$@"; do host=$command; command=$word; done
echo "$*" > "$(dirname "$0")/$host"
case $host in
  spark-1.local) echo starting; echo "qwen is hot, started in 95 s,"; echo "  57.0 tok/s" ;;
  10.0.0.2) echo "NO MODEL IS HOT: qwen failed"; exit {code} ;;
esac
"""


def run(path: Path, *words: str, ssh: str = SSH, exit_code: int = 0) -> Result:
    text = ssh.replace("{code}", str(exit_code))
    result = invoke_lockstep(path.parent, text, "switch", "-i", str(path), *words)
    assert result.exit_code == exit_code, result.output
    return result


def test_one_line_per_host_and_the_worst_code(inventory: Path) -> None:
    result = run(inventory, "qwen", exit_code=4)
    assert sorted(result.output.splitlines()) == [
        "spark-1.local  ok  qwen is hot, started in 95 s, 57.0 tok/s",
        "spark-2.local  exit 4  NO MODEL IS HOT: qwen failed",
    ]
    command_file = inventory.parent / "bin/10.0.0.2"
    assert command_file.read_text() == (
        "-o Port=2222 -o StrictHostKeyChecking=yes -o BatchMode=yes -o ConnectTimeout=15 "
        "-o ServerAliveInterval=10 -o ServerAliveCountMax=3 "
        "-- 10.0.0.2 env LOCKSTEP_EVENTS=1 /data/scripts/llm/switch.sh qwen\n"
    )
    command_file.unlink()
    result = run(inventory, "mistral-fallback", "--limit", "spark-1.local", "--dry", "-v")
    assert result.output.splitlines()[0] == "spark-1.local: starting"
    command = (inventory.parent / "bin/spark-1.local").read_text()
    assert "-o User=anna" in command and command.endswith("switch.sh mistral-fallback --dry\n")
    assert not command_file.exists()


def test_a_terminal_shows_phases_and_verdicts_above(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Console(width=80, force_terminal=True, color_system=None, file=io.StringIO())
    monkeypatch.setattr(module, "console", lambda: terminal)
    now = [100.0]
    phases = Phases(["spark-1", "spark-2"], clock=lambda: now[0])
    phases.hear("spark-1", "loading weights, file 6 of 13")
    phases.hear("spark-1", "  ")
    phases.hear("spark-2", None)
    now[0] = 142.0
    with phases.live_display():
        phases.say("spark-2  ok  [qwen] is :fire:")
        output = terminal.file.getvalue()
    assert "spark-2  ok  [qwen] is :fire:\nspark-1  0:42  loading weights, file 6 of 13" in output


NO_SCRIPT = "echo 'bash: line 1: /data/scripts/llm/switch.sh: No such file or directory'; exit 127"


def test_without_an_answer_of_a_switch_none_has_failed(inventory: Path) -> None:
    for ssh, code, message in (
        (SSH.replace("{code}", "255"), 2, "exit 2  no connection (NO MODEL"),
        # As Ctrl-C ends an ssh.
        ("kill -INT $$", 2, "exit 2  no connection (ssh was ended here)\n"),
        (NO_SCRIPT, 78, "exit 78  not deployed yet → lockstep deploy\n"),
    ):
        result = run(inventory, "none", ssh=ssh, exit_code=code)
        assert f"spark-2.local  {message}" in result.output


def test_this_machine_may_have_no_deploy_either() -> None:
    words = ["/nonexistent/switch.sh", "none"]
    code, verdict, _ = module._run(login("@local", {}), words, False, Phases([]))
    assert (code, verdict) == (78, "@local  exit 78  not deployed yet → lockstep deploy")


@pytest.mark.parametrize(
    ("line", "words", "message"),
    [
        ("lockstep stop: stopping x", (), "A switch that has begun goes on, on spark-1.local, "),
        # As a host of an earlier release says it.
        ("stopping mistral", ("--wait",), "No host has told of a switch that began;"),
        ("up now: mistral", ("--dry",), "Ended by Ctrl-C.\n"),
    ],
)
def test_ctrl_c_is_no_lost_connection(inventory, line, words, message) -> None:
    folder, pipe = inventory.parent, subprocess.PIPE
    ssh = f'echo "{line}"; touch "{folder}/$$.up"; exec sleep 60'
    with start_lockstep(
        *("switch", "-i", str(inventory), "qwen", *words),
        env=os.environ | environment(folder, ssh),
        # As a terminal has it, which sends Ctrl-C to all of the group.
        begin=os.setpgrp,
        stdout=pipe,
        stderr=pipe,
    ) as process:
        while len(list(folder.glob("*.up"))) < 2 and process.poll() is None:
            time.sleep(0.05)
        # What was said is read a moment later.
        time.sleep(0.5)
        os.killpg(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert out == ""
    assert message in err
    assert "switch cancel" in err or "has begun" not in message


STARTS = """cat <<'END'
lockstep stop: stopping mistral
lockstep gate: starting qwen
lockstep failed: qwen FAILED after 40 s: exited with 1
lockstep why:   ValueError: no such option: --wrong-flag
lockstep why:   the engine's main process died before it was ready
lockstep gate: starting mistral
lockstep failed: mistral FAILED after 2 s: refused
lockstep why:   no memory
lockstep failed: {verdict}
END
exit {code}
"""


def test_the_reason_of_a_failed_start_stands_under_the_verdict(inventory: Path) -> None:
    ssh = STARTS.replace("{verdict}", "NO MODEL IS HOT: qwen and mistral failed")
    result = run(inventory, "qwen", "--limit", "spark-1.local", ssh=ssh, exit_code=4)
    assert result.output.splitlines() == [
        "spark-1.local  exit 4  NO MODEL IS HOT: qwen and mistral failed",
        "  qwen FAILED after 40 s: exited with 1",
        "    ValueError: no such option: --wrong-flag",
        "    the engine's main process died before it was ready",
        "  mistral FAILED after 2 s: refused",
        "    no memory",
    ]
    ssh = STARTS.replace("{verdict}", "qwen FAILED; its fallback x is hot")
    output = run(inventory, "qwen", ssh=ssh, exit_code=3).output
    assert "qwen FAILED after 40 s" in output and output.count("its fallback x is hot") == 2


def test_wrong_use_contacts_nobody(inventory: Path) -> None:
    for words, message in (
        (("qwne",), "nothing was switched on any host. Did you mean 'qwen'? Allowed: qwen"),
        (("zzz",), "has no model 'zzz', and nothing was switched on any host; allowed: qwen"),
        (("qwen", "--wait", "--dry"), "exclude each other"),
    ):
        result = run(inventory, *words, exit_code=2)
        assert message in " ".join(result.output.split())
        assert not (inventory.parent / "bin/spark-1.local").exists()


def test_the_worst_code_is_by_harm_and_not_by_number() -> None:
    pairs = ([0, 0], [0, 3], [3, 1], [75, 1], [1, 77], [2, 77], [4, 2], [137])
    assert [worst(codes) for codes in pairs] == [0, 3, 1, 75, 77, 2, 4, 2]


def test_of_a_cluster_the_first_member_is_asked_for_a_model_each_for_none(tmp_path: Path) -> None:
    path = write_inventory(tmp_path, PAIR)
    (line,) = run(path, "all").output.splitlines()
    assert line.split()[0] == "spark-1.local"
    run(path, "none")
    for host in ("10.0.0.1", "10.0.0.2"):
        assert (tmp_path / "bin" / host).read_text().endswith("switch.sh none --wait\n")
