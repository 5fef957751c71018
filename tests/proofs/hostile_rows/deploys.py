"""Attacks on deploys, and faults of Docker meanwhile."""

from __future__ import annotations

import os
import shlex
import signal
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from stack import until

from hostile_rows.row import BOUND_DEPLOY, BOUND_S, FREEZE, THAW, UNITS, Row, expect, row, short

if TYPE_CHECKING:
    from hostile import Site


def docker_control(site: Site) -> str:
    """status, diff and plan of the control machine while Docker stands still."""
    site.host.root(FREEZE)
    try:
        answers = [site.control(command) for command in ("status", "diff", "plan")]
    finally:
        site.host.root(THAW)
    expect(
        all("Traceback" not in answer.text and answer.text.strip() for answer in answers),
        short(answers[1]),
    )
    return "; ".join(f"rc {answer.code}" for answer in answers) + f" {short(answers[1], 120)}"


def docker_deploy(site: Site) -> str:
    """Docker stands still from before a deploy to its end."""
    site.host.root(FREEZE)
    try:
        result = site.deploy(limit_s=BOUND_S)
    finally:
        site.host.root(THAW)
    expect(
        result.code != 0 and "ocker" in result.text and "Traceback" not in result.text,
        short(result),
    )
    again = site.deploy()
    expect(again.code == 0, short(again))
    return f"{short(result, 160)}; again rc 0"


def docker_mid_deploy(site: Site, fault: str, heal: str) -> str:
    site.host.root("rm -f /data/scripts/llm/start-mistral.sh")
    deploy = site.start()
    deploy.says("Beginning operation run")
    site.host.root(fault)
    try:
        result = deploy.end(BOUND_S)
    finally:
        site.host.run(f"sudo -n sh -c {shlex.quote(heal)}")
    expect("Traceback" not in result.output, result.output[-300:])
    again = site.deploy()
    expect(again.code == 0, short(again))
    return f"rc {result.code}, again rc 0"


def spoil(site: Site) -> None:
    """Give the next deploy a file to write."""
    site.host.root(
        "rm -f /data/scripts/llm/start-mistral.sh; "
        f"sed -i '$a# hostile' {UNITS}/lockstep-gateway.service {UNITS}/lockstep-wedge.service"
    )


def heal_by_deploy(site: Site) -> str:
    again = site.deploy()
    expect(again.code == 0, short(again))
    leftovers = site.host.root(
        "find /etc /data/scripts /usr/local/lib /var/lib/lockstep-deploy -name '.lockstep-*'"
    )
    differs = site.drift()
    expect(differs.code == 0 and not leftovers.strip(), f"{leftovers} {short(differs, 300)}")
    return "next deploy rc 0, nothing left over, no drift"


def killed_at(site: Site, pattern: str) -> str:
    spoil(site)
    site.start().kill_at(pattern)
    return heal_by_deploy(site)


def killed_in_docker(site: Site) -> str:
    site.host.root(FREEZE)
    try:
        deploy = site.start()
        deploy.says("Connected|Connecting")
        time.sleep(5)  # Somewhere in its questions; there is no condition to wait for.
        deploy.kill()
        second = site.deploy(limit_s=BOUND_S)
    finally:
        site.host.root(THAW)
    expect(second.code != 0 and "Traceback" not in second.text, short(second))
    return f"second {short(second, 120)}; {heal_by_deploy(site)}"


def two_deploys(site: Site) -> str:
    spoil(site)
    deploy = site.start()
    free = "flock --nonblock /run/lockstep/deploy.lock true"
    until(lambda: site.host.run(f"sudo -n {free}").code != 0, "the first one has the lock")
    os.kill(deploy.pid, signal.SIGSTOP)
    second = site.deploy(limit_s=120)
    os.kill(deploy.pid, signal.SIGCONT)
    result = deploy.end(BOUND_DEPLOY)
    second_text = " ".join(second.text.split())
    expect(
        "another deploy is under way" in second_text and "Nothing was touched" in second_text,
        short(second),
    )
    expect(result.code == 0, result.output[-300:])
    return "second names the first and touches nothing; first rc 0"


