"""`lockstep switch`: several Sparks at once over plain ssh, one line each, the worst code."""

from __future__ import annotations

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


def run(path: Path, *words: str, code: int = 4) -> Result:
    text = SSH.replace("{code}", str(code))
    return invoke_lockstep(path.parent, text, "switch", "-i", str(path), *words)


def test_one_line_per_host_and_the_worst_code(inventory: Path) -> None:
    result = run(inventory, "qwen")
    assert result.exit_code == 4
    assert sorted(result.output.splitlines()) == [
        "spark-1.local  ok  qwen is hot, started in 95 s, 57.0 tok/s",
        "spark-2.local  exit 4  NO MODEL IS HOT: qwen failed",
    ]
    assert (inventory.parent / "bin/10.0.0.2").read_text() == (
        "-o Port=2222 -o StrictHostKeyChecking=yes -o BatchMode=yes -o ConnectTimeout=15 "
        "-o ServerAliveInterval=10 -o ServerAliveCountMax=3 "
        "-- 10.0.0.2 env LOCKSTEP_EVENTS=1 /data/scripts/llm/switch.sh qwen\n"
    )


def table_lines(phases: Phases) -> list[str]:
    """The lines of the live table."""
    output = Console(width=80, color_system=None, record=True, file=io.StringIO())
    output.print(phases.table())
    return [line.rstrip() for line in output.export_text().splitlines()]


def test_a_terminal_shows_what_each_host_is_at_and_verdicts_above_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [100.0]
    phases = Phases(["spark-1", "spark-2"], clock=lambda: now[0])
    phases.hear("spark-1", "loading weights, file 6 of 13")
    phases.hear("spark-1", "  ")
    phases.hear("spark-2", "stopping mistral")
    now[0] = 142.0
    assert table_lines(phases) == [
        "spark-1  0:42  loading weights, file 6 of 13",
        "spark-2  0:42  stopping mistral",
    ]
    phases.hear("spark-2", None)
    assert table_lines(phases) == ["spark-1  0:42  loading weights, file 6 of 13"]
    terminal = Console(width=40, force_terminal=True, color_system=None, file=io.StringIO())
    monkeypatch.setattr("lockstep.cli.switch.console", lambda: terminal)
    phases = Phases(["spark-1", "spark-2"])
    with phases.live_display():
        phases.say("spark-2  ok  [qwen] is :fire:")
        output = terminal.file.getvalue()  # type: ignore[attr-defined]
    assert "spark-2  ok  [qwen] is :fire:\nspark-1  0:00" in output


def test_limit_leaves_the_others_alone_and_flags_reach_the_host(inventory: Path) -> None:
    result = run(inventory, "mistral-fallback", "--limit", "spark-1.local", "--dry", "-v")
    assert result.exit_code == 0
    assert result.output.splitlines()[0] == "spark-1.local: starting"
    command = (inventory.parent / "bin/spark-1.local").read_text()
    assert "-o User=anna" in command and command.endswith("switch.sh mistral-fallback --dry\n")
    assert not (inventory.parent / "bin/10.0.0.2").exists()


def test_a_connection_that_is_not_there_or_ended_here_is_no_failed_switch(inventory: Path) -> None:
    result = run(inventory, "none", code=255)
    assert result.exit_code == 2
    assert "spark-2.local  exit 2  no connection (NO MODEL" in result.output
    # As Ctrl-C ends an ssh.
    words = ("switch", "-i", str(inventory), "none")
    result = invoke_lockstep(inventory.parent, "kill -INT $$", *words)
    assert result.exit_code == 2
    assert "spark-2.local  exit 2  no connection (ssh was ended here)\n" in result.output


def test_a_host_that_nobody_deployed_to_is_said_to_be_that(inventory: Path) -> None:
    absent = "echo 'bash: line 1: /data/scripts/llm/switch.sh: No such file or directory'; exit 127"
    result = invoke_lockstep(inventory.parent, absent, "switch", "-i", str(inventory), "none")
    assert result.exit_code == 78
    lines = [f"spark-{n}.local  exit 78  not deployed yet → lockstep deploy" for n in (1, 2)]
    assert sorted(result.output.splitlines()) == lines
    local_login = login("@local", {})
    code, said_here, _ = module._run(
        local_login, ["/nonexistent/switch.sh", "none"], False, Phases([])
    )
    assert (code, said_here) == (78, "@local  exit 78  not deployed yet → lockstep deploy")


