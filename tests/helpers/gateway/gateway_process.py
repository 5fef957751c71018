"""The gateway as a process, before engines of which a test holds every byte."""

from __future__ import annotations

import contextlib
import fcntl
import http.client
import json
import os
import socket
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest
from fork import Fork
from lab_servers import free_port, until
from onhost_fakes import FakeSystemd, host_root
from raw_engine import LIMIT_S, Wire, notified

from lockstep.onhost.core import errors, layout
from lockstep.onhost.core.kind import SHAPES
from lockstep.onhost.gateway import ask as asking
from lockstep.onhost.gateway import hot as looks
from lockstep.onhost.gateway import keys, peers, server
from lockstep.onhost.gateway.configuration import Door, Gateway, Limits, Model
from lockstep.onhost.gateway.wire import body

#: Targets of a host in these tests; "safe" is the fallback of "mistral", "vectors" embeds.
UNITS = {name: f"{name}.service" for name in ("qwen", "mistral", "safe", "vectors")}
MODELS = {"qwen": "Qwen/Q", "mistral": "mistralai/M", "safe": "mistralai/M", "vectors": "E/V"}
KEYS = {"use": keys.new_key(), "operate": keys.new_key()}
PEOPLE = {"use": "anna", "operate": "boss"}
CHAT = "/v1/chat/completions"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
TWO = [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}]
USE = {"Authorization": f"Bearer {KEYS['use']}"}
OPERATE = {"x-api-key": KEYS["operate"]}


@dataclass
class Spark:
    """A host with a gateway: what its systemd says, and its engines' listening sockets."""

    folder: Path
    paths: layout.Paths
    systemd: FakeSystemd
    gateway: Gateway
    engines: dict[str, socket.socket]
    process: subprocess.Popen[str] | None = None
    heated: str | None = None

    def heat(self, name: str | None) -> None:
        """Have systemd say that a target is hot, and no other one; see `hot`."""
        self.heated = name
        for other, unit in UNITS.items():
            group = self.paths.groups_of_units / unit
            group.mkdir(parents=True, exist_ok=True)
            populated = int(other == name)
            (group / "cgroup.events").write_text(f"populated {populated}\nfrozen 0\n")
            state = "active" if populated else "inactive"
            sub = "running" if populated else "dead"
            self.systemd.unit(unit, ActiveState=state, SubState=sub)

    @property
    def switch(self) -> Path:
        """The socket at which the gateway asks for a switch; nobody listens there by itself."""
        return self.paths.root / "switch.sock"

    def door(self, kind: str, target: str = "") -> Door:
        """A door of the gateway."""
        return next(
            door
            for door in self.gateway.doors
            if door.kind == kind and (not target or target in door.targets)
        )

    def client(self, kind: str = "local", target: str = "") -> HTTPConnection:
        """A connection to a door."""
        door = self.door(kind, target)
        if door.port:
            return HTTPConnection(door.address, door.port, timeout=LIMIT_S)
        client = HTTPConnection("spark", timeout=LIMIT_S)
        client.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        client.sock.settimeout(LIMIT_S)
        client.sock.connect(door.address)
        return client

    def raw(self, kind: str = "local", target: str = "") -> socket.socket:
        """A connection of which the test writes every byte."""
        door = self.door(kind, target)
        return socket.create_connection((door.address, door.port), timeout=LIMIT_S)

    def accept(self, target: str = "qwen") -> Wire:
        """The next connection that an engine gets."""
        return Wire(self.engines[target].accept()[0])

    def nobody_asked(self, target: str = "qwen") -> None:
        """No connection waits at an engine."""
        listening = self.engines[target]
        listening.settimeout(0)
        with pytest.raises(BlockingIOError):
            listening.accept()
        listening.settimeout(LIMIT_S)

    def stop(self) -> str:
        """Stop the gateway as systemd does; what it said."""
        assert self.process is not None
        self.process.terminate()
        return self.process.communicate(timeout=LIMIT_S)[0]


@contextlib.contextmanager
def prepared(folder: Path, **settings: object) -> Iterator[Spark]:
    """The host, with everything but its gateway; `settings` are fields of `Gateway`."""
    with contextlib.ExitStack() as stack:
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        engines = {
            name: stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=256))
            for name in ("qwen", "mistral", "vectors")
        }
        # A fallback has its target's port.
        engines["safe"] = engines["mistral"]
        for engine in engines.values():
            engine.settimeout(LIMIT_S)
        base = {"memory_gib": 60.0, "start_timeout_s": 60, "url": ""}
        targets: dict[str, dict] = {
            name: {
                **base,
                "unit": unit,
                "model": MODELS[name],
                "weights": [f"hub/{name}"],
                "engine_url": f"http://127.0.0.1:{engines[name].getsockname()[1]}",
            }
            for name, unit in UNITS.items()
        }
        targets["mistral"]["fallback"] = "safe"
        targets["vectors"]["kind"] = "embedding"
        paths = host_root(folder / "root", targets)
        doors = (
            Door("local", "127.0.0.1", free_port()),
            Door("open", "127.0.0.2", free_port()),
            Door("tls", str(folder / "tls.sock")),
            Door("target", "127.0.0.1", free_port(), ("mistral", "safe")),
        )
        models = {
            "qwen": Model(aliases=("coder",), context=32768),
            "mistral": Model(evens=(*SHAPES, "empty_tools")),
            "safe": Model(evens=SHAPES),
        }
        gateway = replace(Gateway("spark1", doors, ("spark1.local",), models), **settings)  # type: ignore[arg-type]
        spark = Spark(folder, paths, FakeSystemd(folder / "systemd", patch), gateway, engines)
        write_keys(paths)
        paths.gateway.write_text(json.dumps(asdict(spark.gateway)))
        spark.heat("qwen")
        yield spark


