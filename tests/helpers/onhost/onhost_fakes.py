"""Stand-ins for the partners of the programs on a Spark: systemd, Docker and an engine."""

import contextlib
import hashlib
import io
import json
import math
import os
import re
import socketserver
import subprocess
import sys
import threading
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import IO, Self

import onhost_fake_systemd
from fork import Fork

from lockstep.onhost.core import clock, layout, runner
from lockstep.onhost.docker import container_processes

REPOSITORY = Path(__file__).resolve().parents[3]
HELPERS = str(Path(__file__).parent)
ONHOST = REPOSITORY / "lockstep" / "onhost"


def program_folder(folder: Path) -> str:
    """A folder of programs that Python runs like the programs' folder on a host."""
    folder.mkdir(parents=True)
    (folder / "__main__.py").symlink_to(ONHOST / "__main__.py")
    (folder / "lockstep").symlink_to(REPOSITORY / "lockstep")
    return str(folder)


def program(word: str, *arguments: str, python=(sys.executable, "-S")) -> list[str]:
    """The argument list that runs a program of this repository as on a host."""
    boot = f"import runpy, sys; sys.path.insert(0, {str(REPOSITORY)!r}); "
    boot += "runpy.run_module('lockstep.onhost', run_name='__main__')"
    return [*python, "-c", boot, word, *arguments]


def run_program(word: str, *arguments: str, environment=None) -> subprocess.CompletedProcess[str]:
    """Run a program of this repository as on a host."""
    how = {"env": environment, "cwd": "/", "input": "", "capture_output": True, "text": True}
    return subprocess.run(program(word, *arguments), **how)


def timeless(line: str) -> str:
    """A line as a quick machine prints it: without whole seconds."""
    return re.sub(r"(?<![\d.])\d+ s\b", "0 s", line)


def write_models(paths: layout.Paths, models: dict[str, dict]) -> None:
    """Write the models.json of these models, as the deploy names them."""
    named_models = {name: {"name": name, "sense": "off", **model} for name, model in models.items()}
    paths.models.write_text(json.dumps({"name": "spark1", "models": named_models}))


def host_root(root: Path, models: dict[str, dict], available_gib: float = 100.0) -> layout.Paths:
    """A folder that looks like a host's root: models.json and /proc with memory figures."""
    paths = layout.Paths(root)
    paths.models.parent.mkdir(parents=True)
    write_models(paths, models)
    (paths.proc / "sys/vm").mkdir(parents=True)
    for name in ("drop_caches", "compact_memory"):
        (paths.proc / "sys/vm" / name).write_text("")
    begin_boot(paths, "1")
    paths.docker_socket.parent.mkdir(parents=True)
    write_meminfo(paths, available_gib)
    return paths


def begin_boot(paths: layout.Paths, name: str, uptime_s: float = 60.0) -> None:
    """Make /proc that of the boot called `name`, so many seconds after it began."""
    kernel = paths.proc / "sys/kernel/random"
    kernel.mkdir(parents=True, exist_ok=True)
    (kernel / "boot_id").write_text(f"{name:0>8}-0000-0000-0000-000000000000\n")
    (paths.proc / "uptime").write_text(f"{uptime_s:.2f} 0.00\n")


def write_meminfo(paths, available_gib: float, free_gib=None, total_gib=119.6) -> None:
    """Write these figures to /proc/meminfo of a made-up host."""
    free = available_gib if free_gib is None else free_gib
    kib = {"MemTotal": total_gib, "MemFree": free, "MemAvailable": available_gib}
    lines = [f"{key}: {int(value * 1024 * 1024)} kB" for key, value in kib.items()]
    (paths.proc / "meminfo").write_text("\n".join([*lines, "HugePages_Total: 0"]) + "\n")


def put_in_container(paths: layout.Paths, container: str, *processes: int) -> None:
    """Put these processes into a container of ours, as the kernel of a made-up host shows it."""
    every = paths.groups_of_units / f"{container_processes.ALL}.slice"
    group = every / container_processes.slice_of(container) / "docker-1.scope"
    group.mkdir(parents=True, exist_ok=True)
    (group / "cgroup.procs").write_text("".join(f"{pid}\n" for pid in processes))


#: 127.0.0.1 as the kernel writes it.
LOOPBACK = "0100007F"


