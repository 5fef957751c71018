"""Programs that resolve for us (git, uv): run with a time limit, and ended with their children."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from lockstep.core.errors import ResolveError
from lockstep.inventory.settings import Proxy
from lockstep.lock.resolve.http import Network

_running: set[subprocess.Popen[str]] = set()
_lock = threading.Lock()
Result: TypeAlias = "subprocess.CompletedProcess[str]"


def uv(arguments: Sequence[str], network: Network, *, limit_s: float, folder: Path) -> Result:
    """Run uv, as `run` runs a program; uv asks the package index that the inventory names."""
    environment = {"UV_PYTHON_DOWNLOADS": "never"}
    if network.sources.python_index:
        # The index is in a variable, because its URL may hold a password.
        environment["UV_DEFAULT_INDEX"] = network.sources.python_index
    argv = [find_uv(), *arguments]
    return run(argv, proxy=network.proxy, environment=environment, limit_s=limit_s, folder=folder)


def find_uv() -> str:
    """Return the uv beside this interpreter, else the one on PATH; ResolveError without one."""
    beside = Path(sys.executable).with_name("uv")
    uv_path = str(beside) if beside.is_file() else shutil.which("uv")
    if uv_path is None:
        raise ResolveError(
            "uv was not found",
            where=str(beside),
            remedy="Install it into this environment: `pip install uv`.",
        )
    return uv_path


def run(
    argv: Sequence[str],
    *,
    proxy: Proxy,
    environment: Mapping[str, str],
    limit_s: float,
    folder: Path | None = None,
) -> Result:
    """Run one program to its end, with ``environment`` beside the proxy's variables and our own.

    No secret may be among ``argv``.

    Raises:
        ResolveError: the program is missing, or did not end in time.
    """
    try:
        process = subprocess.Popen(
            list(argv),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            cwd=folder,
            env={**os.environ, **proxy.environment(), **environment},
            # A group of its own: a helper such as git-remote-https must not outlive it.
            process_group=0,
        )
    except OSError as fault:
        raise ResolveError(
            f"{Path(argv[0]).name} cannot be run",
            found=fault.strerror or str(fault),
            remedy=f"Install {Path(argv[0]).name} on this machine.",
        ) from fault
    with _lock:
        _running.add(process)
    try:
        output, errors = process.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired as fault:
        raise ResolveError(
            f"{Path(argv[0]).name} did not end",
            found=f"still running after {limit_s:.0f} s",
            remedy="Check the network and proxy, or name a mirror under sources.",
        ) from fault
    finally:
        with _lock:
            _running.discard(process)
        _end(process)
    return subprocess.CompletedProcess(process.args, process.returncode, output, errors)


def end_all() -> None:
    """End every program that still runs, on the way out after Ctrl-C."""
    with _lock:
        for process in _running:
            _end(process)


def _end(process: subprocess.Popen[str]) -> None:
    """Kill the program's whole group, if it still runs."""
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
