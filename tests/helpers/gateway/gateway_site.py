"""Two gateways that are each other's peers, stand-in engines, and a switch, as processes here.

What systemd says is a file, and the switch is this module's own: the ordinary one is proved on
hosts (tests/proofs/gateway_soaking.py).
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import socket
import socketserver
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import gateway_process
from gateway_proof import Proof, Thrown
from lab_servers import CONTENT, free_port, until
from onhost_fakes import REPOSITORY

from lockstep.onhost.core import errors
from lockstep.onhost.gateway import keys
from lockstep.onhost.gateway.configuration import PEER_KEY_CREDENTIAL, Door, Peer

#: Name in a request → what the engines behind it call themselves.
ENGINES = {
    "qwen": {"vllm Qwen/Q"},
    "coder": {"vllm Qwen/Q"},
    "mistral": {"sglang mistralai/M"},
    "vectors": {"vllm E/V"},
    "auto": {"vllm Qwen/Q", "sglang mistralai/M", "vllm E/V"},
}
_STOP_S = 3.0
_SGLANG = ("mistral", "safe")
_ENGINE = (
    "import sys; from standin import engine; sys.exit(engine.serve(sys.argv[1], '9.9', "
    "sys.argv, sys.argv[2:]))"
)
_GATEWAY = (
    "import functools, sys; sys.path.insert(0, {repository!r}); from pathlib import Path; "
    "from lockstep.onhost.core import errors, layout; from lockstep.onhost.gateway import ask; "
    "ask.switch = functools.partial(ask.switch, path=Path({root!r}) / 'switch.sock'); "
    "from lockstep.onhost.gateway import server; "
    "sys.exit(errors.ended('lockstep gateway', lambda: server.main("
    "[], layout.Paths(Path({root!r})), Path({root!r}) / 'usage.json')))"
)


class Site:
    """One host: its gateway, the engine that is hot, and a switch that asks nobody."""

    def __init__(self, spark: gateway_process.Spark, name: str, folder: Path) -> None:
        self.spark, self.name = spark, name
        self._folder, self._root = folder, spark.paths.root
        self._systemd = {
            "PATH": f"{spark.systemd.folder / 'bin'}:{os.environ['PATH']}",
            "FAKE_SYSTEMD": str(spark.systemd.folder),
        }
        self._ports = {each: held.getsockname()[1] for each, held in spark.engines.items()}
        for held in spark.engines.values():
            held.close()
        self.engine: subprocess.Popen[bytes] | None = None
        self.gateway: subprocess.Popen[bytes] | None = None
        self._changing = threading.Lock()
        #: Why the next switches fail; "" where they do not.
        self.refuses = ""
        #: How often a target was made hot.
        self.switches = 0
        spark.heat(None)

    def start_gateway(self) -> None:
        """The program, anew; it may take a moment until it answers."""
        code = _GATEWAY.format(repository=str(REPOSITORY), root=str(self._root))
        credentials = {"CREDENTIALS_DIRECTORY": str(self._folder / "credentials")}
        log = (self._folder / f"{self.name}.log").open("ab")
        self.gateway = subprocess.Popen(
            [sys.executable, "-c", code],
            env={**os.environ, **self._systemd, **credentials},
            stdout=log,
            stderr=log,
        )
        log.close()

    def answers(self) -> bool:
        """Whether the gateway takes connections."""
        door = self.spark.door("open")
        with contextlib.suppress(OSError), socket.create_connection((door.address, door.port), 5):
            return True
        return False

    def engine_url(self, target: str) -> str:
        """Where a target's engine itself listens."""
        return f"http://127.0.0.1:{self._ports[target]}"

    def switch(self, target: str) -> tuple[int, str]:
        """End what is hot, and start another; exit code and last words, as switch.sh's."""
        with self._changing:
            if self.refuses:
                return errors.EXIT_FAILED, self.refuses
            self.kill_engine(signal.SIGTERM)
            if target == "none":
                return errors.EXIT_DONE, "no model is hot now"
            engine = "sglang" if target in _SGLANG else "vllm"
            model = gateway_process.MODELS[target]
            named = ["--model-path", model] if engine == "sglang" else [model]
            knobs = {"NEED_MODEL": 0, "LOAD_SECONDS": 0.05, "STOP_SECONDS": 0.05}
            known = {f"STANDIN_{name}": str(value) for name, value in knobs.items()}
            port = self._ports[target]
            place = ["--host", "127.0.0.1", "--port", str(port)]
            self.engine = subprocess.Popen(
                [sys.executable, "-c", _ENGINE, engine, *named, *place],
                env={
                    **{"PATH": os.environ["PATH"], "PYTHONPATH": str(CONTENT)},
                    **{"HF_HOME": str(self._folder), "STANDIN_KNOBS_FOLDER": str(self._folder)},
                    **{"STANDIN_RECORD": str(self._folder / f"{self.name}.argv"), **known},
                },
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
            until(lambda: _healthy(port), f"{target} is ready", 60)
            self._heat(target)
            self.switches += 1
            return errors.EXIT_DONE, f"{target} is hot"

    def kill_engine(self, how: signal.Signals) -> None:
        """End the engine that is hot; systemd has seen it."""
        engine, self.engine = self.engine, None
        if engine:
            # A unit that is being stopped is no longer active.
            if how == signal.SIGTERM:
                self._heat(None)
            os.killpg(engine.pid, how)
            try:
                engine.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                # It waits for a client whom it will not answer; systemd's patience ends too.
                os.killpg(engine.pid, signal.SIGKILL)
                engine.wait()
        self._heat(None)

    def _heat(self, target: str | None) -> None:
        # A unit that is started anew has a new control group.
        for name, unit in gateway_process.UNITS.items():
            group = self.spark.paths.groups_of_units / unit
            old = group.with_suffix(f".{time.monotonic_ns()}")
            if name == target:
                group.rename(old)
        self.spark.heat(target)


def _healthy(port: int) -> bool:
    ask = b"GET /health HTTP/1.0\r\n\r\n"
    with (
        contextlib.suppress(OSError),
        socket.create_connection(("127.0.0.1", port), 5) as connection,
    ):
        connection.sendall(ask)
        return b" 200 " in connection.recv(64)
    return False


class _Switch(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        site: Site = self.server.site  # type: ignore[attr-defined]
        asked = json.loads(self.rfile.readline())
        with contextlib.suppress(OSError):
            self._say(phase="check", line=f"checking {asked['target']}")
        code, said = site.switch(asked["target"])
        with contextlib.suppress(OSError):
            self._say(code=code, said=said)

    def _say(self, **message: Any) -> None:
        self.wfile.write(json.dumps(message).encode() + b"\n")


class _Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True


@contextlib.contextmanager
def two(folder: Path, **settings: object) -> Iterator[list[Site]]:
    """Both hosts with their gateways up and no model hot."""
    with contextlib.ExitStack() as stack:
        sites = []
        for name in ("spark1", "spark2"):
            spark = stack.enter_context(gateway_process.prepared(folder / name, **settings))
            sites.append(Site(spark, name, folder))
        doors = {
            site.name: Door("peers", f"127.0.0.{place}", free_port())
            for place, site in enumerate(sites, start=3)
        }
        credentials = folder / "credentials"
        credentials.mkdir()
        (credentials / PEER_KEY_CREDENTIAL).write_text(keys.new_key())
        for site in sites:
            peers = tuple(
                Peer(name, door.address, door.port)
                for name, door in doors.items()
                if name != site.name
            )
            gateway = replace(
                site.spark.gateway,
                host=site.name,
                doors=(*site.spark.gateway.doors, doors[site.name]),
                peers=peers,
            )
            site.spark.gateway = gateway
            site.spark.paths.gateway.write_text(json.dumps(asdict(gateway)))
            server = _Server(str(site.spark.paths.root / "switch.sock"), _Switch)
            server.site = site  # type: ignore[attr-defined]
            threading.Thread(target=server.serve_forever, daemon=True).start()
            stack.callback(server.shutdown)
            stack.callback(site.kill_engine, signal.SIGKILL)
            site.start_gateway()
            stack.callback(lambda site=site: site.gateway.kill())
        for site in sites:
            until(site.answers, f"the gateway of {site.name} answers", 60)
        yield sites


#: Kind of fault → whether it may cut an answer off.
KINDS = {
    "engine killed": True,
    "gateway killed": True,
    "twin silent": True,
    "switch refused": False,
    "switch by an operator": True,
    "client hangs up": False,
}


def thrower(
    sites: list[Site], proof: Proof, seed: int, count: int
) -> Callable[[int, Callable[[str, str, bool], Thrown]], None]:
    """Faults at these hosts, for `Proof.run`."""
    kinds = list(KINDS) * -(-count // len(KINDS))
    random.Random(f"{seed} faults").shuffle(kinds)

    def throw(number: int, begin: Callable[[str, str, bool], Thrown]) -> None:
        chance = random.Random(f"{seed} fault {number}")
        kind, site = kinds[number], chance.choice(sites)
        begin(kind, site.name, KINDS[kind])
        assert site.gateway is not None
        if kind == "engine killed":
            site.kill_engine(signal.SIGKILL)
        elif kind == "gateway killed":
            site.gateway.kill()
            site.gateway.wait()
            site.start_gateway()
            until(site.answers, f"the gateway of {site.name} is back", 60)
        elif kind == "twin silent":
            site.gateway.send_signal(signal.SIGSTOP)
            # How long it lasts is a part of the fault.
            time.sleep(chance.uniform(0.5, 3))
            site.gateway.send_signal(signal.SIGCONT)
        elif kind == "switch refused":
            site.refuses = "MemAvailable is 20 GiB, and 61 GiB are needed: nothing was stopped"
            time.sleep(chance.uniform(0.5, 2))
            site.refuses = ""
        elif kind == "switch by an operator":
            site.switch(chance.choice(("qwen", "mistral", "none")))
        else:
            proof.hang_up.release()

    return throw