def let_listen(paths, pid: int, group: str, address=LOOPBACK, port=30001) -> None:
    """Make a process in a control group listen at a port, as the kernel shows it."""
    table = paths.proc / "net" / "tcp"
    table.parent.mkdir(parents=True, exist_ok=True)
    lines = table.read_text() if table.exists() else "  sl  local_address\n"
    row = f"0: {address}:{port:04X} 00000000:0000 0A 0:0 00:0 0 0 0 {pid}9\n"
    table.write_text(lines + row)
    folder = paths.proc / str(pid)
    (folder / "fd").mkdir(parents=True)
    (folder / "fd" / "3").symlink_to(f"socket:[{pid}9]")
    (folder / "cgroup").write_text(f"0::{group}\n")
    (folder / "comm").write_text("python3\n")


def let_the_kernel_kill(monkeypatch) -> list[str]:
    """Empty a made-up control group when it is killed; returns the names of killed groups."""
    killed_groups: list[str] = []

    def kill(group: Path) -> None:
        killed_groups.append(group.name)
        for file in group.rglob("cgroup.procs"):
            file.write_text("")

    monkeypatch.setattr(container_processes, "_kill_cgroup", kill)
    return killed_groups


onhost_fake_systemd.clock = clock
_start_program = runner.start


def _start(argv: Sequence[str], env=None, stderr: int = subprocess.PIPE):
    """Start a program as the runner does; the make-believe systemd needs no other program."""
    name, *words = argv
    if name not in onhost_fake_systemd.PROGRAMS:
        return _start_program(argv, env, stderr)
    if name == "systemd-run" and not onhost_fake_systemd.PROCESS.get():
        # The job that systemd-run starts outlives systemd-run.
        pipe = subprocess.PIPE
        return Fork(partial(_answer, name, words), stdout=pipe, stderr=pipe, text=True)
    return InlineProcess(argv, partial(_answer, name), onhost_fake_systemd.take_time(words))


def _answer(name: str, words: list[str], out: IO[str] | None = None, err=None) -> int:
    try:
        return onhost_fake_systemd.main(name, words, out or sys.stdout, err or sys.stderr)
    except SystemExit as error:
        print(error.code, file=err or sys.stderr)
        return 1


class InlineProcess:
    """A call to a make-believe program, with the methods of a process.

    Work that takes time goes on when the process that waits for it was killed.
    """

    def __init__(self, argv: Sequence[str], answer: Callable[..., int], takes_time=False) -> None:
        self._answer = answer
        self.args, self.returncode = list(argv), -1
        self.stdout, self.stderr = io.StringIO(), io.StringIO()
        self._end = threading.Event()
        if takes_time:
            threading.Thread(target=self._run, daemon=True).start()
        else:
            self._run()

    def _run(self) -> None:
        # Later lines are not needed here, so the journal is not followed.
        words = [word for word in self.args[1:] if word != "--follow"]
        # Whoever kills it closes what it has of its output, and the work goes on.
        streams = io.StringIO(), io.StringIO()
        self.returncode = self._answer(words, *streams)
        self.stdout, self.stderr = streams
        self.stdout.seek(0)
        self._end.set()

    def communicate(self, timeout: float = math.inf) -> tuple[str, str]:
        until = clock.now() + timeout
        while not self._end.is_set():
            if clock.now() >= until:
                raise subprocess.TimeoutExpired(self.args, timeout)
            clock.sleep(0.02)
        return self.stdout.getvalue(), self.stderr.getvalue()

    def kill(self) -> None:
        """Do nothing; there is no process."""

    terminate = kill

    def wait(self, timeout: float | None = None) -> int:
        return self.returncode

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass


