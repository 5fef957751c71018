"""`rollout: "all"` on hosts of a lab: any command may fail on the last one, and all are as before.

`python tests/proofs/all_or_none.py --seed 1` deploys and makes qwen hot on each host. Then it
deploys a change of the model's unit, the gateway and Open WebUI again and again. Each time another
command on the last host fails, before it has run or after it, from the first command of the deploy
to the first number that the deploy does not reach. A line of JSON for each.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import run_record
from stack import Host, Stack, lend_lab

FOLDER = "/run/planted"
SHELL = "/var/tmp/planted-shell"
# What sshd runs each command of the deploy by.
_SHELL = f"""#!/bin/bash
exec 9>{FOLDER}/lock; flock 9
n=$(($(cat {FOLDER}/count) + 1)); echo $n > {FOLDER}/count
exec 9>&-
read -r at when < {FOLDER}/at
[ $n = $at ] || exec /bin/bash "$@"
printf %s "${{*: -1}}" | head -c 2000 > {FOLDER}/failed
[ $when = before ] || /bin/bash "$@"
echo planted >&2
exit 1
"""
# What a deploy returns, and what does not: programs, packages, accounts, the firewall, secrets.
_SEEN = (
    "find /etc/systemd/system /etc/lockstep /data/scripts -type f ! -path '*/secrets/*'"
    " ! -name firewall.nft -exec sha256sum {} + | sort; readlink /opt/lockstep/engines/current;"
    " docker inspect -f '{{.Config.Image}}' open-webui"
)


@dataclass(frozen=True)
class Run:
    """One deploy.

    Attributes:
        number: Number of the command that fails on the last host, from 1.
        when: "before" it has run, or "after" it.
        command: The end of its text.
        code: Exit code of the deploy.
        violations: Differences from the state before.
    """

    number: int
    when: str
    command: str
    code: int
    violations: list[str]


@contextmanager
def plant_failure(host: Host, number: int, when: str) -> Iterator[None]:
    """Give the deploy's account a shell whose command of this number fails."""
    account = host.run("id -un").out.strip()
    host.root(
        f"cat > {SHELL} <<'END'\n{_SHELL}END\nchmod 0755 {SHELL}; mkdir -p -m 1777 {FOLDER};"
        f" cd {FOLDER}; echo 0 > count; echo {number} {when} > at; : > failed; chmod 0666 *;"
        f" usermod -s {SHELL} {account}"
    )
    try:
        yield
    finally:
        # Twice, for the first may be the command that fails.
        for _ in range(2):
            host.run(f"echo 0 - > {FOLDER}/at")
        host.root(f"usermod -s /bin/bash {account}; rm {SHELL}")


def host_state(host: Host) -> dict[str, str]:
    """The state that must be as before: files by their hash, links, the image, the hot model."""
    hot = host.status()["hot"]
    return {"files": host.root(_SEEN), "hot": str(hot)}


def run_with_failure(
    stack: Stack, good: Path, changed_inventory: Path, number: int, when: str
) -> Run | None:
    """Run a deploy in which a command fails; None if the deploy has fewer commands."""
    last = stack.hosts[-1]
    earlier_states = {host.name: host_state(host) for host in stack.hosts}
    with plant_failure(last, number, when):
        result = stack.deploy("-y", inventory=changed_inventory)
    command = last.root(f"cat {FOLDER}/failed")
    # A deploy of fewer commands leaves the number to what ends the planting.
    if not command or f"{FOLDER}/at" in command:
        assert result.code == 0, result.output[-8000:]
        return None
    violations = []
    if result.code == 0:
        violations.append("the deploy ended well")
    if last.name not in result.closing and last.name not in result.output[-3000:]:
        violations.append(f"the end of the deploy does not name {last.name}")
    for host in stack.hosts:
        now = host_state(host)
        violations += [
            f"{host.name}: {key} differ: {_difference(earlier_states[host.name][key], now[key])}"
            for key in now
            if now[key] != earlier_states[host.name][key]
        ]
    drift = stack.diff(inventory=good)
    if drift.returncode:
        violations.append(f"diff: {drift.stdout[-1500:]}")
    return Run(number, when, command[-300:], result.code, violations)


def _difference(earlier_text: str, later_text: str) -> str:
    return "; ".join(sorted(set(earlier_text.splitlines()) ^ set(later_text.splitlines())))[:600]


def report(runs: list[Run]) -> str:
    """The figures as text."""
    wrong = [run for run in runs if run.violations]
    lines = [f"{len(runs)} failed commands, {len(wrong)} violations"]
    lines += [f"  {run.number} {run.when} {run.command}: {run.violations}" for run in wrong]
    return "\n".join(lines)


def main() -> int:
    """Command line; the exit code is 1 when a rule was broken."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=1, help="number of the first command")
    parser.add_argument("--most", type=int, default=1000, help="number of the last command")
    parser.add_argument("--every", type=int, default=1, help="so many commands between two runs")
    parser.add_argument("--file", type=Path, default=Path("all_or_none.jsonl"))
    parser.add_argument("--lab", help="a lab that is up, of as many hosts as wanted")
    options = parser.parse_args()
    chance = random.Random(options.seed)
    runs = run_record.read(options.file, Run)
    with lend_lab(options.lab, "allornone") as stack:
        good = stack.inventory("good", rollout="all")
        changed_inventory = stack.inventory(
            "changed",
            rollout="all",
            models={"qwen": {"overrides": {"max_num_seqs": 3}}},
            gateway={"keepalive_s": 14},
            webui={"port": 8081},
        )
        stack.good_deploy("-y", inventory=good)
        for host in stack.hosts:
            assert host.switch("qwen").code == 0
        for number in range(options.first, options.most + 1, options.every):
            when = chance.choice(("before", "after"))
            if number in {run.number for run in runs}:
                continue
            run = run_with_failure(stack, good, changed_inventory, number, when)
            if run is None:
                break
            runs.append(run)
            run_record.add(options.file, run)
            print(asdict(run), flush=True)
            if run.violations:
                stack.good_deploy("-y", inventory=good)
    print(report(runs))
    return 1 if any(run.violations for run in runs) else 0


if __name__ == "__main__":
    sys.exit(main())
