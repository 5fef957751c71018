"""The cost of a no-op deploy of both lab hosts, beside a bare login and an Ansible playbook.

`make bench`, with the lab deployed (`make deploy`). All times are measured in turn in one run of
this program, so that the ratios hold on a machine whose speed drifts; medians of RUNS rounds. The
playbook runs once before the measurement and must change nothing. A change would show a thing
that the deploy manages otherwise.

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

MOST_COMMANDS = 2
#: Bound of the deploy's time over that of pyinfra's start and a login.
MOST_OF_BOUND = 3.0
#: Bound of the deploy's time with FAR_MS over its time without.
MOST_OF_NEAR = 2.0
#: Least ratio of Ansible's time to the deploy's.
LEAST_OF_ANSIBLE = 40


def seconds(argv: Sequence[str], **environment: str) -> float:
    """Wall-clock seconds of a run that must succeed."""
    every = {**os.environ, **environment}
    # Without bytecode each start compiles all of pyinfra, and of Ansible, anew.
    every.pop("PYTHONDONTWRITEBYTECODE", None)
    start = time.perf_counter()
    result = subprocess.run(argv, cwd=ROOT, env=every, capture_output=True, text=True)
    duration = time.perf_counter() - start
    if result.returncode != 0:
        output = (result.stdout + result.stderr)[-2000:]
        sys.exit(f"{argv[0]} ended with {result.returncode}:\n{output}")
    return duration


def deploy() -> list[str]:
    """The command of a no-op deploy, as users run it."""
    return [str(BIN / "pyinfra"), "-y", str(INVENTORY.relative_to(ROOT)), "deploy.py"]


def remote_commands(hosts: Iterable[str]) -> int:
    """The most commands that one no-op deploy runs on a host, counted in pyinfra's log."""
    result = subprocess.run(
        [*deploy(), "--debug"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    log = result.stdout + result.stderr
    match = re.search(r"Grand total\s+\d+\s+(\S+)", log)
    if match is None or match[1] != "-":
        sys.exit("the deploy changed something: run `make deploy` until it does not, then again")
    return max(log.count(f"Running command on {host}:") for host in hosts)


def ssh(lab: connection.Description, address: str) -> list[str]:
    """The command of plain ssh to a host, without a shared connection."""
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
    common_variables = {
        "ansible_user": lab.ssh_user,
        "ansible_ssh_private_key_file": lab.ssh_key,
        "ansible_python_interpreter": "/usr/bin/python3",
        "ansible_ssh_common_args": shlex.join(
            ["-F", "none", *ssh_options({"UserKnownHostsFile": lab.known_hosts, **ALIVE})]
        ),
    }
    (folder / "hosts.yml").write_text(
        yaml.safe_dump({"all": {"hosts": hosts, "vars": common_variables}})
    )
    (folder / "ansible.cfg").write_text(
        "[defaults]\nforks = 10\ngathering = explicit\n[ssh_connection]\npipelining = True\n"
    )
    command = [str(folder / "venv/bin/ansible-playbook"), "-i", str(folder / "hosts.yml")]
    return [*command, str(folder / "play.yml")], {"ANSIBLE_CONFIG": str(folder / "ansible.cfg")}


def must_change_nothing(argv: Sequence[str], environment: dict[str, str]) -> None:
    """Run the playbook after a deploy; end the program if it changes anything."""
    result = subprocess.run(argv, env={**os.environ, **environment}, capture_output=True, text=True)
    task, changes = "", []
    for line in result.stdout.splitlines():
        if line.startswith("TASK ["):
            task = line.strip("* ")
        elif line.startswith("changed: "):
            changes.append(f"{task} {line}")
    if result.returncode != 0:
        sys.exit(
            f"{argv[0]} ended with {result.returncode}:\n{(result.stdout + result.stderr)[-2000:]}"
        )
    if changes:
        message = "\n".join(changes)
        sys.exit(
            f"the playbook manages otherwise than the deploy before it. It changed:\n{message}"
        )


def install_ansible(folder: Path) -> None:
    """Install ansible-core at its locked version in a venv of its own."""
    venv, uv = folder / "venv", str(BIN / "uv")
    subprocess.run([uv, "venv", "--quiet", str(venv)], check=True)
    install = [uv, "pip", "install", "--quiet", "--require-hashes", "--python", str(venv)]
    subprocess.run([*install, "-r", str(ROOT / "requirements/bench.txt")], check=True)


def delay_cables(milliseconds: int) -> None:
    """Set this much more round trip on each cable."""
    subprocess.run([str(BIN / "lockstep"), "lab", "delay", "all", str(milliseconds)], check=True)


def medians(bare: Sequence[str]) -> dict[str, float]:
    """Median seconds of pyinfra's start, a bare login, and the deploy without and with delay.

    Args:
        bare: Command of a login that does nothing.
    """
    durations: dict[str, list[float]] = {"pyinfra": [], "ssh": [], "near": [], "far": []}
    for _ in range(RUNS):
        delay_cables(0)
        durations["pyinfra"].append(seconds([str(BIN / "pyinfra"), "--version"]))
        durations["ssh"].append(seconds(bare))
        durations["near"].append(seconds(deploy()))
        delay_cables(FAR_MS)
        durations["far"].append(seconds(deploy()))
    delay_cables(0)
    return {name: statistics.median(samples) for name, samples in durations.items()}


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
        figures = medians([*prefix, *ssh(lab, first.address), "true"])
        # The playbook takes minutes, many times as long as our deploy, so one run is enough.
        ansible_seconds = seconds([*prefix, *playbook], **environment)
    lower_bound, near, far = figures["pyinfra"] + figures["ssh"], figures["near"], figures["far"]
    load = ", ".join(f"{load_average:.1f}" for load_average in os.getloadavg())
    print(f"{time.strftime('%Y-%m-%d')}, {os.cpu_count()} cores, load {load}, median of {RUNS}")
    print(f"pyinfra --version             {figures['pyinfra']:7.2f} s")
    print(f"ssh HOST true                 {figures['ssh']:7.2f} s")
    print(f"no-op deploy of {len(lab.hosts)} hosts        {near:7.2f} s")
    print(f"  with {FAR_MS} ms of round trip     {far:7.2f} s")
    print(f"Ansible with the same files   {ansible_seconds:7.2f} s")
    right = (
        judge_figure("remote commands on one host", most, most=MOST_COMMANDS),
        judge_figure("deploy / (pyinfra + ssh)", near / lower_bound, most=MOST_OF_BOUND),
        judge_figure(f"with {FAR_MS} ms / without", far / near, most=MOST_OF_NEAR),
        judge_figure("Ansible / deploy", ansible_seconds / near, least=LEAST_OF_ANSIBLE),
    )
    return 0 if all(right) else 1


def judge_figure(title: str, figure: float, *, least: float = 0, most: float = math.inf) -> bool:
    """Print a line about a figure and its bound; tell whether the figure is within it."""
    right = least <= figure <= most
    limit = f"at least {least:g}" if least else f"at most {most:g}"
    print(f"{'ok   ' if right else 'WRONG'} {title:28} {figure:6.1f}, {limit}", flush=True)
    return right


if __name__ == "__main__":
    sys.exit(main())
