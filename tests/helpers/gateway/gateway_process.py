"""The gateway as a process, before engines of which a test holds every byte."""

import contextlib
import fcntl
import json
import os
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest
from fork import Fork
from lab_servers import free_port, until
from onhost_fakes import FakeSystemd, host_root
from raw_engine import LIMIT_S, Wire

from lockstep.onhost.core import errors, layout
from lockstep.onhost.core.request_kinds_and_refused_shapes import SHAPES
from lockstep.onhost.gateway import hot_model as looks
from lockstep.onhost.gateway import keys, peer_gateways, server
from lockstep.onhost.gateway import switch_client as asking
from lockstep.onhost.gateway.configuration import GatewayConfiguration, Limits, ListenAddress
from lockstep.onhost.gateway.wire import request_body

#: Models of a host in these tests; "safe" is the fallback of "mistral", "vectors" embeds.
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
    """A host with a gateway: its systemd's answers, and its engines' listening sockets."""

    folder: Path
    paths: layout.Paths
    systemd: FakeSystemd
    gateway: GatewayConfiguration
    engines: dict[str, socket.socket]
    process: subprocess.Popen[str] | None = None
    hot_model: str | None = None

    def heat(self, name: str | None) -> None:
        """Have systemd report exactly this model as hot; see `hot`."""
        self.hot_model = name
        for model_name, unit in UNITS.items():
            is_hot = model_name == name
            group = self.paths.groups_of_units / unit
            group.mkdir(parents=True, exist_ok=True)
            (group / "cgroup.events").write_text(f"populated {int(is_hot)}\nfrozen 0\n")
            state, sub = ("active", "running") if is_hot else ("inactive", "dead")
            self.systemd.unit(unit, ActiveState=state, SubState=sub)

    @property
    def switch(self) -> Path:
        """The socket at which the gateway asks for a switch; by default nothing listens there."""
        return self.paths.root / "switch.sock"

    def listener(self, kind: str) -> ListenAddress:
        """A listen address of the gateway."""
        return next(listener for listener in self.gateway.listeners if listener.kind == kind)

    def client(self, kind: str = "local") -> HTTPConnection:
        """A connection to a listen address."""
        listener = self.listener(kind)
        if listener.port:
            return HTTPConnection(listener.address, listener.port, timeout=LIMIT_S)
        client = HTTPConnection("spark", timeout=LIMIT_S)
        client.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        client.sock.settimeout(LIMIT_S)
        client.sock.connect(listener.address)
        return client

    def raw(self, kind: str = "local") -> socket.socket:
        """A connection of which the test writes every byte."""
        listener = self.listener(kind)
        return socket.create_connection((listener.address, listener.port), timeout=LIMIT_S)

    def accept(self, model: str = "qwen") -> Wire:
        """Accept the next connection to an engine that does not ask for its counters."""
        while True:
            connection = self.engines[model].accept()[0]
            connection.settimeout(LIMIT_S)
            if connection.recv(12, socket.MSG_PEEK) != b"GET /metrics":
                return Wire(connection)
            connection.close()

    def nobody_asked(self, model: str = "qwen") -> None:
        """Check that no connection waits at an engine."""
        listening = self.engines[model]
        listening.settimeout(0)
        with pytest.raises(BlockingIOError):
            listening.accept()
        listening.settimeout(LIMIT_S)

    def stop(self) -> str:
        """Stop the gateway as systemd does; returns its output."""
        assert self.process is not None
        return stop_process(self.process)


#: Settings of a gateway with small bounds, and impatient keep-alives.
BOUNDED = {"limits": Limits(body_mib=1, streams=8, streams_per_key=2), "keepalive_s": 0.2}
#: More keys of models.json.
SERVED = {
    "qwen": {"aliases": ("coder",), "context": 32768},
    "mistral": {"evens": (*SHAPES, "empty_tools")},
    "safe": {"evens": SHAPES},
}


@contextlib.contextmanager
def prepare_spark(folder: Path, models: Any = SERVED, **settings: object) -> Iterator[Spark]:
    """Prepare a host without its gateway.

    `models` are more keys of models.json, `settings` are fields of `GatewayConfiguration`.
    """
    with contextlib.ExitStack() as stack:
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        engines = {
            name: stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=256))
            for name in ("qwen", "mistral", "vectors")
        }
        # A fallback has its model's port.
        engines["safe"] = engines["mistral"]
        for engine in engines.values():
            engine.settimeout(LIMIT_S)
        entries: dict[str, dict] = {
            name: {
                **{"unit": unit, "memory_gib": 60.0, "start_timeout_s": 60, "url": ""},
                **{"served_name": MODELS[name], "weights": [f"hub/{name}"]},
                "engine_url": f"http://127.0.0.1:{engines[name].getsockname()[1]}",
                **models.get(name, {}),
            }
            for name, unit in UNITS.items()
        }
        entries["mistral"]["fallback"] = "safe"
        entries["vectors"]["kind"] = "embedding"
        paths = host_root(folder / "root", entries)
        listeners = (
            ListenAddress("local", "127.0.0.1", free_port()),
            ListenAddress("open", "127.0.0.2", free_port()),
            ListenAddress("tls", str(folder / "tls.sock")),
            ListenAddress("model", "127.0.0.1", free_port(), ("mistral", "safe")),
        )
        gateway = replace(GatewayConfiguration("spark1", listeners, ("spark1.local",)), **settings)  # type: ignore[arg-type]
        spark = Spark(folder, paths, FakeSystemd(folder / "systemd", patch), gateway, engines)
        write_keys(paths)
        paths.gateway.write_text(json.dumps(asdict(spark.gateway)))
        spark.heat("qwen")
        yield spark