def no_room(site: Site, place: str, words: str) -> str:
    """A folder of ours has no room and is empty; the deploy fails, with `words`."""
    site.host.root(
        f"mount -t tmpfs -o size=1m hostile {place}; chown --reference=/var/lib/lockstep {place}; "
        f"dd if=/dev/zero of={place}/x bs=4k count=300 2>/dev/null; true"
    )
    result = site.deploy(limit_s=BOUND_DEPLOY)
    site.host.root(f"umount -l {place}")
    expect(result.code != 0 and words in result.text, short(result, 600))
    expect("Traceback" not in result.text, short(result, 600))
    return f"{short(result, 160)}; {heal_by_deploy(site)}"


def read_only(site: Site, place: str) -> str:
    spoil(site)
    site.host.root(f"mount --bind {place} {place}; mount -o remount,bind,ro {place}")
    result = site.deploy(limit_s=BOUND_DEPLOY)
    site.host.root(f"umount -l {place}")
    expect(
        result.code != 0 and "Read-only" in result.text and "Traceback" not in result.text,
        short(result),
    )
    return f"{short(result, 140)}; {heal_by_deploy(site)}"


def by_hand(site: Site, unit: str) -> str:
    """A unit is changed by hand and read by systemd; after a deploy systemd has ours."""
    show = f"systemctl show -p ExecStart -p NeedDaemonReload {unit}"
    path = f"{UNITS}/{unit}"
    site.host.root(
        f"sed -i 's/^ExecStart=.*/ExecStart=\\/bin\\/true/' {path}; systemctl daemon-reload"
    )
    result = site.deploy(limit_s=BOUND_DEPLOY)
    later_state = site.host.root(show)
    expect(result.code == 0, short(result))
    expect("/bin/true" not in later_state and "NeedDaemonReload=no" in later_state, later_state)
    return "systemd has the file that the deploy wrote"


def dpkg_lock(site: Site) -> str:
    program = (
        "import fcntl, time; f = open('/var/lib/dpkg/lock-frontend', 'w'); fcntl.lockf(f, 2); "
        "print('EVE HOLDS'); time.sleep(20)"
    )
    site.host.root("dpkg --remove --force-depends jq >/dev/null")
    site.begin_python("dpkg", program, by="root")
    until(lambda: "EVE HOLDS" in site.saw("dpkg"), "dpkg is locked")
    result = site.deploy(limit_s=BOUND_DEPLOY)
    expect(result.code == 0 and "python3" in result.text, short(result))
    site.host.root("command -v jq")
    return "waits, names who holds it, rc 0"


def ssh_lost(site: Site, fault: str, right: Iterable[int]) -> str:
    spoil(site)
    deploy = site.start()
    deploy.says("Beginning operation run")
    site.host.begin(f"sudo -n sh -c {shlex.quote(fault)}")
    result = deploy.end(BOUND_DEPLOY)
    output = result.output[-600:]
    expect("Traceback" not in result.output, f"a traceback: {output[-200:]}")
    expect(result.code in right, output)
    return f"rc {result.code}; {heal_by_deploy(site)}"