class FakeSystemd:
    """`systemctl`, `systemd-run`, `journalctl` and `sudo` on PATH over a folder of unit states."""

    def __init__(self, folder: Path, monkeypatch) -> None:
        self.folder = folder
        bin_folder = folder / "bin"
        bin_folder.mkdir(parents=True)
        # Without site packages, and compiled once, the program starts in a third of the time.
        program = (
            f"#!{sys.executable} -IS\nimport sys; sys.path.append({HELPERS!r})\n"
            "import onhost_fake_systemd as program; "
            "name = sys.argv[0].rpartition('/')[2]; "
            "sys.exit(program.main(name, sys.argv[1:], sys.stdout, sys.stderr))\n"
        )
        # The real `sync` waits for the disk of this machine.
        programs = {**dict.fromkeys(onhost_fake_systemd.PROGRAMS, program), "sync": "#!/bin/sh\n"}
        for name, text in programs.items():
            (bin_folder / name).write_text(text)
            (bin_folder / name).chmod(0o755)
        monkeypatch.setenv("PATH", f"{bin_folder}:{os.environ['PATH']}")
        monkeypatch.setenv("FAKE_SYSTEMD", str(folder))
        monkeypatch.setattr(runner, "start", _start)

    def unit(self, name: str, **fields: object) -> None:
        """Describe a unit: systemd's properties, and how its next start goes.

        `start_ok` (default true) decides the start, or `starts_with` (path, text): whether that
        file holds that text. `stop_fails` is the message of a refused stop. `journal` are the lines
        that the unit logs; `late` are lines that appear only after `journalctl --sync`. `on_start`
        is a command run as part of the start, or the seconds that the start takes.
        """
        base = {"LoadState": "loaded", "ActiveState": "inactive", "SubState": "dead"}
        onhost_fake_systemd.write(self.folder, name, {**base, **fields})

    def state(self, name: str) -> dict:
        return onhost_fake_systemd.read(self.folder, name)

    @property
    def calls(self) -> list[str]:
        """Every call so far, except questions (`show`, `journalctl`)."""
        path = self.folder / "calls"
        return path.read_text().splitlines() if path.exists() else []


class _QuietHandler(BaseHTTPRequestHandler):
    def address_string(self) -> str:
        return "socket"

    def log_message(self, *_: object) -> None:
        """Write nothing."""


class _Unix(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True


class FakeDocker:
    """The few calls of the Docker Engine API that the programs make, on a Unix socket."""

    def __init__(self, path: Path) -> None:
        self.containers: dict[str, str] = {}
        self.pids: dict[str, int] = {}  # Name of a running container → its first process.
        self.images: dict[str, dict] = {}
        self.tags: dict[str, str] = {}  # Tag → the image that it was given to.
        self.volumes: dict[str, str] = {}  # Name of each volume → its folder on the host.
        self.foreign: set[str] = set()  # Containers and volumes of others.
        self.pull_events: list[dict] = []
        self.pulled_image: dict | None = None
        self.pulls: list[dict[str, str]] = []
        self.path = path
        self.takes = False  # Whether a pull really asks the registry that its image names.
        self.media_types: dict[str, str] = {}
        self.deaf_removals = 0
        self.refusals: dict[str, str] = {}
        self.silent: set[str] = set()  # Paths that get no answer.
        self.answers: dict[str, object] = {}  # Path → the whole answer, whatever else is there.
        outer = self

        class Handler(_QuietHandler):
            def do_GET(self) -> None:
                outer._get(self)

            def do_DELETE(self) -> None:
                outer._delete(self)

            def do_POST(self) -> None:
                outer._post(self)

        self._server = _Unix(str(path), Handler)
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _get(self, handler: BaseHTTPRequestHandler) -> None:
        path = urllib.parse.unquote(urllib.parse.urlsplit(handler.path).path)
        name = path.removesuffix("/json").split("/", 2)[-1]
        if path in self.silent:
            return
        if path in self.answers:
            _reply(handler, 200, self.answers[path])
        elif path == "/containers/json":
            objects = [
                {"Names": [f"/{name}"], "Image": image, "Labels": self._labels(name)}
                for name, image in self.containers.items()
            ]
            _reply(handler, 200, objects)
        elif path == "/volumes":
            objects = [
                {"Name": name, "Mountpoint": place, "Labels": self._labels(name)}
                for name, place in self.volumes.items()
            ]
            _reply(handler, 200, {"Volumes": objects or None})
        elif path.startswith("/containers/") and name in self.containers:
            config = {"Labels": self._labels(name)}
            state = {"Pid": self.pids.get(name, 0)}
            about = {"Id": name, "Name": f"/{name}", "Config": config, "State": state}
            _reply(handler, 200, about)
        elif path.startswith("/images/") and name in self.images:
            _reply(handler, 200, self.images[name])
        else:
            _reply(handler, 404, {"message": f"No such object: {name}"})

    def _labels(self, name: str) -> dict[str, str] | None:
        return None if name in self.foreign else {"lockstep.unit": name}

    def _delete(self, handler: BaseHTTPRequestHandler) -> None:
        path = urllib.parse.unquote(urllib.parse.urlsplit(handler.path).path)
        kind, name = path.lstrip("/").split("/", 1)
        if kind == "images" and name in self.refusals:
            _reply(handler, 409, {"message": self.refusals[name]})
        elif kind == "images":
            removed_image = self.tags.pop(name, None) or self.images.pop(name, None)
            _reply(handler, 404 if removed_image is None else 200, [{"Untagged": name}])
        elif self.deaf_removals:
            self.deaf_removals -= 1
            _reply(handler, 409, {"message": "removal is already in progress"})
        else:
            container = self.containers.pop(name, None)
            _reply(handler, 204 if container else 404, None)

    def _take(self, image: str, digest: str) -> None:
        host, _, name = image.partition("/")
        with urllib.request.urlopen(f"http://{host}/v2/", timeout=180) as response:
            assert response.status == 200
        base = f"http://{host}/v2/{name}"
        kind, body = _get(f"{base}/manifests", digest)
        self.media_types[digest[7:]] = kind
        manifest = json.loads(body)
        for entry in (manifest["config"], *manifest["layers"]):
            self.media_types[entry["digest"][7:]], _ = _get(f"{base}/blobs", entry["digest"])

    def _post(self, handler: BaseHTTPRequestHandler) -> None:
        query = dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(handler.path).query))
        path = urllib.parse.unquote(urllib.parse.urlsplit(handler.path).path)
        if path.endswith("/tag"):
            self.tags[f"{query['repo']}:{query['tag']}"] = path[len("/images/") : -len("/tag")]
            _reply(handler, 201, None)
            return
        self.pulls.append(query)
        if self.takes:
            self._take(query["fromImage"], query["tag"])
        if self.pulled_image is not None:
            self.images[f"{query['fromImage']}@{query['tag']}"] = self.pulled_image
        handler.send_response(200)
        handler.end_headers()
        for event in self.pull_events:
            handler.wfile.write(json.dumps(event).encode() + b"\r\n")