def write_keys(paths: layout.Paths, roles: Sequence[str] = ("use", "operate")) -> None:
    """keys.json with a person of each role."""
    entries = [
        keys.Entry(PEOPLE[role], keys.stamp(keys.utc()), keys.digest(KEYS[role].encode()), role)  # type: ignore[arg-type]
        for role in roles
    ]
    paths.gateway_keys.parent.mkdir(parents=True, exist_ok=True)
    paths.gateway_keys.write_text(json.dumps(keys.document(entries)))


def start(
    spark: Spark,
    notify: str,
    environment: Mapping[str, str],
    *,
    handed: Sequence[socket.socket] | None = None,
    patience_s: float | None = None,
) -> subprocess.Popen[str]:
    """The program as the unit starts it.

    `handed`: the listening sockets that systemd has opened for it; None: it opens its own.
    `patience_s`: how long a body is waited for.
    """
    # Far from the numbers that it gets them as.
    high = [fcntl.fcntl(each, fcntl.F_DUPFD, 100) for each in handed or ()]

    def main() -> int:
        # No gateway is silent here because this machine is busy.
        peers.ANSWER_S = 180.0
        looks.EVERY_S = 0.2
        # Of the function itself: what was imported before has taken it over already.
        asking.switch.__defaults__ = (spark.switch,)
        if patience_s is not None:
            body.PATIENCE_S = patience_s
        if handed is not None:
            # What systemd does before it starts the program of a socket.
            for place, number in enumerate(high):
                os.dup2(number, 3 + place)
            me = str(os.getpid())
            os.environ.update(LISTEN_FDS=str(len(high)), LISTEN_PID=me, SYSTEMD_EXEC_PID=me)
        usage = spark.paths.root / "usage.json"
        return errors.ended("lockstep gateway", lambda: server.main([], spark.paths, usage))

    # A proxy of the environment is for fetching; no engine is behind one.
    extra = {"NOTIFY_SOCKET": notify, "http_proxy": "http://127.0.0.1:9", **environment}
    try:
        return Fork(
            main,
            env={**os.environ, **extra},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            pass_fds=high,
        )
    finally:
        for number in high:
            os.close(number)


@contextlib.contextmanager
def running(
    folder: Path,
    environment: Mapping[str, str] | None = None,
    *,
    patience_s: float | None = None,
    **settings: object,
) -> Iterator[Spark]:
    """A host whose gateway is ready; `patience_s` as for `start`."""
    with (
        prepared(folder, **settings) as spark,
        once(spark, environment, patience_s=patience_s),
    ):
        yield spark


@contextlib.contextmanager
def once(
    spark: Spark,
    environment: Mapping[str, str] | None = None,
    *,
    handed: Sequence[socket.socket] | None = None,
    patience_s: float | None = None,
) -> Iterator[None]:
    """One run of the gateway, from its READY=1 on; the arguments are those of `start`.

    Whatever was asked of it meanwhile, it said no key and no traceback.
    """
    with (
        notified(spark.folder) as (notify, path),
        start(spark, path, environment or {}, handed=handed, patience_s=patience_s) as process,
    ):
        spark.process = process
        try:
            assert notify.recv(64) == b"READY=1"
            yield
            if process.poll() is None:
                said = spark.stop()
                assert not [word for word in ("Traceback", *KEYS.values()) if word in said], said
        finally:
            process.kill()


def hot(spark: Spark, name: str | None) -> None:
    """Let a target be hot, and wait until the gateway knows; nothing where it is already."""
    if spark.heated == name:
        return
    spark.heat(name)
    # A fallback is not listed: it answers for its target.
    expected = {None: [], "safe": ["mistral"]}.get(name, [name])

    def known() -> bool:
        data = json.loads(ask(spark, "GET", "/v1/models")[1])["data"]
        return [model["id"] for model in data if model["lockstep"]["hot"]][:1] == expected

    until(known, f"{name} is known to be hot", 60)


def ask(
    spark: Spark,
    method: str,
    path: str,
    body: object = None,
    headers: dict[str, str] | None = None,
    door: str = "local",
) -> tuple[http.client.HTTPResponse, bytes]:
    """One request that the gateway answers itself: its answer, and the body."""
    client = spark.client(door)
    data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
    with closing(client):
        client.request(method, path, data, headers or {})
        answer = client.getresponse()
        return answer, answer.read()


def error(answer: bytes) -> dict[str, Any]:
    """The error in an answer's body."""
    found = json.loads(answer)["error"]
    assert isinstance(found, dict)
    return found


def begin(
    spark: Spark, path: str = CHAT, headers: dict[str, str] | None = None, **more: object
) -> tuple[HTTPConnection, Wire]:
    """A streamed request that has come to qwen: the client, and the engine's side."""
    client = spark.client()
    client.request(
        "POST", path, json.dumps({"model": "qwen", "stream": True, **more}), headers or {}
    )
    wire = spark.accept()
    wire.asked()
    return client, wire


@contextlib.contextmanager
def limited(folder: Path) -> Iterator[Spark]:
    """A running gateway with small bounds, and impatient keep-alives."""
    limits = Limits(body_mib=1, streams=8, streams_per_key=2)
    with running(folder, limits=limits, keepalive_s=0.2) as spark:
        yield spark
