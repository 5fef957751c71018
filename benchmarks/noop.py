"""What a no-op deploy of both lab hosts costs, beside its floor and an Ansible playbook.

`make bench`, with the lab deployed (`make deploy`). All times are measured in turn in one run of
this program, so that the ratios hold on a machine whose speed drifts; medians of RUNS rounds. The
playbook has run once before that, and must have changed nothing: what it would change, the deploy
does not manage so.

exit codes: 0 all ratios are as they should be; 1 one is not
"""

from __future__ import annotations

import math
import os
import re
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

import yaml

from benchmarks.playbook import tasks, variables
from lab.host import connection
from lockstep.fleet.login import ALIVE, ssh_options
from lockstep.inventory import inventory_file
from lockstep.lock import lockfile

ROOT = Path(__file__).resolve().parent.parent
INVENTORY = ROOT / "inventories/lab.py"
RUNS = 5
# Round trip added to every host's cable, milliseconds.
FAR_MS = 20
BIN = Path(sys.executable).parent

MOST_COMMANDS = 3
#: The deploy takes at most so many times what starting pyinfra and logging in take.
MOST_OF_FLOOR = 3.0
#: With FAR_MS it takes at most so many times what it takes without.
MOST_OF_NEAR = 2.0
#: Ansible takes at least so many times what the deploy takes.
LEAST_OF_ANSIBLE = 40


def seconds(argv: Sequence[str], **environment: str) -> float:
    """Wall-clock seconds of a run that must succeed."""
    every = {**os.environ, **environment}
    # Without bytecode each start compiles all of pyinfra, and of Ansible, anew.
    every.pop("PYTHONDONTWRITEBYTECODE", None)
    start = time.perf_counter()
    done = subprocess.run(argv, cwd=ROOT, env=every, capture_output=True, text=True)
    spent = time.perf_counter() - start
    if done.returncode != 0:
        said = (done.stdout + done.stderr)[-2000:]
        sys.exit(f"{argv[0]} ended with {done.returncode}:\n{said}")
    return spent


def deploy() -> list[str]:
    """The no-op deploy, as users run it."""
    return [str(BIN / "pyinfra"), "-y", str(INVENTORY.relative_to(ROOT)), "deploy.py"]


