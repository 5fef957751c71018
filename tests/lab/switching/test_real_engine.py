"""The real vLLM on a host: its start by `switch.sh`, and its end.

All of it at one start of vLLM, which takes a minute.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator

import pytest
from stack import Answer, Host, Stack, until

from lab.host import connection

# Whoever has sent the head of a question and not its body is waited for by every web server.
HALF_A_QUESTION = r"""
exec 3<>/dev/tcp/127.0.0.1/8000
printf 'POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n' >&3
printf 'Content-Length: 100\r\n\r\n{' >&3
cat <&3
"""


@pytest.fixture(scope="module", autouse=True)
def nothing_hot_afterwards(stack: Stack) -> Iterator[None]:
    """Leave the host as the next tests expect it."""
    yield
    stack.spark1.switch("none")


@pytest.fixture(scope="module")
def read_ahead_values(stack: Stack, first: object) -> Iterator[str]:
    """A file with each value, in KiB, that the read-ahead of the weights' disk has had, in order.

    The settings of the lab's own disks are read-only for a host, so this is a folder of its own.
    """
    host, values = stack.spark1, "/run/read-ahead-values"
    host.root(
        "mount -t tmpfs settings /sys/class/bdi && "
        "mkdir /sys/class/bdi/$(stat -c %Hd:%Ld /data/models) && "
        "cd /sys/class/bdi/* && echo 128 > read_ahead_kb"
    )
    watch = (
        "cd /sys/class/bdi/* && while sleep 0.05; do cat read_ahead_kb; done | "
        f"stdbuf -oL uniq > {values}"
    )
    host.root(f"systemd-run --quiet --collect --unit=watch-values sh -c {shlex.quote(watch)}")
    yield values
    host.root(f"systemctl stop watch-values; umount -l /sys/class/bdi; rm {values}")


@pytest.fixture(scope="module")
def tiny(stack: Stack, read_ahead_values: str) -> Answer:
    """`switch.sh tiny` on spark1."""
    return stack.spark1.switch("tiny")


def test_the_real_vllm_becomes_hot(lab_host: Host, tiny: Answer) -> None:
    assert tiny.code == 0, tiny.text
    assert "tiny is hot, started in" in tiny.out
    assert lab_host.active() == {"vllm.service"}
    reply = lab_host.complete(8000, "tiny-qwen3")
    assert reply["usage"]["completion_tokens"] == 8
    assert lab_host.get("http://127.0.0.1:8000/version")["version"].startswith("0.32")


def test_its_disk_reads_in_large_steps_until_it_is_ready(
    lab_host: Host, tiny: Answer, read_ahead_values: str
) -> None:
    until(
        lambda: lab_host.root(f"cat {read_ahead_values}").split() == ["128", "16384", "128"],
        "the read-ahead was raised once, and is the disk's own again",
    )
    assert lab_host.root("ls /run/lockstep/read-ahead.json 2>&1 || true").endswith(
        "No such file or directory\n"
    )


def test_status_says_what_systemd_says(lab_host: Host, tiny: Answer) -> None:
    status = lab_host.status()
    assert status["hot"] == "tiny"
    assert status["problems"] == [] and status["unknown"] == []
    assert status["webui"] == "active"
    states = {name: model["state"] for name, model in status["models"].items()}
    assert states == {
        "qwen": "off",
        "mistral": "off",
        "mistral-fallback": "off",
        "tiny": "hot",
    }
    for model in status["models"].values():
        active = lab_host.show(f"{model['unit'].removesuffix('.service')}.service", "ActiveState")
        assert (model["state"] == "hot") == (active == "active")
    assert status["models"]["tiny"]["ready"] is True


def test_status_for_people_says_the_same_within_forty_columns(lab_host: Host, tiny: Answer) -> None:
    lines = lab_host.on_a_phone("status")
    assert lines[0] == "spark1: tiny hot"
    assert any(line.startswith("tiny  ") and "hot since" in line for line in lines[1:])
    assert [line for line in lines if len(line) > 40] == []


def test_the_engine_survives_the_operators_logout(
    stack: Stack, lab_host: Host, tiny: Answer
) -> None:
    """With an ordinary account logind would remove the engine's semaphores now."""
    pid = lab_host.show("vllm.service", "MainPID")
    # Asking over SSH would be a login, so the host itself reports that logind let go of the user.
    report = f"{connection.load(stack.name).services['python_index']}nobody-is-logged-in/"
    logout_watch = f"while loginctl show-user spark; do sleep 0.2; done; curl -s {report}"
    lab_host.root(f"systemd-run --quiet --collect sh -c {shlex.quote(logout_watch)}")
    until(
        lambda: any("nobody-is-logged-in" in request.path for request in stack.requests("web")),
        "spark1: logind has let go of the operator",
    )
    assert lab_host.complete(8000, "tiny-qwen3")["usage"]["completion_tokens"] == 8
    assert lab_host.show("vllm.service", "MainPID") == pid
    assert lab_host.show("vllm.service", "NRestarts") == "0"


