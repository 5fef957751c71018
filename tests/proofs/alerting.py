"""Alerts of hosts, seeded: each cause raises exactly its own alert, once, and a switch raises none.

`python tests/proofs/alerting.py --rounds 12 --minutes 60 --seed 7` applies causes to the hosts of
a lab, and then only switches for so many minutes. The alerts go to a stand-in receiver on the
lab's side.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import faults
import runner
from stack import SWITCH, Follower, Host, Stack, until

from lab.host import connection
from lab.host.network import NAMESPACES
from lockstep.monitoring.rules import EVERY_S, rules_text

sys.path.append(str(Path(__file__).parents[1] / "helpers"))

#: Where the receiver listens, on the lab's side of its network.
ADDRESS, PORT = "10.77.0.1", 8499
#: Two scrapes, an evaluation, a slow look of the writer and the wait of a group.
LAG_S = 3 * EVERY_S + 20.0
_ENGINE = "http://127.0.0.1:30001"
_KNOB = f"curl -fsS -d '{{}}' {_ENGINE}/standin/knob"
_RECEIVER = """
import http.server, json, sys, time


class Taker(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(200)
        self.end_headers()
        for alert in body["alerts"]:
            told = [time.time(), alert["status"], alert["labels"]]
            print(json.dumps([*told, self.headers["Authorization"]]), flush=True)

    def log_message(self, *_):
        pass


server = http.server.ThreadingHTTPServer((sys.argv[1], int(sys.argv[2])), Taker)
print("[]", flush=True)
server.serve_forever()
"""


@dataclass(frozen=True)
class AlertMessage:
    """A message to the receiver: Unix time (s), "firing" or "resolved", alert and host.

    `authorization` is the header that came with it.
    """

    at: float
    status: str
    alert: str
    host: str
    authorization: str | None


@dataclass(frozen=True)
class Cause:
    """A cause of an alert.

    Attributes:
        alert: The alert that it must raise.
        wrong: Shell text for root that makes the cause.
        right: Shell text that ends it.
        lab: The `lockstep lab` command that makes it, and the one that ends it.
        hot: Whether qwen must be hot before it.
        memory_gib: Memory that the host has meanwhile, besides.
        ends: Whether the cause ends qwen.
        gpu: Options of `lockstep lab gpu` meanwhile.
        bound_s: Longest time to the message, beyond the rule's own wait and `LAG_S`.
    """

    alert: str
    wrong: str = "true"
    right: str = "true"
    lab: tuple[str, ...] = ()
    hot: bool = False
    memory_gib: float | None = None
    ends: bool = False
    gpu: tuple[str, ...] = ()
    bound_s: float = 0.0


_LOOK = "systemctl start lockstep-wedge.service"
_SENSE = "rm -f /run/lockstep/findings/sense-*; systemctl start lockstep-sense.service"
# A request that gets no token, and what the watch's timer would do after two minutes.
_WEDGE = f"""
systemctl stop lockstep-wedge.timer
rm -f /run/lockstep/findings/wedge.json
name=$(curl -fsS {_ENGINE}/v1/models |
  python3 -c 'import json, sys; print(json.load(sys.stdin)["data"][0]["id"])')
systemd-run --quiet --collect curl -s -m 300 -H 'Content-Type: application/json' -d \
  '{{"model": "'$name'", "messages": [{{"role": "user", "content": "x"}}], "ignore_eos": true,
     "max_tokens": 10000}}' {_ENGINE}/v1/chat/completions