def remote_commands(hosts: Iterable[str]) -> int:
    """How many commands one no-op deploy runs on a host, the most; counted in pyinfra's log."""
    done = subprocess.run(
        [*deploy(), "--debug"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    log = done.stdout + done.stderr
    changed = re.search(r"Grand total\s+\d+\s+(\S+)", log)
    if changed is None or changed[1] != "-":
        sys.exit("the deploy changed something: run `make deploy` until it does not, then again")
    return max(log.count(f"Running command on {host}:") for host in hosts)


def ssh(lab: connection.Description, address: str) -> list[str]:
    """Plain ssh to a host, without a shared connection."""
    options = {"BatchMode": "yes"}
    return [*connection.client(lab.ssh_key, lab.known_hosts, options), f"{lab.ssh_user}@{address}"]


def ansible(lab: connection.Description, folder: Path) -> tuple[list[str], dict[str, str]]:
    """Write playbook, inventory and configuration; return the command and its environment."""
    plans = inventory_file.load(INVENTORY)
    record = lockfile.load(inventory_file.lock_path(INVENTORY, plans))
    address = {host.name: host.address for host in lab.hosts}
    first = tasks(plans[0], record)
    play = {"hosts": "all", "gather_facts": False, "become": True, "tasks": first}
    (folder / "play.yml").write_text(yaml.safe_dump([play], sort_keys=False))
    hosts = {
        plan.name: {"ansible_host": address[plan.name], **variables(plan, record)} for plan in plans
    }
    shared = {
        "ansible_user": lab.ssh_user,
        "ansible_ssh_private_key_file": lab.ssh_key,
        "ansible_python_interpreter": "/usr/bin/python3",
        "ansible_ssh_common_args": shlex.join(
            ["-F", "none", *ssh_options({"UserKnownHostsFile": lab.known_hosts, **ALIVE})]
        ),
    }
    (folder / "hosts.yml").write_text(yaml.safe_dump({"all": {"hosts": hosts, "vars": shared}}))
    (folder / "ansible.cfg").write_text(
        "[defaults]\nforks = 10\ngathering = explicit\n[ssh_connection]\npipelining = True\n"
    )
    command = [str(folder / "venv/bin/ansible-playbook"), "-i", str(folder / "hosts.yml")]
    return [*command, str(folder / "play.yml")], {"ANSIBLE_CONFIG": str(folder / "ansible.cfg")}


def must_change_nothing(argv: Sequence[str], environment: dict[str, str]) -> None:
    """One run of the playbook after a deploy: what it changes, the deploy does not manage so."""
    done = subprocess.run(argv, env={**os.environ, **environment}, capture_output=True, text=True)
    task, changed = "", []
    for line in done.stdout.splitlines():
        if line.startswith("TASK ["):
            task = line.strip("* ")
        elif line.startswith("changed: "):
            changed.append(f"{task} {line}")
    if done.returncode != 0:
        sys.exit(f"{argv[0]} ended with {done.returncode}:\n{(done.stdout + done.stderr)[-2000:]}")
    if changed:
        said = "\n".join(changed)
        sys.exit(f"the playbook manages otherwise than the deploy before it. It changed:\n{said}")


def install_ansible(folder: Path) -> None:
    """ansible-core at its locked version, in a venv of its own."""
    venv, uv = folder / "venv", str(BIN / "uv")
    subprocess.run([uv, "venv", "--quiet", str(venv)], check=True)
    install = [uv, "pip", "install", "--quiet", "--require-hashes", "--python", str(venv)]
    subprocess.run([*install, "-r", str(ROOT / "requirements/bench.txt")], check=True)


def delayed(milliseconds: int) -> None:
    """So much more of round trip on each cable."""
    subprocess.run([str(BIN / "lockstep"), "lab", "delay", "all", str(milliseconds)], check=True)


def medians(bare: Sequence[str]) -> dict[str, float]:
    """What each start takes, seconds.

    Args:
        bare: A login that does nothing.
    """
    spent: dict[str, list[float]] = {"pyinfra": [], "ssh": [], "near": [], "far": []}
    for _ in range(RUNS):
        delayed(0)
        spent["pyinfra"].append(seconds([str(BIN / "pyinfra"), "--version"]))
        spent["ssh"].append(seconds(bare))
        spent["near"].append(seconds(deploy()))
        delayed(FAR_MS)
        spent["far"].append(seconds(deploy()))
    delayed(0)
    return {what: statistics.median(each) for what, each in spent.items()}


def main() -> int:
    """Measure, print, judge."""
    lab = connection.load()
    first = lab.hosts[0]
    prefix = ["ip", "netns", "exec", lab.namespace]
    most = remote_commands([host.name for host in lab.hosts])
    with tempfile.TemporaryDirectory() as name:
        # Reading the inventory takes this process into the lab's network, where no index is.
        install_ansible(Path(name))
        playbook, environment = ansible(lab, Path(name))
        must_change_nothing([*prefix, *playbook], environment)
        found = medians([*prefix, *ssh(lab, first.address), "true"])
        # It takes minutes, and many times as long as ours: one run is enough to tell.
        theirs = seconds([*prefix, *playbook], **environment)
    floor, near, far = found["pyinfra"] + found["ssh"], found["near"], found["far"]
    load = ", ".join(f"{each:.1f}" for each in os.getloadavg())
    print(f"{time.strftime('%Y-%m-%d')}, {os.cpu_count()} cores, load {load}, median of {RUNS}")
    print(f"pyinfra --version             {found['pyinfra']:7.2f} s")
    print(f"ssh HOST true                 {found['ssh']:7.2f} s")
    print(f"no-op deploy of {len(lab.hosts)} hosts        {near:7.2f} s")
    print(f"  with {FAR_MS} ms of round trip     {far:7.2f} s")
    print(f"Ansible with the same files   {theirs:7.2f} s")
    right = (
        judged("remote commands on one host", most, most=MOST_COMMANDS),
        judged("deploy / (pyinfra + ssh)", near / floor, most=MOST_OF_FLOOR),
        judged(f"with {FAR_MS} ms / without", far / near, most=MOST_OF_NEAR),
        judged("Ansible / deploy", theirs / near, least=LEAST_OF_ANSIBLE),
    )
    return 0 if all(right) else 1


def judged(what: str, figure: float, *, least: float = 0, most: float = math.inf) -> bool:
    """Whether a figure is as it should be, and a line about it."""
    right = least <= figure <= most
    limit = f"at least {least:g}" if least else f"at most {most:g}"
    print(f"{'ok   ' if right else 'WRONG'} {what:28} {figure:6.1f}, {limit}", flush=True)
    return right


if __name__ == "__main__":
    sys.exit(main())