def stop_process(process: subprocess.Popen[str]) -> str:
    """Stop a gateway as systemd does; returns its output."""
    process.terminate()
    return process.communicate(timeout=LIMIT_S)[0]


def write_keys(paths: layout.Paths, roles: Sequence[str] = ("use", "operate")) -> None:
    """Write keys.json with a person of each role."""
    now = keys.format_utc(keys.utc_now())
    digests = {role: keys.key_digest(KEYS[role].encode()) for role in roles}
    entries = [keys.Entry(PEOPLE[role], now, digests[role], role) for role in roles]  # type: ignore[arg-type]
    paths.gateway_keys.parent.mkdir(parents=True, exist_ok=True)
    paths.gateway_keys.write_text(json.dumps(keys.entries_document(entries)))


def start(spark, notify, environment, *, handed_sockets=None, patience_s=None) -> Fork:
    """Start the program as the unit starts it.

    `handed_sockets`: listening sockets that systemd has opened; None: the program opens its own.
    `patience_s`: how long the program waits for a body, and five times as long for a head.
    """
    # Numbers far from those that the program gets the sockets as.
    high = [fcntl.fcntl(listener, fcntl.F_DUPFD, 100) for listener in handed_sockets or ()]

    def main() -> int:
        # A busy machine must not make a gateway look silent.
        peer_gateways.ANSWER_S = 180.0
        looks.EVERY_S = 0.2
        # Set the function's default: modules imported before hold the function already.
        asking.request_switch.__defaults__ = (spark.switch,)
        if patience_s is not None:
            request_body.PATIENCE_S, server.HEAD_S = patience_s, 5 * patience_s
        if handed_sockets is not None:
            # systemd does this before it starts the program of a socket.
            for place, number in enumerate(high):
                os.dup2(number, 3 + place)
            me = str(os.getpid())
            os.environ.update(LISTEN_FDS=str(len(high)), LISTEN_PID=me, SYSTEMD_EXEC_PID=me)
        usage = spark.paths.root / "usage.json"
        return errors.run_main("lockstep gateway", lambda: server.main([], spark.paths, usage))

    # The gateway must ignore a proxy of the environment: no engine is behind one.
    extra = {"NOTIFY_SOCKET": notify, "http_proxy": "http://127.0.0.1:9", **environment}
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    try:
        return Fork(main, env={**os.environ, **extra}, pass_fds=high, **pipes)
    finally:
        for number in high:
            os.close(number)


@contextlib.contextmanager
def running(folder, environment=None, *, patience_s=None, **settings) -> Iterator[Spark]:
    """A host whose gateway is ready; `patience_s` as for `start`."""
    with (
        prepare_spark(folder, **settings) as spark,
        once(spark, environment, patience_s=patience_s),
    ):
        yield spark


@contextlib.contextmanager
def once(spark: Any, environment: Any = None, **more: Any) -> Iterator[None]:
    """Run the gateway once, from its READY=1 on; the arguments are those of `start`.

    At the end the gateway's output must contain no key and no traceback.
    """
    address = tempfile.mktemp(dir=spark.folder)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify:
        notify.bind(address)
        notify.settimeout(LIMIT_S)
        with start(spark, address, environment or {}, **more) as process:
            spark.process = process
            try:
                assert notify.recv(64) == b"READY=1"
                yield
                if process.poll() is None:
                    output = stop_process(process)
                    assert not any(word in output for word in ("Traceback", *KEYS.values())), output
            finally:
                process.kill()


def hot(spark: Spark, name: str | None) -> None:
    """Make a model hot, and wait until the gateway knows; does nothing if it is hot already."""
    if spark.hot_model == name:
        return
    spark.heat(name)
    # A fallback is not listed: it answers for its model.
    expected_models = {None: [], "safe": ["mistral"]}.get(name, [name])

    def is_known() -> bool:
        data = json.loads(ask(spark, "GET", "/v1/models")[1])["data"]
        return [model["id"] for model in data if model["lockstep"]["hot"]][:1] == expected_models

    until(is_known, f"{name} is known to be hot", 60)


def ask(spark, method, path, body=None, headers=None, listener="local") -> tuple[Any, bytes]:
    """Send a request that the gateway answers itself; returns its answer and the body."""
    client = spark.client(listener)
    data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
    with closing(client):
        client.request(method, path, data, headers or {})
        answer = client.getresponse()
        return answer, answer.read()


def error(answer: bytes) -> dict[str, Any]:
    """The error in an answer's body."""
    return dict(json.loads(answer)["error"])


def send(spark, body, path=CHAT, headers=None, *, to="qwen", listener="local") -> Any:
    """Send a request; returns its client, and an engine's side of it."""
    client = spark.client(listener)
    data = body if isinstance(body, bytes) else json.dumps(body)
    client.request("POST", path, data, headers or {})
    wire = spark.accept(to)
    return client, wire, wire.next_request()


def begin(spark: Spark, path: str = CHAT, headers: Any = None) -> tuple[HTTPConnection, Wire]:
    """Begin a streamed request to qwen; returns the client and the engine's side."""
    return send(spark, {"model": "qwen", "stream": True}, path, headers)[:2]