timeout 60 sh -c 'until curl -fsS {_ENGINE}/metrics | grep -q "num_requests_running.* 1"; do
  sleep 0.1; done'
{_KNOB.format('{"is_wedged": true}')}
look="python3 /usr/local/lib/lockstep wedge --token-wait 3"
$look; $look
"""
_MODELS = "/data/models"
CAUSES = (
    Cause(
        "EngineWedged",
        wrong=_WEDGE,
        right=f"systemctl start lockstep-wedge.timer; timeout 120 {SWITCH} wait",
        hot=True,
    ),
    Cause(
        "MemoryNearMinimum",
        hot=True,
        # Qwen holds 63.6 of it, its minimum is 4, and a quarter more is near.
        memory_gib=68.2,
    ),
    Cause(
        "UncleanBoot",
        lab=("cycle", ""),
        right=f"{SWITCH} qwen",
        hot=True,
        # It has to start first.
        bound_s=90.0,
    ),
    Cause("PeerSilent", lab=("freeze", "thaw")),
    Cause(
        "DiskFull", wrong=f"mount -t tmpfs -o size=1m full {_MODELS}", right=f"umount -l {_MODELS}"
    ),
    Cause(
        "GpuHot",
        wrong=_LOOK,
        right=_LOOK,
        gpu=("--celsius", "93", "--slowed-by", "sw_thermal_slowdown"),
    ),
    Cause(
        "ModelTalksNonsense",
        wrong=f"{_KNOB.format(json.dumps({'corruption': 'salad'}))}; {_SENSE}",
        right=f"{_KNOB.format(json.dumps({'corruption': ''}))}; {_SENSE}",
        hot=True,
    ),
    Cause(
        "EndedBelowMemoryMinimum",
        # Started again, it is forgiven.
        right=f"timeout 120 {SWITCH} wait; {SWITCH} qwen",
        hot=True,
        # Qwen holds 63.6 of it, and its minimum is 4.
        memory_gib=65.0,
        ends=True,
    ),
    Cause(
        "FailedUnit",
        wrong="systemctl reset-failed planted.service 2>/dev/null;"
        " systemd-run --quiet --unit=planted sh -c 'exit 1'",
        right="systemctl reset-failed planted.service",
    ),
    Cause(
        "HotModelGone", wrong="systemctl stop vllm-qwen36.service", right=f"{SWITCH} qwen", hot=True
    ),
    Cause(
        "MetricsStopped",
        wrong="systemctl stop lockstep-metrics.service",
        right="systemctl start lockstep-metrics.service",
    ),
)


@dataclass
class Run(runner.Run):
    """A round as it stands in the record; times in seconds from the cause on."""

    alert: str = ""
    told_s: float | None = None
    bound_s: float = 0.0
    over_s: float | None = None


class Receiver(Follower):
    """A webhook on the lab's side, and the messages that it got."""

    def __init__(self, lab: str) -> None:
        namespace = NAMESPACES / connection.load(lab).namespace
        words = ["nsenter", f"--net={namespace}", sys.executable, "-c", _RECEIVER]
        argv = [*words, ADDRESS, str(PORT)]
        super().__init__(
            lambda: subprocess.Popen(argv, stdout=subprocess.PIPE, text=True), self._read
        )
        self.messages: list[AlertMessage] = []

    def _read(self, line: str) -> None:
        # The first line says that it listens.
        if message := json.loads(line):
            at, status, labels, authorization = message
            self.messages.append(
                AlertMessage(at, status, labels["alertname"], labels["instance"], authorization)
            )

    def since(self, began: float) -> list[AlertMessage]:
        """The messages since a moment."""
        return [message for message in self.messages if message.at >= began]


def inventory(stack: Stack) -> Path:
    """The lab's inventory with monitoring; its hosts record each other and alert the receiver."""
    tell = ({"webhook": f"http://{ADDRESS}:{PORT}/"},)
    fabric = {
        f"{host.name}__fabric_address": host.root("hostname -I").split()[0] for host in stack.hosts
    }
    return stack.inventory("monitored", monitoring={"enabled": True, "tell": tell}, **fabric)


@contextmanager
def wrong(stack: Stack, host: Host, cause: Cause) -> Iterator[float]:
    """Make a cause and end it; returns the moment at which it was made."""
    if cause.hot:
        answer = host.switch("qwen")
        assert answer.code == 0, answer.text
    if cause.gpu:
        stack.lab("gpu", host.name, *cause.gpu)
    began = time.time()
    try:
        host.root(cause.wrong)
        if cause.lab:
            stack.lab(cause.lab[0], host.name)
        if cause.memory_gib is not None:
            stack.memory(host, cause.memory_gib)
        if cause.ends:
            until(lambda: host.status()["hot"] != "qwen", "qwen is ended")
        yield began
    finally:
        if cause.memory_gib is not None:
            stack.memory(host)
        if cause.gpu:
            stack.lab("gpu", host.name)
        if any(cause.lab[1:]):
            stack.lab(cause.lab[1], host.name)
        host.root(cause.right)


