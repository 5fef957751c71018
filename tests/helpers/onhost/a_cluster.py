"""Several members of a cluster in this process: each with its own agent, systemd and engine.

Their programs are threads by one clock, which passes as fast as they run. The agents exchange the
real messages of `member_client` and `member_server`, without a network.
tests/unit/onhost/cluster/test_member_server.py has agents that are processes.
"""

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
from a_model import tell
from a_model_host import ModelHost
from a_process import Process, T, have_switches, one_clock
from an_identity import give_identity
from lab_servers import until

from lockstep.onhost.access import peer_tls
from lockstep.onhost.cluster import (
    agent,
    cluster_start_in_deploy,
    member_client,
    member_server,
    participant,
    run_records,
)
from lockstep.onhost.core import clock, config, errors, http_client

GLM, OWN, SPARE = "vllm-glm.service", "vllm-own.service", "vllm-glm-fallback.service"


class Port(member_server.ClusterServer):
    """An agent's port: `Line` finds it by its address."""

    process: Process
    open: ClassVar[dict[str, "Port"]] = {}

    def server_bind(self) -> None:
        self.process = onhost_fake_systemd.PROCESS.get()
        self.open[self.server_address[0]] = self

    def server_activate(self) -> None:
        """Do nothing; there is no network."""


class Line(http.client.HTTPSConnection):
    """A connection to an agent."""

    def connect(self) -> None:
        source = self.source_address  # type: ignore[attr-defined]
        if self.host not in Port.open:
            raise ConnectionRefusedError(111, "Connection refused")
        self.sock = _Socket(  # type: ignore[assignment]
            lambda request: _answer(Port.open[self.host], source, request), self.host
        )


class _Socket:
    """One end of a connection: the data sent, the response to it, and the other end's address."""

    def __init__(self, respond: Callable[[bytes], bytes], address: str) -> None:
        self.sent_data, self._respond = b"", respond
        self._name = peer_tls.certificate_name(peer_tls.AGENT, f"spark{address.rpartition('.')[2]}")

    def do_handshake(self) -> None:
        """Do nothing; the other end is known."""

    def getpeercert(self) -> dict[str, object]:
        return {"subjectAltName": (("URI", self._name),)}

    def sendall(self, data: bytes) -> None:
        self.sent_data += data

    def makefile(self, *_: object) -> io.BytesIO:
        return io.BytesIO(self._respond(self.sent_data))

    def close(self, *_: object) -> None:
        """Do nothing; the connection is only in memory."""

    settimeout = close


def _answer(port: Port, source: tuple[str, int], request: bytes) -> bytes:
    if port.process.is_frozen:
        raise TimeoutError("timed out")
    connection = _Socket(lambda _: request, source[0])
    port.process.do(lambda: member_server.ClusterRequestHandler(connection, source, port))
    return connection.sent_data


class RunningProgram:
    """A program that runs; `returncode` is set when it has ended."""

    def __init__(self, process: Process, work) -> None:
        self.process, self.returncode = process, None
        self.thread = threading.Thread(target=lambda: process.do(self._run), daemon=True)
        self._work = work
        self.thread.start()

    def _run(self) -> None:
        self.returncode = self._work()

    def kill(self) -> None:
        self.process.is_frozen = True

    def output(self) -> str:
        """The program's whole output; waits for its end."""
        until(lambda: self.returncode is not None, "it ends", 3600)
        return self.process.out.getvalue()


