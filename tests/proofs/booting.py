"""Power cuts at random moments with each value of `boot`, seeded, and the state after each.

    python tests/proofs/booting.py --runs 172 --seed 1 --record FILE

Makes so many runs with each value; 172 of them cut the power 200 times or more.
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import faults
import runner
import soaking
from soaking import UNITS, WATCHER
from stack import SWITCH, Host, Stack, until

from lab import control
from lab.core.errors import LabError
from lab.core.state import open_lab

#: What `boot` is in three blocks of runs. qwen's recipe forbids it, so no block names it.
VALUES = ("none", "last", "mistral")
PHASES = ("loading", "hot", "switching", "stopping", "booting", "freezing")
RECORD = "/var/lib/lockstep-deploy/boots.json"
#: How long the host has after a boot to come to its rest.
SETTLE_S = 120
#: A boot that is over and lasted longer than the hour in which a second cut counts.
_LONG = {
    "id": "",
    "began": 0.0,
    "duration_s": 4000.0,
    "model": None,
    "phase": None,
    "no_model_reason": None,
}
_SEEN = "/var/log/two-engines.log"


@dataclass
class Run(runner.Run):
    """One run: its acts, and the hot model before and after."""

    boot: str = ""
    phase: str = ""
    model: str = ""
    other_model: str = ""
    delay_s: float = 0.0
    expected_hot: list[str | None] = field(default_factory=list)
    hot: str | None = None
    boot_message: str | None = None
    tries: int = 0


class Booting:
    """Runs on one host of a lab; the deploy is done already."""

    def __init__(self, stack: Stack, host: Host, boot: str) -> None:
        self._host, self._boot = host, boot
        self._lab = open_lab(stack.name)

    def prepare(self) -> None:
        """Prepare quick engines after every boot, and a watcher that no power cut leaves behind."""
        self.knobs()
        unit = (
            "[Unit]\nDefaultDependencies=no\nAfter=local-fs.target\n[Service]\nExecStart=/usr/bin/"
            f"python3 -u /usr/local/lib/two-engines.py\nStandardOutput=append:{_SEEN}\n"
            "[Install]\nWantedBy=sysinit.target\n"
        )
        files = {
            "/usr/local/lib/two-engines.py": WATCHER,
            "/etc/systemd/system/two-engines.service": unit,
        }
        for path, text in files.items():
            self._host.root(f"cat > {path} <<'END'\n{text}\nEND")
        self._host.root("systemctl daemon-reload; systemctl enable -q --now two-engines.service")

    def thaw(self) -> None:
        """Give power to a host that has none, and let no engine cut it."""
        while self.off():
            self.give_power()
        self.knobs()

    def clear(self) -> None:
        """Bring the host back to the state before."""
        self._host.root(
            "systemctl disable -q --now two-engines.service; rm -f /etc/tmpfiles.d/standin.conf "
            f"/usr/local/lib/two-engines.py /etc/systemd/system/two-engines.service {_SEEN}; "
            "systemctl daemon-reload"
        )
        faults.clear_knobs(self._host)

    def knobs(self, then: str = "true", **more: object) -> None:
        """Let stand-in engines load quickly, with more knobs turned, now and after each boot.

        `then` is a command that root runs in the same login.
        """
        text = json.dumps({**faults.QUICK, "load_seconds": 1.0, **more})
        files = [f"{faults.KNOBS}/standin-{engine}.json" for engine in faults.ENGINES]
        lines = "".join(f"f+ {file} 0644 - - - {text}\n" for file in files)
        self._host.root(
            f"cat > /etc/tmpfiles.d/standin.conf <<'END'\n{lines}END\n"
            f"systemd-tmpfiles --create /etc/tmpfiles.d/standin.conf && {then}"
        )

    def cut(self) -> None:
        """Cut the power and give it back; ends when a login to the host works."""
        control.ask(self._lab, "cycle", host=self._host.name, off=True, on=True)

    def take_power(self) -> None:
        """Cut the power."""
        control.ask(self._lab, "cycle", host=self._host.name, off=True, on=False)

    def off(self) -> bool:
        """Tell whether the host has no power."""
        return self._power() == "off"

    def _power(self) -> str:
        hosts = control.ask(self._lab, "status")["hosts"]
        return next(str(host["power"]) for host in hosts if host["name"] == self._host.name)

    def give_power(self) -> None:
        """Give the host power; an engine may cut it again."""
        try:
            control.ask(self._lab, "cycle", host=self._host.name, off=False, on=True)
        except LabError:
            # Cut again before anybody could log in.
            if not self.off():
                raise

    def is_settled(self) -> bool:
        """Tell whether the boot is over, with no job of it left."""
        # The login waits a while, for each costs more than the wait.
        answer = self._host.run(
            "timeout 3 systemctl is-system-running --wait >/dev/null; "
            "systemctl show -p SubState --value lockstep-boot.service; systemctl is-system-running"
        )
        words = answer.out.split()
        return len(words) == 2 and words[0] != "running" and words[1] in ("running", "degraded")

    def make(self, run: Run) -> None:
        """Make one run of the phase that `run` names."""
        self._an_hour_passes()
        run.expected_hot = [self._after_boot(run.model)]
        getattr(self, f"_{run.phase}")(run)
        self._judge(run)

    def _an_hour_passes(self) -> None:
        """Make earlier cuts too old to count, and engines load quickly again."""
        code = (
            f"import json, uuid; path = {RECORD!r}; data = json.load(open(path)); "
            f"long = {_LONG!r} | {{'id': uuid.uuid4().hex}}; "
            "data['boots'].insert(len(data['boots']) - 1, long); "
            "json.dump(data, open(path, 'w'))"
        )
        self.knobs(f'python3 -c "{code}"')

    def _switch(self, name: str) -> None:
        answer = self._host.switch(name, "--wait")
        assert answer.code == 0, answer.text

    def _after_boot(self, last: str | None) -> str | None:
        """The model to be hot after a boot, if `last` was hot at the end of the last switch."""
        if self._boot == "last":
            return None if last == "qwen" else last
        return None if self._boot == "none" else self._boot

    def _loading(self, run: Run) -> None:
        self._switch("none")
        run.expected_hot = [self._after_boot(None)]
        self._host.begin(f"{SWITCH} {run.model}")
        time.sleep(run.delay_s)
        # The switch may have ended by then, or not.
        run.expected_hot.append(self._after_boot(run.model))
        self.cut()

    def _hot(self, run: Run) -> None:
        self._switch(run.model)
        self.cut()

    def _switching(self, run: Run) -> None:
        self._switch(run.model)
        self._host.begin(f"{SWITCH} {run.other_model}")
        time.sleep(run.delay_s)
        run.expected_hot.append(self._after_boot(run.other_model))
        self.cut()

    def _stopping(self, run: Run) -> None:
        self._switch(run.model)
        self._host.begin(f"{SWITCH} none")
        time.sleep(run.delay_s / 4)
        run.expected_hot.append(self._after_boot(None))
        self.cut()

    def _booting(self, run: Run) -> None:
        self._switch(run.model)
        self.take_power()
        giving = ThreadPoolExecutor(1).submit(self.give_power)
        time.sleep(1.0 + run.delay_s)
        self.take_power()
        # Was the model starting by then, this was the second cut under one.
        run.expected_hot.append(None)
        self.give_power()
        giving.result()

    def _freezing(self, run: Run) -> None:
        """Make an engine freeze the host as it starts, from wherever it is started."""
        if self._hot_first(run):
            # The boot makes the first try, after a cut that counts like one of a try.
            self._switch(run.model)
            self.knobs(freezes_host=True)
            self.take_power()
        else:
            # What is hot already is not started.
            self._switch("none")
            self.knobs(freezes_host=True)
            self._host.begin(f"{SWITCH} {run.model}")
            until(self.off, f"{self._host.name}: the engine freezes the host", SETTLE_S)
            run.tries = 1
        run.expected_hot = [None]
        while run.tries <= 3 and self.off():
            self.give_power()
            until(lambda: self.off() or self.is_settled(), f"{self._host.name}: rest", SETTLE_S)
            run.tries += self.off()

    def _hot_first(self, run: Run) -> bool:
        return run.delay_s < 2 and self._after_boot(run.model) is not None

    def _judge(self, run: Run) -> None:
        until(self.is_settled, f"{self._host.name}: the boot is over", SETTLE_S)
        more = f"; echo ---; grep violation {_SEEN}; echo ---; cat {RECORD}"
        _, status, active, alive, (sightings, record) = soaking.look(
            self._host, SETTLE_S, more=more
        )
        run.hot, run.boot_message = status["hot"], status["boot"]
        if message := soaking.disagreement(run.hot, active, alive):
            run.violations.append(message)
        if sightings.strip():
            run.violations.append(f"two engines: {sightings}")
            self._host.root(f": > {_SEEN}")
        if status["problems"] or status["switching"]:
            run.violations.append(f"{status['problems']}, {status['switching']}")
        if run.hot not in run.expected_hot:
            run.violations.append(f"{run.hot} is hot, not {run.expected_hot}: {record}")
        if run.tries > 2:
            run.violations.append(f"{run.tries} tries of an engine that freezes the host: {record}")
        kept_down = run.boot_message is not None and "stays down" in run.boot_message
        tried_again = self._boot == "mistral" or self._hot_first(run)
        if run.phase == "freezing" and tried_again and not kept_down:
            run.violations.append(f"nothing is said of why it stays down: {run.boot_message}")


def plan(trial: runner.Trial[Run]) -> list[Run]:
    """The runs, which are the same for the same seed, hosts and runs of each value."""
    runs, hosts, count = [], trial.stack.hosts, trial.options.runs
    for number in range(count * len(VALUES)):
        chance = trial.chance(number)
        host = hosts[number % len(hosts)].name
        model, other_model = chance.sample(sorted(UNITS), 2)
        phase = PHASES[(number // len(hosts)) % len(PHASES)]
        run = Run(number, host, boot=VALUES[number // count], phase=phase)
        run.model, run.other_model = model, other_model
        run.delay_s = round(chance.uniform(0.0, 4.0), 2)
        runs.append(run)
    return runs


def prove(trial: runner.Trial[Run]) -> None:
    """Deploy each value of `boot`, and make its runs."""
    stack, remaining_runs = trial.stack, list(trial.remaining(plan(trial)))
    for value in VALUES:
        runs = [run for run in remaining_runs if run.boot == value]
        if not runs or trial.is_over():
            continue
        for host in stack.hosts:
            # Where a call was interrupted, an engine may still freeze it.
            Booting(stack, host, value).thaw()
        stack.good_deploy(inventory=stack.inventory(f"boot-{value}", boot=value))

        def on(host: Host, value: str = value, runs: list[Run] = runs) -> None:
            booting = Booting(stack, host, value)
            booting.prepare()
            for run in trial.remaining(run for run in runs if run.host == host.name):
                trial.make(run, booting.make)
            booting.clear()

        trial.on_hosts(on)


def figures(trial: runner.Trial[Run]) -> Iterator[str]:
    """The counts of the runs."""
    cuts: Counter[str] = Counter()
    for run in trial.runs:
        cuts[run.boot] += run.tries if run.phase == "freezing" else 1 + (run.phase == "booting")
    yield runner.counts("power cuts", cuts.elements())
    yield runner.counts("phases", (run.phase for run in trial.runs))
    yield runner.counts("hot after", (run.hot for run in trial.runs))
    yield f"most tries of one that freezes: {max((run.tries for run in trial.runs), default=0)}"


PROOF = runner.Proof(__doc__, "booting", Run, prove, figures, {"runs": 160})

if __name__ == "__main__":
    sys.exit(PROOF.main())
