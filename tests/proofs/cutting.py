"""Deploys cut off at random points, seeded: after any kill, `current` is an engine that works.

Each point asks for a new build of the engine and takes Qwen's weights and the kept wheels from
one host, so that there is something to build and something to copy. Then one of three things is
killed at a random moment: a copy between the hosts (at either end), a stage of the build, or the
deploy itself. The exit code is 1 if a `current` engine was broken afterwards.

    make cuts [POINTS=10] [SEED=N]
    python tests/proofs/cutting.py [--points 10] [--seed N] [--lab NAME]
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from stack import Deploy, Host, Stack, forget_leases, lend_lab, until

from lockstep.onhost.core import check_cache

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
class Counts:
    """Counts of kills; each sentence of `broken` is a broken engine."""

    kill_counts: Counter[str] = field(default_factory=Counter)
    points: int = 0
    broken_engines: list[str] = field(default_factory=list)

    def report(self) -> str:
        """The counts as text."""
        return "\n".join(
            [
                f"points  {self.points}",
                *(f"  {count:3}  {name}" for name, count in sorted(self.kill_counts.items())),
                f"broken  {len(self.broken_engines)}",
                *self.broken_engines,
            ]
        )


class Cutter:
    """Cuts deploys of a lab that is deployed."""

    def __init__(self, stack: Stack, seed: int) -> None:
        self._stack = stack
        self._random = random.Random(seed)
        self._seed = seed
        self.counts = Counts()

    def run(self, points: int, kinds: Sequence[str] = KINDS) -> Counts:
        """Cut so many deploys, then let one finish and bring the hosts back to the state before."""
        for number in range(points):
            self.point(number, kinds[number % len(kinds)])
            print(f"point {number + 1}: {self.counts.report()}", flush=True)
        self._stack.good_deploy()
        self._check("after the last deploy")
        for host in self._stack.hosts:
            self._tidy(host)
        return self.counts

    def _tidy(self, host: Host) -> None:
        """Remove generations that no deploy has finished, and leases of killed deploys."""
        host.root(
            f"cd {ENGINES} && find . -mindepth 1 -maxdepth 1 -type d ! -name uv-cache "
            f'! -name store ! -name "$(readlink current)" -exec rm -rf {{}} +'
        )
        forget_leases(host)

    def point(self, number: int, kind: str) -> None:
        """Cut off one deploy, and check `current` then."""
        stack = self._stack
        for host in stack.hosts:
            # A job that an earlier point left running would be attached to.
            host.root("systemctl stop 'lockstep-job-*' 2>/dev/null; true")
        stack.hosts[number % 2].root(f"rm -rf {QWEN} {ENGINES}/store")
        name = f"point-{self._seed}-{number}"
        environment = {"build_environment": {"LOCKSTEP_POINT": name}}
        host = stack.hosts[number % 2]
        # A copy needs both hosts, a build one.
        options = ("-y", "--limit", host.name) if kind == "build" else ()
        run = stack.start(*options, inventory=stack.inventory(name, engine=environment))
        cut_job = getattr(self, f"_{kind}")(run, host)
        run.kill() if kind == "deploy" else run.end()
        self.counts.kill_counts[cut_job] += 1
        self.counts.points += 1
        self._check(f"point {number + 1} of seed {self._seed}, {cut_job}")

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
        over = threading.Event()
        waiting = threading.Thread(target=lambda: (run.end(), over.set()), daemon=True)
        waiting.start()
        over.wait(moment)
        return "the deploy"

    def _check(self, when: str) -> None:
        for host in self._stack.hosts:
            current = host.run(f"readlink -e {ENGINES}/current").out.strip()
            record = host.run(f"cat {ENGINES}/current/check.json").out or "{}"
            works = host.run(
                f"cd / && sudo -n -u lockstep {ENGINES}/current/venv/bin/python -c '{_WORKS}'"
            )
            if (
                not current
                or not check_cache.passed_question_digests(json.loads(record))
                or works.code != 0
            ):
                self.counts.broken_engines.append(
                    f"{host.name}, {when}: current is {current or 'nothing'}; {works.text[-300:]}"
                )


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


def main() -> int:
    """Command line; the exit code is 1 when an engine was broken."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n    python")[0])
    parser.add_argument("--seed", type=int, default=int(time.time()), help="by default the time")
    parser.add_argument("--points", type=int, default=10)
    parser.add_argument("--lab", help="a lab that is up and deployed")
    options = parser.parse_args()
    with lend_lab(options.lab, "cutting") as stack:
        stack.good_deploy()
        began = time.monotonic()
        counts = Cutter(stack, options.seed).run(options.points)
        print(f"seed    {options.seed}, {time.monotonic() - began:.0f} s")
        print(counts.report())
    return 1 if counts.broken_engines else 0


if __name__ == "__main__":
    sys.exit(main())
