"""Runs pyinfra many times from one process that has imported it: each run is a fork of that one.

Importing pyinfra and the deploy takes more processor time than a deploy to Sparks in memory.

usage: forked_pyinfra    in a repository; asked for runs at standard input, by `Forks`
"""

from __future__ import annotations

import importlib
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from secrets import token_hex

# gevent replaces these when pyinfra is imported: the process that is forked runs none of it.
from os import fork, waitpid  # isort: skip

#: A request, with a whole environment, is one message.
_LONGEST = 2**20


class Forks:
    """A process in `folder` that runs `pyinfra`; it ends with this one."""

    def __init__(self, folder: Path, path: str) -> None:
        self._asking, asked = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with asked:
            self._process = subprocess.Popen(
                [sys.executable, __file__],
                cwd=folder,
                env={**os.environ, "PYTHONPATH": path},
                stdin=asked,
                start_new_session=True,
            )

    def run(
        self, argv: Sequence[str], environment: Mapping[str, str], limit_s: float
    ) -> subprocess.CompletedProcess[str]:
        """`pyinfra ARGV` with this whole environment, to its end."""
        request = json.dumps([list(argv), dict(environment)]).encode()
        with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
            self._asking.settimeout(limit_s)
            socket.send_fds(self._asking, [request], [out.fileno(), err.fileno()])
            try:
                code = self._asking.recv(16)
            except TimeoutError:
                # The run with it; the next one has another.
                os.killpg(self._process.pid, signal.SIGKILL)
                forks.cache_clear()
                raise
            assert code, "the process that runs pyinfra has ended"
            out.seek(0)
            err.seek(0)
            return subprocess.CompletedProcess(list(argv), int(code), out.read(), err.read())


@cache
def forks(folder: Path, path: str) -> Forks:
    """The one of this process for a repository and a PYTHONPATH."""
    return Forks(folder, path)


#: What modules drew by chance as they were imported → the size asked for.
_drawn: dict[str, int] = {}


def _draw(size: int) -> str:
    value = token_hex(size)
    _drawn[value] = size
    return value


def _draw_anew() -> None:
    """Give this run names and keys of its own, as each process that imports the deploy has.

    Whoever has imported one from another module gets the same.
    """
    anew = {value: token_hex(size) for value, size in _drawn.items()}
    for module in list(sys.modules.values()):
        names = vars(module)
        for name, value in list(names.items()):
            if type(value) is str and value in anew:
                names[name] = anew[value]


def _import() -> None:
    """Import all that a deploy does, in pyinfra's order."""
    secrets.token_hex = _draw
    import pyinfra_cli.main

    pyinfra_cli.main.pyinfra.is_cli = True
    importlib.import_module("fake_spark")
    importlib.import_module("lockstep.tasks.stack")
    secrets.token_hex = token_hex


def _serve(asked: socket.socket) -> None:
    """Fork for each request; returns in a fork, ready to run, and ends where nobody asks."""
    while True:
        request, fds, _, _ = socket.recv_fds(asked, _LONGEST, 2)
        if not request:
            raise SystemExit
        child = fork()
        if not child:
            break
        for fd in fds:
            os.close(fd)
        asked.send(str(os.waitstatus_to_exitcode(waitpid(child, 0)[1])).encode())
    asked.close()
    for fd, standard in zip(fds, (1, 2), strict=True):
        os.dup2(fd, standard)
        os.close(fd)
    argv, environment = json.loads(request)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = ["pyinfra", *argv]
    _draw_anew()


def _main() -> None:
    asked = socket.socket(fileno=os.dup(0))
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    _import()
    _serve(asked)

    from pyinfra_cli.main import main

    sys.exit(main())


if __name__ == "__main__":
    _main()