class Spark(ModelHost):
    """One member of the cluster."""

    def __init__(self, folder: Path, monkeypatch, rank: int, members: list[dict], port: int):
        self.name, self.address, self.port = *members[rank].values(), port
        joint = {"cluster": "pair", "start_timeout_s": 60, **({"url": ""} if rank else {})}
        models = {
            "glm": {**joint, "unit": GLM, "fallback": "glm-fallback"},
            "glm-fallback": {**joint, "unit": SPARE},
            "own": {"unit": OWN, "start_timeout_s": 60},
        }
        super().__init__(folder, monkeypatch, models)
        pair = {"name": "pair", "rank": rank, "port": port, "members": members}
        tell(self.paths, name=self.name, clusters={"pair": pair})
        self.paths.run.mkdir(parents=True)
        give_identity(self.paths, self.name)
        self.log = io.StringIO()
        self.agent: Process | None = None
        self.clock: Clock | None = None

    def process(self, out: io.StringIO) -> Process:
        return Process(str(self.systemd.folder), out)

    def leave_cluster(self) -> None:
        """Remove the cluster and its models, as a deploy does."""
        own = json.loads(self.paths.models.read_text())["models"]["own"]
        tell(self.paths, models={"own": own}, clusters={})

    def program(self, module: str, *words: str) -> int:
        """Run one of the host's programs in this thread."""
        program = importlib.import_module(f"lockstep.onhost.{module}")
        return errors.run_main(module, lambda: program.main(list(words), self.paths))

    def power_on(self) -> None:
        process = self.agent = self.process(self.log)
        member_agent = process.do(lambda: agent.Agent(self.paths, participant.Times()))

        def run() -> None:
            member_agent.member.undo_earlier_agents_part()
            while True:
                clock.sleep(1.0)
                member_agent.check_switch_and_clusters()

        threading.Thread(target=lambda: process.do(run), daemon=True).start()

    def power_off(self) -> None:
        """Pull the plug: nothing ends in order, /run is gone, no unit is up."""
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
        """Hang the host, or cut its fabric: no answer comes, and no refusal."""
        self.agent.is_frozen = True

    def thaw(self) -> None:
        self.agent.is_frozen = False

    def start_program(self, module: str, *words: str) -> RunningProgram:
        return RunningProgram(self.process(io.StringIO()), lambda: self.program(module, *words))

    def switch_begun(self, name: str) -> RunningProgram:
        """Start the switch's own process, as systemd's job runs it."""
        return self.start_program("operator.switch_sh", "--worker", name, "alice")

    def switch(self, name: str, *words: str) -> tuple[int, list[str]]:
        """Run a whole switch; returns exit code and lines."""
        return self.run(
            "operator.switch_sh", *([name, *words] if words else ["--worker", name, "alice"])
        )

    def run(self, module: str, *words: str) -> tuple[int, list[str]]:
        """Run one of the host's programs; returns exit code and lines."""
        out = io.StringIO()
        code = self.do(lambda: self.program(module, *words), out)
        return code, out.getvalue().splitlines()

    def do(self, work: Callable[[], T], out: io.StringIO | None = None) -> T:
        return self.process(out or io.StringIO()).do(work)

    def state(self, unit: str = GLM) -> str:
        return str(self.systemd.state(unit)["ActiveState"])

    @property
    def cluster_run(self) -> run_records.ClusterRun:
        return run_records.recorded_runs(self.paths)["pair"]

    def agent_state(self) -> member_client.Answer:
        return self.ask("state")

    def ask(self, verb: str, body: member_client.Answer | None = None) -> member_client.Answer:
        cluster = config.load_host(self.paths.models).clusters["pair"]
        caller = member_client.MemberClient.from_cluster(cluster, self.paths)
        return caller.ask(cluster.own_member, verb, body)


def _one_by_one(work, names):
    """Ask members one after the other: a thread that waits for threads would stop the clock."""
    answers = {}
    for name in names:
        try:
            answers[name] = work(name)
        except errors.Problem as problem:
            answers[name] = problem
    return answers


def hosts_of(folder: Path, monkeypatch, count: int, port: int) -> list[Spark]:
    """Members with no unit up."""
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
    wire = SimpleNamespace(client=SimpleNamespace(**{**vars(http.client), "HTTPSConnection": Line}))
    monkeypatch.setattr(http_client, "http", wire)
    monkeypatch.setattr(member_client, "work_in_parallel", _one_by_one)
    monkeypatch.setattr(member_server, "ClusterServer", Port)
    monkeypatch.setattr(Port, "open", {})
    switch = onhost_fake_systemd.HERE["switch.sh",]
    monkeypatch.setattr(
        cluster_start_in_deploy, "run_switch", lambda name: switch([name, "--wait"])
    )
    with one_clock(monkeypatch) as time:
        for spark in sparks:
            spark.clock = time
            spark.power_on()
        yield sparks
    for spark in sparks:
        spark.close()
