"""Several members of a cluster in this process: each with its own agent, systemd and engine.

Their programs are threads by one clock, which goes as fast as they do. What the agents say to each
other goes through the real messages of `wire_client` and `wire_server`, without a network.
tests/unit/onhost/cluster/test_agent.py has agents that are processes.
"""

from __future__ import annotations

import contextlib
import http.client
import importlib
import io
import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import ClassVar

import onhost_fake_systemd
from a_clock import Clock
from a_model_host import ModelHost
from a_process import Process, T, have_switches, one_clock
from lab_servers import until

from lockstep.onhost.cluster import (
    agent,
    cluster_rollout,
    participant,
    runs,
    wire_client,
    wire_server,
)
from lockstep.onhost.core import clock, config, errors

KEY = "k" * 40
GLM, OWN, SPARE = "vllm-glm.service", "vllm-own.service", "vllm-glm-fallback.service"


class Port(wire_server.Server):
    """An agent's port: `Line` finds it by its address."""

    process: Process
    open: ClassVar[dict[str, Port]] = {}

    def server_bind(self) -> None:
        self.process = onhost_fake_systemd.PROCESS.get()
        self.open[self.server_address[0]] = self

    def server_activate(self) -> None:
        """There is no network."""


class Line(http.client.HTTPConnection):
    """A connection to an agent."""

    def connect(self) -> None:
        if self.host not in Port.open:
            raise ConnectionRefusedError(111, "Connection refused")
        source = self.source_address  # type: ignore[attr-defined]
        self.sock = _Socket(lambda asked: _answer(Port.open[self.host], source, asked))  # type: ignore[assignment]


class _Socket:
    """One end of it: what is sent, and what comes then."""

    def __init__(self, given: Callable[[bytes], bytes]) -> None:
        self.sent, self._given = b"", given

    def sendall(self, data: bytes) -> None:
        self.sent += data

    def makefile(self, *_: object) -> io.BytesIO:
        return io.BytesIO(self._given(self.sent))

    def close(self, *_: object) -> None:
        """It is of memory alone."""

    settimeout = close


def _answer(port: Port, source: object, asked: bytes) -> bytes:
    if port.process.frozen:
        raise TimeoutError("timed out")
    there = _Socket(lambda _: asked)
    port.process.do(lambda: wire_server.Handler(there, source, port))
    return there.sent


class Begun:
    """A program that goes on; `returncode` when it has ended."""

    def __init__(self, process: Process, work) -> None:
        self.process, self.returncode = process, None
        self.thread = threading.Thread(target=lambda: process.do(self._run), daemon=True)
        self._work = work
        self.thread.start()

    def _run(self) -> None:
        self.returncode = self._work()

    def kill(self) -> None:
        self.process.frozen = True

    def output(self) -> str:
        """Its whole output, once it has ended."""
        until(lambda: self.returncode is not None, "it ends", 3600)
        return self.process.out.getvalue()


