"""Deploys cut off at random points, seeded: after any kill, `current` is an engine that works.

Each point asks for a new build of the engine and takes Qwen's weights and the kept wheels from
one host, so that there is something to build and something to copy. Then one of three things is
killed at a random moment: a copy between the hosts (at either end), a stage of the build, or the
deploy itself. The exit code is 1 if a `current` engine was broken afterwards.

    make cuts [POINTS=10] [SEED=N]
    python tests/proofs/cutting.py [--points 10] [--seed N] [--lab NAME]
"""

import json
import sys
import time
from contextlib import suppress
from dataclasses import dataclass

import runner
from stack import Deploy, Host, forget_leases, until

from lockstep.onhost.core import passed_engine_checks

ENGINES = "/opt/lockstep/engines"
QWEN = "/data/models/huggingface/hub/models--rdtand--Qwen3.6-35B-A3B-PrismaQuant-4.75bit-vllm"
KINDS = ("build", "copy", "deploy")
STAGES = ("pytorch", "vllm", "flashinfer", "check")
COPIES = (
    ("weights", "lockstep-job-weights.service"),
    ("wheels", "lockstep-job-engine-vllm.service"),
)
#: A whole deploy with a build takes about so long here; a deploy is killed somewhere in it.
_DEPLOY_S = 60.0
_LIMIT_S = 600.0
#: What a venv must still do, as the account of the engines.
_WORKS = "import torch, vllm; print(vllm.__version__)"


@dataclass
class Point(runner.Run):
    """One deploy that is cut off, on a host; `cut`: what is killed."""

    kind: str = ""
    cut: str = ""


class Cutter:
    """Cuts deploys of a lab that is deployed."""

    def __init__(self, trial: runner.Trial[Point]) -> None:
        self._stack, self._seed = trial.stack, trial.options.seed
        self._trial = trial

    def tidy(self, host: Host) -> None:
        """Remove generations that no deploy has finished, and leases of killed deploys."""
        host.root(
            f"cd {ENGINES} && find . -mindepth 1 -maxdepth 1 -type d ! -name uv-cache "
            f'! -name store ! -name "$(readlink current)" -exec rm -rf {{}} +'
        )
        forget_leases(host)

    def cut_off(self, point: Point) -> None:
        """Cut off one deploy, and check `current` then."""
        stack, number = self._stack, point.number
        self._random = self._trial.chance(number)
        for host in stack.hosts:
            # A job that an earlier point left running would be attached to.
            host.root("systemctl stop 'lockstep-job-*' 2>/dev/null; true")
        host = stack.hosts[number % 2]
        host.root(f"rm -rf {QWEN} {ENGINES}/store")
        name = f"point-{self._seed}-{number}"
        environment = {"build_environment": {"LOCKSTEP_POINT": name}}
        # A copy needs both hosts, a build one.
        options = ("-y", "--limit", host.name) if point.kind == "build" else ()
        run = stack.start(*options, inventory=stack.inventory(name, engine=environment))
        point.cut = getattr(self, f"_{point.kind}")(run, host)
        run.kill() if point.kind == "deploy" else run.end()
        point.violations += self.broken_engines(f"{point.cut} of seed {self._seed}")

    def _build(self, run: Deploy, host: Host) -> str:
        stage = self._random.choice(STAGES)
        moment = self._random.uniform(0, 3)
        job = f"lockstep-job-engine-{stage}.service"
        _kill_unit(run, host, job, moment)
        return f"a build in stage {stage}"

    def _copy(self, run: Deploy, host: Host) -> str:
        giver = self._random.random() < 0.5
        copy_kind, job = self._random.choice(COPIES)
        moment = self._random.uniform(0, 0.5)
        other_host = next(
            candidate for candidate in self._stack.hosts if candidate.name != host.name
        )
        if not giver:
            _kill_unit(run, host, job, moment)
            return f"a copy of {copy_kind}, where it arrives"
        _await(run, host, job)
        _kill_unit(run, other_host, "lockstep-peer.service", moment)
        return f"a copy of {copy_kind}, where it comes from"

    def _deploy(self, run: Deploy, host: Host) -> str:
        moment = self._random.uniform(0, _DEPLOY_S)
        # It may end by itself before.
        with suppress(AssertionError):
            until(lambda: not run.running, "the deploy ends", moment, pause_s=0.1)
        return "the deploy"

    def broken_engines(self, when: str) -> list[str]:
        """The hosts whose current engine does not work, a sentence each."""
        sentences = []
        for host in self._stack.hosts:
            current = host.run(f"readlink -e {ENGINES}/current").out.strip()
            record = host.run(f"cat {ENGINES}/current/check.json").out or "{}"
            works = host.run(
                f"cd / && sudo -n -u lockstep {ENGINES}/current/venv/bin/python -c '{_WORKS}'"
            )
            is_checked = passed_engine_checks.passed_question_digests(json.loads(record))
            if not current or not is_checked or works.code != 0:
                sentences.append(
                    f"{host.name}, {when}: current is {current or 'nothing'}; {works.text[-300:]}"
                )
        return sentences


def _await(run: Deploy, host: Host, unit: str) -> bool:
    """Wait until a unit runs; False if the deploy ended without it."""

    def unit_state() -> str:
        if host.show(unit, "SubState") == "running":
            return "running"
        return "" if run.running else "over"

    return until(unit_state, f"{host.name}: {unit} runs", _LIMIT_S) == "running"


def _kill_unit(run: Deploy, host: Host, unit: str, moment: float) -> None:
    """Kill a unit's processes so many seconds after they appear; they may have ended by then."""
    _await(run, host, unit)
    # The point is the moment; there is no condition to wait for.
    time.sleep(moment)
    host.run(f"sudo -n systemctl kill -s KILL {unit}")


def prove(trial: runner.Trial[Point]) -> None:
    """Cut so many deploys, then let one finish and bring the hosts back to the state before."""
    stack, cutter = trial.stack, Cutter(trial)
    stack.good_deploy()
    for point in trial.remaining(
        Point(number, stack.hosts[number % 2].name, kind=KINDS[number % len(KINDS)])
        for number in range(trial.options.points)
    ):
        trial.make(point, cutter.cut_off)
    stack.good_deploy()
    trial.violations += cutter.broken_engines("after the last deploy")
    for host in stack.hosts:
        cutter.tidy(host)


PROOF = runner.Proof(
    __doc__,
    "cutting",
    Point,
    prove,
    lambda trial: [runner.counts("points", (point.cut for point in trial.runs))],
    {"points": 10},
)

if __name__ == "__main__":
    sys.exit(PROOF.main())