@pytest.mark.parametrize(
    ("line", "words", "message"),
    [
        ("lockstep stop: stopping x", (), "A switch that has begun goes on, on spark-1.local, "),
        # As a host of an earlier release says it.
        ("stopping mistral", ("--wait",), "No host has told of a switch that began;"),
        ("up now: mistral", ("--dry",), "Ended by Ctrl-C.\n"),
    ],
)
def test_ctrl_c_is_no_lost_connection(
    inventory: Path, line: str, words: tuple[str, ...], message: str
) -> None:
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


def test_a_reader_that_goes_does_not_change_the_exit_code(inventory: Path) -> None:
    read, write = os.pipe()
    os.close(read)
    words = ("switch", "-i", str(inventory), "-v", "qwen")
    for code in (0, 4):
        variables = os.environ | environment(inventory.parent, SSH.replace("{code}", str(code)))
        with start_lockstep(*words, env=variables, stdout=write, stderr=subprocess.PIPE) as process:
            assert (process.communicate()[1], process.returncode) == ("", code)
    os.close(write)


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
    words = ("switch", "-i", str(inventory), "qwen")
    ssh = STARTS.format(verdict="NO MODEL IS HOT: qwen and mistral failed", code=4)
    result = invoke_lockstep(inventory.parent, ssh, *words, "--limit", "spark-1.local")
    assert result.output.splitlines() == [
        "spark-1.local  exit 4  NO MODEL IS HOT: qwen and mistral failed",
        "  qwen FAILED after 40 s: exited with 1",
        "    ValueError: no such option: --wrong-flag",
        "    the engine's main process died before it was ready",
        "  mistral FAILED after 2 s: refused",
        "    no memory",
    ]
    ssh = STARTS.format(verdict="qwen FAILED; its fallback x is hot", code=3)
    result = invoke_lockstep(inventory.parent, ssh, *words)
    assert "qwen FAILED after 40 s" in result.output
    assert result.output.count("its fallback x is hot") == 2
    # A host of an earlier release wraps its lines for a terminal, and has no events.
    lines = "qwen FAILED after 40 s: exited with 1\\n  no memory\\nNO MODEL IS HOT: qwen\\n  failed"
    ssh = f"printf '{lines}\\n'; exit 4"
    result = invoke_lockstep(inventory.parent, ssh, *words, "--limit", "spark-1.local")
    assert result.output.splitlines() == ["spark-1.local  exit 4  NO MODEL IS HOT: qwen failed"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("qwne",), "nothing was switched on any host. Did you mean 'qwen'? Allowed: qwen"),
        (("zzz",), "has no model 'zzz', and nothing was switched on any host; allowed: qwen"),
        (("qwen", "--wait", "--dry"), "exclude each other"),
    ],
)
def test_wrong_use_contacts_nobody(inventory: Path, words: tuple[str, ...], message: str) -> None:
    result = run(inventory, *words)
    assert result.exit_code == 2
    assert message in " ".join(result.output.split())
    assert not (inventory.parent / "bin/spark-1.local").exists()


@pytest.mark.parametrize(
    ("codes", "expected_code"),
    [([0, 0], 0), ([0, 3], 3), ([3, 1], 1), ([75, 1], 75), ([2, 77], 2), ([4, 2], 4), ([137], 2)],
)
def test_the_worst_code_is_by_harm_and_not_by_number(codes: list[int], expected_code: int) -> None:
    assert worst(codes) == expected_code


def test_of_a_cluster_the_first_member_is_asked_for_its_model_and_each_for_none(
    tmp_path: Path,
) -> None:
    path = write_inventory(tmp_path, PAIR)
    result = run(path, "all", code=0)
    assert [line.split()[0] for line in result.output.splitlines()] == ["spark-1.local"], (
        result.output
    )
    run(path, "none", code=0)
    for host in ("10.0.0.1", "10.0.0.2"):
        assert (tmp_path / "bin" / host).read_text().endswith("switch.sh none --wait\n")
