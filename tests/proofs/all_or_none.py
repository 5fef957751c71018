"""`rollout: "all"` on hosts of a lab: any command may fail on the last one, and all are as before.

`python tests/proofs/all_or_none.py --seed 1` deploys and makes qwen hot on each host. Then it
deploys a change of the model's unit, the gateway and Open WebUI again and again. Each time another
command on the last host fails, before it has run or after it, from the first command of the deploy
to the first number that the deploy does not reach. A line of JSON for each.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import runner
from stack import Host, Stack

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


@dataclass
class Run(runner.Run):
    """One deploy.

    Attributes:
        number: Number of the command that fails on the last host, from 1.
        when: "before" it has run, or "after" it.
        command: The end of its text.
        code: Exit code of the deploy.
        violations: Differences from the state before.
    """

    when: str = ""
    command: str = ""
    code: int = 0


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


def run_with_failure(stack: Stack, good: Path, changed_inventory: Path, run: Run) -> bool:
    """Run a deploy in which a command fails; False if the deploy has fewer commands."""
    last = stack.hosts[-1]
    earlier_states = {host.name: host_state(host) for host in stack.hosts}
    with plant_failure(last, run.number, run.when):
        result = stack.deploy("-y", inventory=changed_inventory)
    command = last.root(f"cat {FOLDER}/failed")
    # A deploy of fewer commands leaves the number to what ends the planting.
    if not command or f"{FOLDER}/at" in command:
        assert result.code == 0, result.output[-8000:]
        return False
    run.command, run.code, violations = command[-300:], result.code, run.violations
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
    return True


def _difference(earlier_text: str, later_text: str) -> str:
    return "; ".join(sorted(set(earlier_text.splitlines()) ^ set(later_text.splitlines())))[:600]


def prove(trial: runner.Trial[Run]) -> None:
    """Let each command fail, until the deploy has no further one."""
    stack, options, chance = trial.stack, trial.options, trial.chance()
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
    for run in trial.remaining(
        Run(number, stack.hosts[-1].name, when=chance.choice(("before", "after")))
        for number in range(options.first, options.most + 1, options.every)
    ):
        trial.make(run, lambda run: run_with_failure(stack, good, changed_inventory, run))
        if not run.command:
            break
        if run.violations:
            stack.good_deploy("-y", inventory=good)


PROOF = runner.Proof(
    __doc__,
    "allornone",
    Run,
    prove,
    options={
        "first": {"type": int, "default": 1, "help": "number of the first command"},
        "most": {"type": int, "default": 1000, "help": "number of the last command"},
        "every": {"type": int, "default": 1, "help": "so many commands between two runs"},
    },
)

if __name__ == "__main__":
    sys.exit(PROOF.main())