class Spark(ModelHost):
    """One member."""

    def __init__(self, folder: Path, monkeypatch, rank: int, members: list[dict], port: int):
        self.name, self.address, self.port = *members[rank].values(), port
        joint = {"cluster": "pair", "start_timeout_s": 60, **({"url": ""} if rank else {})}
        targets = {
            "glm": {**joint, "unit": GLM, "fallback": "glm-fallback"},
            "glm-fallback": {**joint, "unit": SPARE},
            "own": {"unit": OWN, "start_timeout_s": 60},
        }
        super().__init__(folder, monkeypatch, targets)
        data = json.loads(self.paths.targets.read_text())
        clusters = {"pair": {"name": "pair", "rank": rank, "port": port, "members": members}}
        self.paths.targets.write_text(json.dumps({**data, "name": self.name, "clusters": clusters}))
        self.paths.run.mkdir(parents=True)
        self.paths.secrets.mkdir(parents=True)
        (self.paths.secrets / "cluster-pair.key").write_text(KEY)
        self.log = io.StringIO()
        self.agent: Process | None = None
        self.clock: Clock | None = None

    def process(self, out: io.StringIO) -> Process:
        """One of the host's programs, which says to `out`."""
        return Process(str(self.systemd.folder), out)

    def leave_cluster(self) -> None:
        """A deploy has taken the cluster and its targets away."""
        data = json.loads(self.paths.targets.read_text())
        data["targets"] = {"own": data["targets"]["own"]}
        self.paths.targets.write_text(json.dumps({**data, "clusters": {}}))

    def program(self, module: str, *words: str) -> int:
        """What one of the host's programs does."""
        program = importlib.import_module(f"lockstep.onhost.{module}")
        return errors.ended(module, lambda: program.main(list(words), self.paths))

    def power_on(self) -> None:
        """Start the agent."""
        process = self.agent = self.process(self.log)
        made = process.do(lambda: agent.Agent(self.paths, participant.Times()))

        def run() -> None:
            made.member.resume()
            while True:
                clock.sleep(1.0)
                made.step()

        threading.Thread(target=lambda: process.do(run), daemon=True).start()

    def power_off(self) -> None:
        """As if the plug was pulled: nothing ends in order, /run is gone, no unit is up."""
        self.kill_agent()
        for path in self.paths.run.glob("*"):
            if path.is_file():
                path.unlink()
        for unit in (GLM, OWN, SPARE):
            self.systemd.unit(unit)

    def kill_agent(self) -> None:
        self.freeze()
        del Port.open[self.address]
        # The kernel drops a lock with its holder.
        for path in (self.paths.switch_lock, self.paths.switch_lock.with_suffix(".json")):
            path.unlink(missing_ok=True)

    def freeze(self) -> None:
        """The host hangs, or its fabric is cut: nobody answers, nothing is refused."""
        assert self.agent is not None
        self.agent.frozen = True

    def thaw(self) -> None:
        assert self.agent is not None
        self.agent.frozen = False

    def begun(self, module: str, *words: str) -> Begun:
        """One of the host's programs, started."""
        return Begun(self.process(io.StringIO()), lambda: self.program(module, *words))

    def switch_begun(self, name: str) -> Begun:
        """The switch's own process, as systemd's job runs it."""
        return self.begun("operator.switch_sh", "--worker", name, "alice")

    def switch(self, name: str, *words: str) -> tuple[int, list[str]]:
        """A whole switch: exit code and lines."""
        return self.run(
            "operator.switch_sh", *([name, *words] if words else ["--worker", name, "alice"])
        )

    def run(self, module: str, *words: str) -> tuple[int, list[str]]:
        """One of the host's programs: exit code and lines."""
        out = io.StringIO()
        code = self.do(lambda: self.program(module, *words), out)
        return code, out.getvalue().splitlines()

    def do(self, work: Callable[[], T], out: io.StringIO | None = None) -> T:
        """Do something as a program of this host."""
        return self.process(out or io.StringIO()).do(work)

    def state(self, unit: str = GLM) -> str:
        return str(self.systemd.state(unit)["ActiveState"])

    @property
    def group(self) -> runs.Group:
        return runs.load(self.paths)["pair"]

    def said(self) -> wire_client.Answer:
        """What its agent says of itself."""
        return self.ask("state")

    def ask(self, verb: str, body: wire_client.Answer | None = None) -> wire_client.Answer:
        """The answer of its agent to a member."""
        cluster = config.load_host(self.paths.targets).clusters["pair"]
        return wire_client.Caller(cluster, KEY.encode()).ask(cluster.me, verb, body)


def _one_by_one(work, names):
    """Ask members one after the other: who waits for threads would stop the clock."""
    found = {}
    for name in names:
        try:
            found[name] = work(name)
        except errors.Problem as problem:
            found[name] = problem
    return found


def hosts_of(folder: Path, monkeypatch, count: int, port: int) -> list[Spark]:
    """Members with nothing up."""
    members = [{"name": f"spark{n}", "address": f"127.0.1.{n}"} for n in range(1, count + 1)]
    sparks = [
        Spark(folder / member["name"], monkeypatch, rank, members, port)
        for rank, member in enumerate(members)
    ]
    have_switches(monkeypatch, *((spark.systemd, spark.paths) for spark in sparks))
    return sparks


@contextlib.contextmanager
def cluster_of(folder: Path, monkeypatch, count: int) -> Iterator[list[Spark]]:
    """Members with their agents up and nothing hot; they end with the test."""
    sparks = hosts_of(folder, monkeypatch, count, 7079)
    wire = SimpleNamespace(HTTPConnection=Line, HTTPException=http.client.HTTPException)
    monkeypatch.setattr(wire_client, "http", SimpleNamespace(client=wire))
    monkeypatch.setattr(wire_client, "at_once", _one_by_one)
    monkeypatch.setattr(wire_server, "Server", Port)
    monkeypatch.setattr(Port, "open", {})
    switch = onhost_fake_systemd.HERE["switch.sh",]
    monkeypatch.setattr(cluster_rollout, "switched", lambda name: switch([name, "--wait"]))
    with one_clock(monkeypatch) as time:
        for spark in sparks:
            spark.clock = time
            spark.power_on()
        yield sparks
    for spark in sparks:
        spark.close()