def test_the_running_engine_was_started_as_the_recipe_says(
    stack: Stack, lab_host: Host, tiny: Answer
) -> None:
    variant = stack.variants()[lab_host.name]["tiny"]
    pid = lab_host.show("vllm.service", "MainPID")
    argv, environment = process(lab_host, pid)
    # The kernel puts the interpreter of the console script before its words.
    assert argv[1:] == variant["argv"]
    assert argv[2:4] == ["serve", "lab/tiny-qwen3"]
    assert argv[argv.index("--revision") + 1] == variant["commit"]
    assert variant["environment"].items() <= environment.items()
    assert environment["HF_HUB_OFFLINE"] == "1"
    assert not {name for name in environment if "proxy" in name.lower()}
    listing = lab_host.root(f"nsenter --target {pid} --mount ls -A /etc/lockstep /run/lockstep")
    visible_files = ["models.json", "served-weights.json"]
    assert listing.split() == ["/etc/lockstep:", *visible_files, "/run/lockstep:"]


def test_a_switch_does_not_wait_for_the_clients_of_the_real_vllm(
    lab_host: Host, tiny: Answer
) -> None:
    lab_host.hold_streams(8000, "tiny-qwen3", 16)
    # vLLM may tell the streams that their engine is gone; who is still asking is told nothing.
    lab_host.root(f"systemd-run --quiet --collect bash -c {shlex.quote(HALF_A_QUESTION)}")
    asking = "ss -tnpH state established 'dport = :8000' | grep -c '\"cat\"' || true"
    until(
        lambda: lab_host.root(asking).strip() == "1", "spark1: a client has asked half a question"
    )
    # As a wedge: nothing more comes of the engine's process. It does not see either that its main
    # process is killed.
    engine = lab_host.root("pgrep -f ^VLLM::EngineCore").strip()
    lab_host.root(f"kill -STOP {engine}")
    processes = lab_host.root("pgrep -u $(systemctl show -p User --value vllm.service)").split()
    since = lab_host.root("date +%s").strip()
    answer = lab_host.switch("none")
    assert answer.code == 0, answer.text
    log = lab_host.logs("lockstep end: ", f"--since=@{since}", "_SYSTEMD_UNIT=vllm.service")
    waits, kill_at = (log.find(words) for words in ("Waiting for connections", "lockstep end: "))
    assert -1 < waits < kill_at, log
    assert (
        lab_host.show("vllm.service", "ActiveState"),
        lab_host.show("vllm.service", "Result"),
    ) == (
        "inactive",
        "success",
    )
    assert engine in processes
    leftovers = lab_host.root(f"ps -o pid= -p {','.join(processes)} || true; ls /dev/shm")
    assert leftovers == "", "memory is still taken"


def process(host: Host, pid: str) -> tuple[list[str], dict[str, str]]:
    """Command line and environment of a process."""
    argv = host.root(f"cat /proc/{pid}/cmdline").split("\0")[:-1]
    pairs = host.root(f"cat /proc/{pid}/environ").split("\0")
    return argv, dict(pair.partition("=")[::2] for pair in pairs if pair)
