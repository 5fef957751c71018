"""An OCI registry: Debian's docker-registry on this lab's own copy of the images."""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from lab.core.errors import LabError
from lab.core.service import advance, state_folder
from lab.http.access_log import AccessLog, log_path

_READY_SECONDS = 30.0
_PR_SET_PDEATHSIG = 1
_LINE = re.compile(
    r'^(?P<client>\S+) \S+ \S+ \[[^]]*\] "(?P<method>[A-Z]+) (?P<path>\S+)[^"]*" '
    r"(?P<status>\d{3}) (?P<sent>\d+)"
)

CONFIGURATION = """\
version: 0.1
log:
  level: warn
  accesslog:
    disabled: false
storage:
  filesystem:
    rootdirectory: {root}
    maxthreads: 25
  delete:
    enabled: true
http:
  addr: {address}
  secret: lockstep-lab
"""


def start(root: Path, configuration: Path, address: str) -> subprocess.Popen[str]:
    """Start a registry on the storage folder; it ends with this process."""
    configuration.write_text(CONFIGURATION.format(root=root, address=address))
    try:
        return subprocess.Popen(
            ["docker-registry", "serve", str(configuration)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            preexec_fn=_end_with_parent,
            env={key: value for key, value in os.environ.items() if "REGISTRY" not in key},
        )
    except FileNotFoundError:
        raise LabError(
            "docker-registry is not installed", "Install it: apt-get install docker-registry"
        ) from None


def _end_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


@contextlib.contextmanager
def running_registry(root: Path, scratch: Path) -> Iterator[str]:
    """A registry on a free port of this machine, for as long as it takes to fill it."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    with start(root, scratch / "registry.yml", address) as process, _drain_output(process):
        try:
            _wait_until_ready(address, process)
            yield address
        finally:
            process.terminate()


@contextlib.contextmanager
def _drain_output(process: subprocess.Popen[str]) -> Iterator[None]:
    assert process.stdout
    threading.Thread(target=process.stdout.read, daemon=True).start()
    yield


def _wait_until_ready(address: str, process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + _READY_SECONDS
    while time.monotonic() < deadline:
        if process.poll() is not None:
            break
        with (
            contextlib.suppress(OSError),
            urllib.request.urlopen(f"http://{address}/v2/", timeout=2),
        ):
            return
        time.sleep(0.05)
    raise LabError(
        f"docker-registry did not answer on {address} within {_READY_SECONDS:.0f} s",
        "Run `docker-registry --version` and see whether it works on this machine.",
    )


def merge(content: Path, copy: Path) -> None:
    """Bring images and tags into the copy, whose older images stay available by digest.

    Blobs are linked, for they never change; the small files of tags are copied.
    """
    shutil.copytree(content, copy, copy_function=_link_blobs, dirs_exist_ok=True)


def _link_blobs(source: str, target: str) -> None:
    if Path(source).name != "data":
        shutil.copy2(source, target)
    elif not Path(target).exists():
        os.link(source, target)


def parse_line(line: str) -> tuple[str, str, str, int, int] | None:
    """Client, method, path, status and bytes sent of one line of the registry's access log."""
    match = _LINE.match(line)
    if match is None:
        return None
    status, body_bytes = int(match["status"]), int(match["sent"])
    return match["client"], match["method"], match["path"], status, body_bytes


def serve(content: Path, state: Path, address: str, port: int) -> None:
    """Serve this lab's copy of the images until the process is ended."""
    root = advance(state, "registry", content, merge)
    log = AccessLog(log_path(state, "registry"))
    configuration = state_folder(state, "registry") / "registry.yml"
    with start(root, configuration, f"{address}:{port}") as process:
        signal.signal(signal.SIGTERM, lambda number, frame: process.terminate())
        assert process.stdout
        for line in process.stdout:
            request = parse_line(line)
            if request:
                log.add(*request)
            else:
                print(line, end="", flush=True)
    sys.exit(abs(process.returncode))
