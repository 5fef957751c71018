"""Several members of a cluster on this machine: each with its own agent, systemd and engine.

The agents are processes at 127.0.1.1, 127.0.1.2 …, so that one can be killed, frozen or refused
like a host.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import onhost_fake_systemd
from a_target import about, tell
from fork import Fork
from onhost_fakes import REPOSITORY, FakeEngine, FakeSystemd, host_root

from lockstep.onhost.cluster import runs, wire_client
from lockstep.onhost.core import config, errors
from lockstep.onhost.switching import switch_job

KEY = "k" * 40
GLM, OWN, SPARE = "vllm-glm.service", "vllm-own.service", "vllm-glm-fallback.service"
_DRIVER = """\
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
import importlib
from lockstep.onhost.core import config, errors, layout
from lockstep.onhost.switching import switch_job
root, module, *argv = sys.argv[2:]
again = [sys.executable, "-IS", "-c", {driver!r}, sys.argv[1], root]
switch_job.program = lambda: [*again, "operator.switch_sh"]
program = importlib.import_module(f"lockstep.onhost.{module}")
sys.exit(errors.ended(module, lambda: program.main(argv, layout.Paths(Path(root)))))
"""
# The program that starts itself again carries its own text.
_DRIVER = _DRIVER.replace("{driver!r}", "sys.orig_argv[sys.orig_argv.index('-c') + 1]")
#: Only bounds a hang, seconds: a busy machine needs many times what an idle one does.
LIMIT_S = 180.0
#: Short, so that nobody waits in a test; under load a beat may take its time.
TIMES = ("--lease", "3", "--beat", "0.2", "--look", "0.5", "--token-wait", "2")


#: Below these the kernel gives none to others by itself.
_PORTS = range(20_000, 32_000)


def free_port(count: int = 1) -> int:
    """A port that nobody has now at the addresses of so many members."""
    while True:
        port = random.choice(_PORTS)
        with contextlib.ExitStack() as stack, contextlib.suppress(OSError):
            for rank in range(1, count + 1):
                probe = stack.enter_context(socket.socket())
                probe.bind((f"127.0.1.{rank}", port))
            return port


class Spark:
    """One member."""

    def __init__(self, folder: Path, monkeypatch, rank: int, members: list[dict], port: int):
        self.name, self.address = members[rank]["name"], members[rank]["address"]
        self.rank, self.port = rank, port
        self.engine = FakeEngine()
        base = about(memory_gib=60.0, start_timeout_s=60, url=self.engine.url)
        joint = {**base, "cluster": "pair", "url": "" if rank else self.engine.url}
        targets = {
            "glm": {**joint, "unit": GLM, "fallback": "glm-fallback"},
            "glm-fallback": {**joint, "unit": SPARE},
            "own": {**base, "unit": OWN},
        }
        self.paths = host_root(folder / "root", targets)
        pair = {"name": "pair", "rank": rank, "port": port, "members": members}
        tell(self.paths, name=self.name, clusters={"pair": pair})
        self.paths.run.mkdir(parents=True)
        self.set_key(KEY)
        self.systemd = FakeSystemd(folder / "systemd", monkeypatch)
        for unit in (GLM, OWN, SPARE):
            self.systemd.unit(unit)
        self.environment = dict(os.environ)
        self.agent: subprocess.Popen[str] | None = None
        self.log = folder / "agent.log"

    def set_key(self, key: str) -> None:
        path = self.paths.secrets / "cluster-pair.key"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(key)

    def change(self, name: str, **values: object) -> None:
        """Change a target's data."""
        data = json.loads(self.paths.targets.read_text())
        data["targets"][name].update(values)
        self.paths.targets.write_text(json.dumps(data))

    def leave_cluster(self) -> None:
        """A deploy has taken the cluster and its targets away."""
        data = json.loads(self.paths.targets.read_text())
        tell(self.paths, targets={"own": data["targets"]["own"]}, clusters={})

    def argv(self, module: str, *words: str) -> list[str]:
        root = str(self.paths.root)
        return [sys.executable, "-IS", "-c", _DRIVER, str(REPOSITORY), root, module, *words]

    def program(self, module: str, *words: str) -> Callable[[], int]:
        """What one of the host's programs does."""

        def main() -> int:
            again = self.argv("operator.switch_sh")
            switch_job.program = lambda: again
            onhost_fake_systemd.HERE[(*again,)] = lambda words: self.program(
                "operator.switch_sh", *words
            )()
            program = importlib.import_module(f"lockstep.onhost.{module}")
            return errors.ended(module, lambda: program.main(list(words), self.paths))

        return main

    def power_on(self, *times: str) -> None:
        """Start the agent, by `TIMES` and then these options, and wait until it answers."""
        with self.log.open("a") as log:
            main = self.program("cluster.agent", *TIMES, *times)
            self.agent = Fork(main, env=self.environment, stdout=log, stderr=log)
        until(self._listens, "the agent listens")

    def _listens(self) -> bool:
        assert self.agent is not None
        assert self.agent.poll() is None, f"the agent ended: {self.log.read_text()}"
        with socket.socket() as probe:
            probe.settimeout(1)
            return probe.connect_ex((self.address, self.port)) == 0

    def power_off(self) -> None:
        """As if the plug was pulled: nothing ends in order, /run is gone, no unit is up."""
        self.kill_agent()
        for path in self.paths.run.glob("*"):
            if path.is_file():
                path.unlink()
        for unit in (GLM, OWN, SPARE):
            self.systemd.unit(unit)

    def kill_agent(self) -> None:
        assert self.agent is not None
        self.agent.kill()
        self.agent.wait()

    def freeze(self) -> None:
        """The host hangs, or its fabric is cut: nobody answers, nothing is refused."""
        assert self.agent is not None
        self.agent.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        assert self.agent is not None
        self.agent.send_signal(signal.SIGCONT)

    def switch_begun(self, name: str) -> subprocess.Popen[str]:
        """The switch's own process, as systemd's job runs it."""
        return self.begun("operator.switch_sh", "--worker", name, "alice")

    def begun(self, module: str, *words: str) -> subprocess.Popen[str]:
        """One of the host's programs, started."""
        return Fork(
            self.program(module, *words),
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def switch(self, name: str, *words: str) -> tuple[int, list[str]]:
        """A whole switch: exit code and lines."""
        return self.run(
            "operator.switch_sh", *([name, *words] if words else ["--worker", name, "alice"])
        )

    def run(self, module: str, *words: str) -> tuple[int, list[str]]:
        """One of the host's programs: exit code and lines."""
        process = self.begun(module, *words)
        said, _ = process.communicate(timeout=LIMIT_S)
        return process.returncode, said.splitlines()

    def state(self, unit: str = GLM) -> str:
        return str(self.systemd.state(unit)["ActiveState"])

    def hot(self) -> list[str]:
        names = {GLM: "glm", OWN: "own", SPARE: "glm-fallback"}
        return [name for unit, name in names.items() if self.state(unit) == "active"]

    @property
    def group(self) -> runs.Group:
        return runs.load(self.paths)["pair"]

    def said(self) -> wire_client.Answer:
        """What its agent says of itself."""
        return self.ask("state")

    def ask(self, verb: str, body: wire_client.Answer | None = None) -> wire_client.Answer:
        """What its agent answers to a member."""
        cluster = config.load_host(self.paths.targets).clusters["pair"]
        caller = wire_client.Caller(cluster, KEY.encode())
        return caller.ask(cluster.me, verb, body, timeout=LIMIT_S)

    def end(self) -> None:
        if self.agent is not None and self.agent.poll() is None:
            self.thaw()
            self.kill_agent()
        self.engine.close()


@contextlib.contextmanager
def cluster_of(folder: Path, monkeypatch, count: int) -> Iterator[list[Spark]]:
    """Members with their agents up and nothing hot; they end with the test."""
    members = [{"name": f"spark{n}", "address": f"127.0.1.{n}"} for n in range(1, count + 1)]
    port = free_port(count)
    with contextlib.ExitStack() as stack:
        sparks = []
        for rank, member in enumerate(members):
            sparks.append(Spark(folder / member["name"], monkeypatch, rank, members, port))
            stack.callback(sparks[-1].end)
        for spark in sparks:
            spark.power_on()
        yield sparks


def until(condition, what: str, limit_s: float = LIMIT_S) -> None:
    """Wait for what must come."""
    give_up = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < give_up, f"never: {what}"
        time.sleep(0.02)