def raise_cause(stack: Stack, host: Host, cause: Cause, receiver: Receiver, run: Run) -> None:
    """Raise a cause on a host, and collect the messages about that host until the cause is over."""
    run.bound_s = LAG_S + cause.bound_s + wait_s(cause.alert)
    with wrong(stack, host, cause) as began:

        def of_host(status: str) -> list[AlertMessage]:
            return [
                message
                for message in receiver.since(began)
                if message.host == host.name and message.status == status
            ]

        if _within(lambda: of_host("firing"), run.bound_s):
            run.told_s = round(of_host("firing")[0].at - began, 1)
        # What else there is to say would come with the next evaluations.
        time.sleep(2 * EVERY_S)
        names = [message.alert for message in of_host("firing")]
    end = time.time()

    def end_messages() -> list[AlertMessage]:
        return [message for message in of_host("resolved") if message.alert == cause.alert]

    if names and _within(end_messages, LAG_S + 2 * EVERY_S + 300):
        run.over_s = round(end_messages()[0].at - end, 1)
    if names != [cause.alert]:
        run.violations.append(f"told {names or 'nothing'}, {cause.alert} belongs to it")
    elif run.told_s is None:
        run.violations.append(f"{cause.alert} is told too late")
    elif len(end_messages()) != 1:
        run.violations.append(f"{cause.alert} is not told to be over, once")


def wait_s(name: str) -> float:
    """Seconds that a rule's condition must hold."""
    from a_spark import spark
    from metric_names import alert_rules

    return float(alert_rules(rules_text(spark().settings, ["peer"]))[name]["for"].rstrip("s"))


def plan_causes(rounds: int, chance: random.Random) -> list[tuple[Cause, int]]:
    """Causes, and the place of the host of each: every cause once before any comes again."""
    order: list[Cause] = []
    while len(order) < rounds:
        order += chance.sample(CAUSES, len(CAUSES))
    return [(cause, chance.randrange(2)) for cause in order[:rounds]]


def _within(holds: Callable[[], object], limit_s: float) -> bool:
    give_up = time.monotonic() + limit_s
    while not holds():
        if time.monotonic() > give_up:
            return False
        time.sleep(0.2)
    return True


def quiet(
    stack: Stack, receiver: Receiver, minutes: float, chance: random.Random
) -> list[AlertMessage]:
    """Switch for so long on all hosts with nothing wrong; returns the messages (none are right)."""
    began, ends = time.time(), time.monotonic() + minutes * 60
    while time.monotonic() < ends:
        for host in stack.hosts:
            host.root(faults.set_knobs(None, "none"))
            answer = host.switch(chance.choice(("qwen", "mistral", "none", "tiny")))
            assert answer.code == 0, answer.text
        time.sleep(chance.uniform(1, 40))
    # What the last of them raised is told by then.
    time.sleep(LAG_S + 120)
    return receiver.since(began)


def prove(trial: runner.Trial[Run]) -> None:
    """Raise the causes, and then none."""
    stack, minutes, chance = trial.stack, trial.options.minutes, trial.chance()
    stack.good_deploy(inventory=inventory(stack))
    plan = plan_causes(trial.options.rounds, chance)
    with Receiver(stack.name) as receiver:
        for run in trial.remaining(
            Run(number, stack.hosts[place].name, alert=cause.alert)
            for number, (cause, place) in enumerate(plan)
        ):
            cause, place = plan[run.number]
            trial.make(run, partial(raise_cause, stack, stack.hosts[place], cause, receiver))
        messages = quiet(stack, receiver, minutes, chance) if minutes else []
    trial.notes.append(f"{minutes:g} minutes of switches: {len(messages)} messages")
    trial.violations += [f"a message without a cause: {message}" for message in messages]


def figures(trial: runner.Trial[Run]) -> Iterator[str]:
    """The delays of each alert."""
    for name in sorted({run.alert for run in trial.runs}):
        runs = [run for run in trial.runs if run.alert == name]
        delay_s = max((run.told_s for run in runs if run.told_s is not None), default=0)
        over = max((run.over_s for run in runs if run.over_s is not None), default=0)
        yield (
            f"{name}: {len(runs)} times, told after {delay_s:.0f} s at most "
            f"(bound {runs[0].bound_s:.0f}), over after {over:.0f} s at most"
        )


PROOF = runner.Proof(__doc__, "alerting", Run, prove, figures, {"rounds": 12, "minutes": 60.0})

if __name__ == "__main__":
    sys.exit(PROOF.main())
