"""Attacks on switches, and faults of Docker meanwhile."""

from __future__ import annotations

import os
import shlex
import signal
from typing import TYPE_CHECKING

from stack import until

from hostile_rows.row import (
    FREEZE,
    QWEN_GROUP,
    SWITCH,
    THAW,
    Row,
    alive,
    expect,
    row,
    short,
)

if TYPE_CHECKING:
    from hostile import Site


def two_switches(site: Site) -> str:
    site.be_hot("none") if site.hot else None
    first = site.host.begin(f"{SWITCH} qwen")
    until(lambda: site.host.status()["switching"] is not None, "the first one switches", 30)
    second = site.switch("mistral", by="olga")
    first.communicate(timeout=200)
    expect(first.returncode == 0 and second.code == 75 and "spark" in second.text, short(second))
    return f"0 and 75: {short(second, 100)}"


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


def worker(site: Site) -> str:
    model = "mistral" if site.hot == "qwen" else "qwen"
    client = site.host.begin(f"{SWITCH} {model}")
    try:
        until(lambda: site.host.status()["switching"] is not None, "it switches", 30)
        site.host.root("systemctl kill -s STOP lockstep-switch.service")
        status = site.switch("status")
        second = site.switch(model, by="olga", limit_s=60)
        site.host.root("systemctl kill -s CONT lockstep-switch.service")
        client.communicate(timeout=200)
    finally:
        site.host.run("sudo -n systemctl kill -s CONT lockstep-switch.service")
        client.kill()
    expect("spark is switching" in status.text and second.code == 75, short(second))
    return f"status names it; second {short(second, 90)}"


def killed_worker(site: Site) -> str:
    """The switch itself is killed while a model loads: it is finished, with a client or without."""
    model = "mistral" if site.hot == "qwen" else "qwen"
    client = site.host.begin(f"{SWITCH} {model}")
    until(lambda: site.host.status()["switching"] is not None, "it switches", 30)
    site.host.run("sudo -n systemctl kill --kill-whom=main -s KILL lockstep-switch.service")
    output, _ = client.communicate(timeout=200)
    until(lambda: site.host.status()["switching"] is None, "it is over", 200)
    until(lambda: site.hot is not None, "a model is hot", 200)
    return f"{site.hot} hot after it; rc {client.returncode}: {' '.join(output.split())[-100:]}"


def beside(site: Site, program: str) -> str:
    """A service beside the switch stands still; the switch ends all the same."""
    model = "mistral" if site.hot == "qwen" else "qwen"
    unit = program.removesuffix(".service")
    site.host.root(f"systemctl kill -s STOP {unit}")
    try:
        answer = site.switch(model)
        status = site.switch("status")
    finally:
        site.host.run(f"sudo -n systemctl kill -s CONT {unit}")
    expect(status.text.strip() != "", "status says nothing")
    expect(answer.code == 0 or bool(answer.text.strip()), short(answer))
    expect(len(set(site.engines())) <= 1, "two engines")
    return short(answer, 120)


def frozen_engine(site: Site) -> str:
    """Every process of the hot engine is frozen; a switch to another model ends it."""
    site.be_hot("qwen")
    site.host.root(f"kill -STOP $(cat {QWEN_GROUP}/docker-*.scope/cgroup.procs)")
    answer = site.switch("mistral")
    expect(answer.code == 0 and not alive(site), short(answer))
    return "ended, mistral hot"


def no_run_folder(site: Site) -> str:
    site.be_hot("qwen")
    site.host.root("rm -rf /run/lockstep")
    answer = site.switch("mistral")
    expect(answer.code == 0, short(answer))
    state = site.host.root(
        "systemctl is-active lockstep-memory lockstep-gateway lockstep-wedge.timer"
    )
    expect(state.split() == ["active"] * 3, state)
    return "switch rc 0, memory watch, gateway and wedge watch active"


def no_journal(site: Site, how: str) -> str:
    model = "mistral" if site.hot == "qwen" else "qwen"
    site.host.run(f"sudo -n sh -c {shlex.quote(how)}")
    answer = site.switch(model)
    site.host.run("sudo -n pkill -CONT systemd-journal; sudo -n systemctl start systemd-journald")
    expect(answer.code == 0, short(answer))
    return "switch rc 0"


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
    Row("S1", "spark and olga at once: one 0, one 75 that names the other", two_switches),
    Row("S2", "the switch itself is killed while loading: it is finished", killed_worker),
    row(
        "K0", "the switch's client gets SIGKILL: it ends, the next one works", clients, "SIGKILL", 9
    ),
    Row("S5", "/run/lockstep removed while hot: everything works", no_run_folder),
    row("S6", "journald frozen: the switch ends", no_journal, "pkill -STOP systemd-journal"),
    row(
        "S6b",
        "journald stopped: the switch ends",
        no_journal,
        "systemctl stop systemd-journald.socket systemd-journald-dev-log.socket systemd-journald",
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
    Row("S11", "the switch itself is frozen: status names it, a second one is told", worker),
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
    row("F3", "the folder of the switch's log is full: the same", full, "/var/log/lockstep"),
    row("K1", "the same with SIGHUP", clients, "SIGHUP", 1),
    row("K2", "the same with SIGQUIT", clients, "SIGQUIT", 3),
    row("K3", "the same with SIGSTOP", clients, "SIGSTOP", 19),
    Row("K4", "nobody reads what the switch says: it ends", pipe),
    Row("K5", "every process of the hot engine is frozen: a switch away ends it", frozen_engine),
    row(
        "K6",
        "the gateway is frozen: a switch works or says why",
        beside,
        "lockstep-gateway.service",
    ),
    row("K7", "the memory watch is frozen: the same", beside, "lockstep-memory.service"),
)