LOCKS: dict[str, Callable[[str], str]] = {
    "cut": lambda text: text[: len(text) // 2],
    "empty": lambda text: "",
    "conflict": lambda text: "<<<<<<< HEAD\n" + text + "=======\n>>>>>>> x\n",
    "version": lambda text: text.replace("version: ", "version: 99", 1),
    "binary": lambda text: "\x00\x01\x02" + text[:100],
}


def spoilt_locks(site: Site) -> str:
    whole, outcomes = site.stack.lock.read_text(), []
    for name, change in LOCKS.items():
        path = site.stack.folder / f"{name}.lock.yaml"
        path.write_text(change(whole))
        inventory = site.stack.inventory(f"lock-{name}", lock=str(path))
        result = site.deploy(inventory=inventory, limit_s=120)
        words = " ".join(result.text.split())
        right = result.code != 0 and "Traceback" not in words
        expect(right, f"{name}: {short(result)}")
        outcomes.append(f"{name} rc {result.code}")
    return ", ".join(outcomes)


def addresses(site: Site, first: str, second: str) -> str:
    inventory = site.stack.inventory(
        f"addresses-{first}-{second}", spark1__ssh_hostname=first, spark2__ssh_hostname=second
    )
    result = site.deploy("--dry", inventory=inventory, limit_s=120)
    expect(result.code != 0, f"dry run {short(result)}")
    return short(result, 160)


NAMES = {"spark1.": (0, 2), "Spark1": (0, 2), "spark1\n": (2,), "spark1;id": (2,), "-spark1": (2,)}


def names(site: Site) -> str:
    outcomes = []
    for number, (name, right) in enumerate(NAMES.items()):
        folder = site.stack.folder / f"names-{number}"
        folder.mkdir(exist_ok=True)
        path = folder / "lab.py"
        original = site.stack.inventory("names")
        path.write_text(
            "import runpy\nfrom lockstep.deploy.checked import checked\n"
            f"_original, _ = runpy.run_path({str(original)!r})['lab']\n"
            f"lab = checked(__file__, [({name!r}, _original[0][1]), *_original[1:]])\n"
        )
        result = site.deploy("--dry", inventory=path, limit_s=120)
        expect(result.code in right, f"{name!r}: {short(result)}")
        outcomes.append(f"{name!r} rc {result.code}")
    return ", ".join(outcomes)


ROWS = (
    Row(
        "D1a",
        "a deploy killed while Docker is frozen, another at once: told, healed",
        killed_in_docker,
    ),
    row(
        "D1b",
        "a deploy killed while it writes: healed",
        killed_at,
        "Starting operation: .*(Units|unit|Switch|switch)",
    ),
    row(
        "D1c",
        "a deploy killed at the gateway: healed",
        killed_at,
        "Starting operation: .*[Gg]ateway",
    ),
    Row(
        "D2",
        "a deploy is frozen, another one meanwhile: names it; the first one ends well",
        two_deploys,
    ),
    row(
        "D3a",
        "no room for models: refused with figures",
        no_room,
        "/data/models/huggingface",
        "GiB free",
    ),
    row(
        "D3b",
        "no room in our folder of images, which are all there: named, healed",
        no_room,
        "/var/cache/lockstep",
        "No space left",
    ),
    row("D4", "/etc/systemd/system is read-only: named, no half state", read_only, UNITS),
    Row("D5", "clocks that differ", cannot="hosts share this machine's clock (docs/lab.md)"),
    Row("D6", "dpkg's lock is held: waits, says who", dpkg_lock),
    row("D7", "ssh restarts in a deploy: it survives", ssh_lost, "systemctl restart ssh", (0,)),
    row(
        "D7b",
        "the deploy's ssh sessions are killed: connection lost, run again",
        ssh_lost,
        "pkill -9 sshd-session; pkill -9 -f 'sshd: spark'",
        (0, 1),
    ),
    row(
        "D8a",
        "Docker stopped in a deploy: clear or done",
        docker_mid_deploy,
        "systemctl stop docker.socket docker",
        "systemctl start docker",
    ),
    row("D8b", "Docker frozen in a deploy: bounded and clear", docker_mid_deploy, FREEZE, THAW),
    Row("D9", "a lock cut, empty, in conflict, of another version, binary: refused", spoilt_locks),
    row("D10", "swapped addresses: refused or named", addresses, "10.77.0.12", "10.77.0.11"),
    row("D10b", "two hosts at one address: refused", addresses, "10.77.0.11", "10.77.0.11"),
    Row("D11", "odd names of hosts: work or are refused", names),
    row(
        "D13",
        "a timer's service changed by hand: systemd has ours after a deploy",
        by_hand,
        "lockstep-wedge.service",
    ),
    Row("W6", "Docker frozen: status, diff and plan of the control machine answer", docker_control),
    Row("W7", "Docker frozen from before a deploy to its end: refused, healed", docker_deploy),
    row(
        "U1",
        "the sense watch's service changed by hand: systemd has ours after a deploy",
        by_hand,
        "lockstep-sense.service",
    ),
)
