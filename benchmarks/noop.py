"""What a no-op deploy of both lab hosts costs, beside its floor and an Ansible playbook.

`make bench`, with the lab deployed (`make deploy`). Everything is measured in one run of this
program, so that ratios hold on a machine whose speed drifts; medians of RUNS runs. The playbook has
run once before that, and must have changed nothing: what it would change, the deploy does not
manage so.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import yaml

from benchmarks.playbook import tasks, variables
from lab import connection
from lockstep import probes
from lockstep.files import sent
from lockstep.fleet.login import ALIVE, ssh_options
from lockstep.host.intended import Intended
from lockstep.inventory import inventory_file
from lockstep.inventory.host import HostPlan
from lockstep.lock import lockfile, pins

ROOT = Path(__file__).resolve().parent.parent
INVENTORY = ROOT / "inventories/lab.py"
RUNS = 5
# A run of the playbook takes minutes, and many times as long as ours: one is enough to tell.
PLAYBOOK_RUNS = 1
# Round trip added to every host's cable, milliseconds.
DELAYS = (0, 20)
BIN = Path(sys.executable).parent


def seconds(argv: Sequence[str], runs: int = RUNS, **environment: str) -> float:
    """Median wall-clock seconds of `runs` runs that must succeed."""
    spent = []
    for _ in range(runs):
        start = time.perf_counter()
        done = subprocess.run(
            argv, cwd=ROOT, env={**os.environ, **environment}, capture_output=True, text=True
        )
        spent.append(time.perf_counter() - start)
        if done.returncode != 0:
            said = (done.stdout + done.stderr)[-2000:]
            sys.exit(f"{argv[0]} ended with {done.returncode}:\n{said}")
    return statistics.median(spent)


def deploy() -> list[str]:
    """The no-op deploy, as users run it."""
    return [str(BIN / "pyinfra"), "-y", str(INVENTORY.relative_to(ROOT)), "deploy.py"]


def remote_commands(host: str) -> int:
    """How many commands one no-op deploy runs on one host, counted in pyinfra's own log."""
    done = subprocess.run(
        [*deploy(), "--debug"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    changed = re.search(r"Grand total\s+\d+\s+(\S+)", done.stdout + done.stderr)
    if changed is None or changed[1] != "-":
        sys.exit("the deploy changed something: run `make deploy` until it does not, then again")
    return (done.stdout + done.stderr).count(f"Running command on {host}:")


def ssh(lab: connection.Description, address: str) -> list[str]:
    """Plain ssh to a host, without a shared connection."""
    options = {"BatchMode": "yes"}
    return [*connection.client(lab.ssh_key, lab.known_hosts, options), f"{lab.ssh_user}@{address}"]


def moe_flags(
    lab: connection.Description, plan: HostPlan, record: pins.Pins, address: str
) -> dict[str, bool]:
    """Target → what its engine said on the host about the freeze guard's flag."""
    this = Intended(plan, record)
    done = subprocess.run(
        [*ssh(lab, address), shlex.join(["sudo", *sent.COMMAND])],
        input=probes.document({"engines": this.engine_question}),
        capture_output=True,
        text=True,
        check=True,
    )
    return this.moe_flags(json.loads(done.stdout)["answers"]["engines"])


def ansible(lab: connection.Description, folder: Path) -> tuple[list[str], dict[str, str]]:
    """Write playbook, inventory and configuration; return the command and its environment."""
    plans = inventory_file.load(INVENTORY)
    record = lockfile.load(inventory_file.lock_path("lab", plans))
    address = {host.name: host.address for host in lab.hosts}
    said = {plan.name: moe_flags(lab, plan, record, address[plan.name]) for plan in plans}
    first = tasks(plans[0], record, said[plans[0].name])
    play = {"hosts": "all", "gather_facts": False, "become": True, "tasks": first}
    (folder / "play.yml").write_text(yaml.safe_dump([play], sort_keys=False))
    hosts = {
        plan.name: {
            "ansible_host": address[plan.name],
            **variables(plan, record, said[plan.name]),
        }
        for plan in plans
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


def main() -> None:
    """Measure and print."""
    lab = connection.load()
    first = lab.hosts[0]
    prefix = ["ip", "netns", "exec", lab.namespace]
    count = remote_commands(first.name)
    print(f"no-op deploy of {len(lab.hosts)} hosts: {count} remote commands on each", flush=True)
    print(f"pyinfra --version      {seconds([str(BIN / 'pyinfra'), '--version']):6.2f} s")
    with tempfile.TemporaryDirectory() as name:
        # Reading the inventory takes this process into the lab's network, where no index is.
        install_ansible(Path(name))
        playbook, environment = ansible(lab, Path(name))
        must_change_nothing([*prefix, *playbook], environment)
        for delay in DELAYS:
            subprocess.run([str(BIN / "lockstep"), "lab", "delay", "all", str(delay)], check=True)
            bare = seconds([*prefix, *ssh(lab, first.address), "true"])
            ours = seconds(deploy())
            theirs = seconds([*prefix, *playbook], PLAYBOOK_RUNS, **environment)
            print(f"\n{delay} ms of added round trip (median of {RUNS}; Ansible {PLAYBOOK_RUNS})")
            print(f"ssh HOST true          {bare:6.2f} s")
            print(f"lockstep no-op deploy  {ours:6.2f} s")
            print(
                f"Ansible, same files…   {theirs:6.2f} s, {theirs / ours:.1f} times ours",
                flush=True,
            )
        subprocess.run([str(BIN / "lockstep"), "lab", "delay", "all", "0"], check=True)


if __name__ == "__main__":
    main()
