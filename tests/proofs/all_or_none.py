"""`rollout: "all"` on hosts of a lab: a deploy ends at any command, and all hosts are as before.

`python tests/proofs/all_or_none.py --seed 1` deploys and makes qwen hot on each host. Then it
deploys a change of our programs, the model's unit, the gateway and Open WebUI again and again. Each
time another command on the last host fails, or on the one of --host, before it has run or after it,
from the first command of the deploy to the first number that the deploy does not reach. With --kill
the deploy's process is killed at that command instead, before it runs or as it begins, and with it
the connections to all hosts. A line of JSON for each.
"""

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import runner
from earlier_state import EarlierState
from stack import DeployResult, Host, Stack, until

FOLDER = "/run/planted"
SHELL = "/var/tmp/planted-shell"
BEGUN = "/var/lib/lockstep-deploy/begun-journal.json"
# What sshd runs each command of the deploy by.
_SHELL = f"""#!/bin/bash
exec 9>{FOLDER}/lock; flock 9
n=$(($(cat {FOLDER}/count) + 1)); echo $n > {FOLDER}/count
exec 9>&-
read -r at when < {FOLDER}/at
[ $n = $at ] || exec /bin/bash "$@"
printf %s "${{*: -1}}" | head -c 2000 > {FOLDER}/command
case $when in
while) exec /bin/bash "$@" ;;
never) until [ -e {FOLDER}/over ]; do sleep 0.1; done ;;
after) /bin/bash "$@" ;;
esac
echo planted >&2
exit 1
"""
_OPERATION = re.compile(r"Starting operation: (.+)")
# A module that no unit runs, so that its text restarts nothing.
_PROGRAM = "/usr/local/lib/lockstep/lockstep/onhost/facts/docker.py"


@dataclass
class Run(runner.Run):
    """One deploy.

    Attributes:
        number: Number of the command on its host at which the deploy ends, from 1.
        when: The command fails "before" it has run, or "after" it; the deploy is killed and the
            command has "never" run, or goes on by itself ("while").
        operation: The last operation that the deploy has printed.
        command: The end of the command's text.
        code: Exit code of the deploy.
        violations: Differences from the state before.
    """

    when: str = ""
    operation: str = ""
    command: str = ""
    code: int = 0


@contextmanager
def plant_end(host: Host, number: int, when: str) -> Iterator[None]:
    """Give the deploy's account a shell that marks the command of this number, or has it fail."""
    account = host.run("id -un").out.strip()
    host.root(
        f"cat > {SHELL} <<'END'\n{_SHELL}END\nchmod 0755 {SHELL}; rm -rf {FOLDER};"
        f" mkdir -m 1777 {FOLDER}; cd {FOLDER}; echo 0 > count; echo {number} {when} > at;"
        f" : > command; chmod 0666 *; usermod -s {SHELL} {account}"
    )
    try:
        yield
    finally:
        host.root(f"usermod -s /bin/bash {account}; touch {FOLDER}/over; rm {SHELL}")


@contextmanager
def older_programs(stack: Stack) -> Iterator[None]:
    """Give the hosts one program as of an earlier version, which each deploy replaces."""
    for host in stack.hosts:
        host.root(f"echo '# older' >> {_PROGRAM}")
    try:
        yield
    finally:
        for host in stack.hosts:
            host.root(f"sed -i '/^# older$/d' {_PROGRAM}")


def hot_model_and_image(host: Host) -> str:
    """The hot model, and Open WebUI's image."""
    image = host.root("docker inspect -f '{{.Config.Image}}' open-webui").strip()
    return f"{host.name}: {host.status()['hot']} is hot, {image}"


def run_to_the_end_or_kill(stack: Stack, changed_inventory: Path, run: Run) -> DeployResult:
    """Deploy, and kill the deploy at its command if the run asks for that."""
    chosen_host = Host(stack.name, run.host)
    with plant_end(chosen_host, run.number, run.when):
        deploy = stack.start("-y", inventory=changed_inventory)
        if run.when in ("before", "after"):
            return deploy.end()
        until(
            lambda: not deploy.running or chosen_host.look(f"test -s {FOLDER}/command").code == 0,
            f"the deploy comes to command {run.number}",
            pause_s=0.05,
        )
        deploy.kill()
        result = deploy.end()
    for host in stack.hosts:
        host.await_end_of_deploy()
    return result


def end_deploy(stack: Stack, good: Path, changed_inventory: Path, run: Run) -> bool:
    """Run a deploy that ends at a command; False if the deploy has fewer commands."""
    chosen_host = Host(stack.name, run.host)
    with older_programs(stack):
        earlier_states = [EarlierState.of(host) for host in stack.hosts]
        earlier_lines = {hot_model_and_image(host) for host in stack.hosts}
        result = run_to_the_end_or_kill(stack, changed_inventory, run)
        command = chosen_host.root(f"cat {FOLDER}/command")
        if not command:
            assert result.code == 0, result.output[-8000:]
            return False
        run.operation = (_OPERATION.findall(result.output) or [""])[-1]
        run.command, run.code, violations = command[-100:], result.code, run.violations
        if result.code == 0:
            violations.append("the deploy ended well")
        if result.code > 0 and run.host not in result.closing + result.output[-3000:]:
            violations.append(f"the end of the deploy does not name {run.host}")
        for state in earlier_states:
            violations += state.differences()[:20]
            if state.host.look(f"test -e {BEGUN}").code == 0:
                violations.append(f"{state.host.name}: the journal of the deploy is left")
        violations += sorted({*map(hot_model_and_image, stack.hosts)} - earlier_lines)
    drift = stack.diff(inventory=good)
    if drift.code:
        violations.append(f"diff: {drift.out[-1500:]}")
    return True


def prove(trial: runner.Trial[Run]) -> None:
    """End a deploy at each command, until it has no further one."""
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
    moments = ("never", "while") if options.kill else ("before", "after")
    for run in trial.remaining(
        Run(number, stack.hosts[options.host].name, when=chance.choice(moments))
        for number in range(options.first, options.most + 1, options.every)
    ):
        trial.make(run, lambda run: end_deploy(stack, good, changed_inventory, run))
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
        "host": {"type": int, "default": -1, "help": "place of the host with the command"},
        "kill": {"action": "store_true", "help": "kill the deploy at the command"},
    },
)

if __name__ == "__main__":
    sys.exit(PROOF.main())