def _get(url: str, digest: str) -> tuple[str, bytes]:
    """Type and content of a registry's answer, checked as Docker does."""
    with urllib.request.urlopen(f"{url}/{digest}", timeout=180) as response:
        body = response.read()
    assert f"sha256:{hashlib.sha256(body).hexdigest()}" == digest
    return response.headers["Content-Type"], body


def _reply(handler: BaseHTTPRequestHandler, code: int, body: object) -> None:
    if isinstance(body, Iterator):
        handler.send_response(code)
        handler.send_header("Content-Type", "text/event-stream")
        handler.end_headers()
        # A client may hang up before the end.
        with contextlib.suppress(ConnectionError):
            for event in body:
                handler.wfile.write(f"data: {json.dumps(event)}\n\n".encode())
            handler.wfile.write(b"data: [DONE]\n\n")
        return
    text = body if isinstance(body, str) else json.dumps(body)
    data = b"" if body is None else text.encode()
    handler.send_response(code)
    handler.send_header("Content-Length", str(len(data)))
    handler.end_headers()
    handler.wfile.write(data)


class FakeEngine:
    """An OpenAI-compatible engine.

    `health` is its status code. `chat` makes its answers, a stream where it returns an iterator of
    events. `metrics` is the text of /metrics, None for an engine without metrics.
    """

    def __init__(self) -> None:
        self.health = 200
        self.metrics: str | None = None
        self.chat: Callable[[dict], tuple[int, object]] = lambda _: (200, self.answer("hello", 2))
        self.requests: list[dict] = []
        self.keys: list[str | None] = []
        self.paths: list[str] = []
        #: Number of requests for its counters.
        self.looks = 0
        outer = self

        class Handler(_QuietHandler):
            def do_GET(self) -> None:
                outer.looks += self.path == "/metrics"
                if self.path != "/metrics":
                    _reply(self, outer.health, {})
                elif outer.metrics is None:
                    _reply(self, 404, {"detail": "Not Found"})
                else:
                    _reply(self, 200, outer.metrics)

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                outer.requests.append(body)
                outer.paths.append(self.path)
                outer.keys.append(self.headers.get("Authorization"))
                _reply(self, *outer.chat(body))

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    @staticmethod
    def answer(content: str | None, tokens: int, **message: object) -> dict:
        return {
            "choices": [{"message": {"role": "assistant", "content": content, **message}}],
            "usage": {"completion_tokens": tokens},
        }

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
