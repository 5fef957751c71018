"""Attacks on switches, and faults of Docker meanwhile."""

from __future__ import annotations

import os
import shlex
import signal
from typing import TYPE_CHECKING

from stack import until

from hostile_rows.row import FREEZE, SWITCH, THAW, Row, alive, expect, row, short

if TYPE_CHECKING:
    from hostile import Site


def clients(site: Site, name: str, number: int) -> str:
    """The client of a switch gets a signal; the switch ends, and the next one works."""
    model = "mistral" if site.hot == "qwen" else "qwen"
    site.begin("client", f"exec {SWITCH} {model}", by="olga")
    until(lambda: site.host.status()["switching"] is not None, "it switches", 30)
    site.signal("client", number)
    until(lambda: site.host.status()["switching"] is None, f"it is over after {name}", 200)
    later_hot = site.hot
    expect(later_hot is not None, "nothing is hot after it")
    answer = site.switch("mistral" if later_hot == "qwen" else "qwen")
    expect(answer.code == 0, short(answer))
    return f"{later_hot} hot after it, next switch rc 0"


def ssh_client(site: Site) -> str:
    model = "mistral" if site.hot == "qwen" else "qwen"
    client = site.host.begin(f"{SWITCH} {model}")
    try:
        until(lambda: site.host.status()["switching"] is not None, "it switches", 30)
        os.kill(client.pid, signal.SIGSTOP)
        until(lambda: site.host.status()["switching"] is None, "the switch is over", 200)
        answer = site.switch("none")
        expect(answer.code == 0, short(answer))
    finally:
        client.kill()
        client.wait()
    return "the switch ended, next one rc 0"


def pipe(site: Site) -> str:
    model = "mistral" if site.hot == "qwen" else "qwen"
    site.run(f"{SWITCH} {model} | head -c 1 > /dev/null; true", "olga")
    until(lambda: site.host.status()["switching"] is None, "the switch is over", 200)
    expect(site.hot == model, f"hot: {site.hot}")
    return f"{model} is hot although nobody listened"


def full(site: Site, place: str) -> str:
    """A folder has no room while somebody switches."""
    model = "mistral" if site.hot == "qwen" else "qwen"
    site.host.root(
        f"mount -t tmpfs -o size=16k,mode=1777 hostile {place}; "
        f"dd if=/dev/zero of={place}/x bs=4k count=9 2>/dev/null; true"
    )
    answer = site.switch(model)
    status = site.switch("status")
    site.host.root(f"umount -l {place}")
    expect(status.code == 0 and bool(answer.text.strip()), short(answer))
    expect(answer.code == 0 or site.hot is not None, f"{short(answer)}; nothing is hot")
    return short(answer, 120)


def docker(site: Site, hang: str, heal: str, model: str) -> str:
    """Docker is made to fail while qwen is hot; a switch is refused, or ends the hot model."""
    site.be_hot("qwen")
    # Where dockerd dies, its client does, and then the unit ends the container at once.
    earlier_count = len(alive(site))
    site.host.root(hang)
    try:
        answer = site.switch(model)
        processes = alive(site)
        status = site.switch("status", limit_s=60)
    finally:
        site.host.run(f"sudo -n sh -c {shlex.quote(heal)}")
    expect(bool(status.text.strip()), "status says nothing")
    expect(earlier_count > 0, "qwen is hot and has no process")
    expect(
        not (answer.code == 0 and processes),
        f"rc 0 beside {len(processes)} living processes of qwen",
    )
    expect(answer.code == 0 or len(answer.text) > 20, f"no word: {short(answer)}")
    went = (
        "ended first"
        if answer.code == 0
        else f"{len(processes)} of {earlier_count} processes of qwen live"
    )
    return f"{went}; {short(answer, 160)}"


KILLED = (
    "systemctl mask --runtime --quiet docker.service docker.socket; "
    "pkill -9 -x dockerd; sleep 1; rm -f /run/docker.sock; true"
)

REVIVED = (
    "systemctl unmask --runtime --quiet docker.service docker.socket; "
    "systemctl reset-failed docker.service docker.socket; "
    "systemctl restart docker.socket; systemctl start docker"
)

AWAY = "mv /run/docker.sock /run/docker.sock.away"

BACK = "mv /run/docker.sock.away /run/docker.sock"


ROWS = (
    row(
        "K0", "the switch's client gets SIGKILL: it ends, the next one works", clients, "SIGKILL", 9
    ),
    row(
        "S9",
        "Docker frozen, container to container: refused, or qwen ended first",
        docker,
        FREEZE,
        THAW,
        "mistral",
    ),
    row(
        "S9b",
        "Docker frozen, container to venv: refused, or qwen ended first",
        docker,
        FREEZE,
        THAW,
        "tiny",
    ),
    Row("S12", "the ssh client is frozen: the switch ends, the next one works", ssh_client),
    row(
        "W1",
        "Docker frozen, switch.sh none: bounded, and what it says is so",
        docker,
        FREEZE,
        THAW,
        "none",
    ),
    row(
        "W2",
        "dockerd killed while its container lives: refused, or qwen ended first",
        docker,
        KILLED,
        REVIVED,
        "tiny",
    ),
    row(
        "W3",
        "containerd frozen: the same",
        docker,
        "pkill -STOP -x containerd",
        "pkill -CONT -x containerd",
        "mistral",
    ),
    row(
        "W4",
        "the container's shim frozen: the same",
        docker,
        "pkill -STOP -x containerd-shim",
        "pkill -CONT -x containerd-shim",
        "mistral",
    ),
    row("W5", "Docker's socket is gone: the same", docker, AWAY, BACK, "mistral"),
    row("F1", "/tmp is full: a switch works or says why", full, "/tmp"),
    row("F2", "/dev/shm is full: the same", full, "/dev/shm"),
    row("K1", "the same with SIGHUP", clients, "SIGHUP", 1),
    row("K2", "the same with SIGQUIT", clients, "SIGQUIT", 3),
    row("K3", "the same with SIGSTOP", clients, "SIGSTOP", 19),
    Row("K4", "nobody reads what the switch says: it ends", pipe),
)
