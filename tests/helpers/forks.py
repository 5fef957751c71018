"""Runs a program many times from one process that has imported what it needs: each run is a fork.

Imports take more processor time than most runs do.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path

# gevent replaces these when pyinfra is imported: the process that is forked runs none of it.
from os import fork, waitpid  # isort: skip

#: A request, with a whole environment, is one message.
_LONGEST = 2**20


class Forks:
    """A process that runs `program`, which calls `serve`; it ends with this one."""

    def __init__(self, program: str, path: str, *options: str) -> None:
        self._asking, asked = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with asked:
            self._process = subprocess.Popen(
                [sys.executable, *options, program],
                cwd="/",
                env={**os.environ, "PYTHONPATH": path},
                stdin=asked,
                start_new_session=True,
            )

    def run(
        self,
        argv: Sequence[str],
        environment: Mapping[str, str],
        folder: Path,
        limit_s: float,
        text: str = "",
    ) -> subprocess.CompletedProcess[str]:
        """`program ARGV` in a folder, with this whole environment and `text` to read."""
        request = json.dumps([list(argv), dict(environment), str(folder)]).encode()
        new = tempfile.TemporaryFile
        with new("w+") as given, new("w+") as out, new("w+") as err:
            given.write(text)
            given.seek(0)
            self._asking.settimeout(limit_s)
            fds = [file.fileno() for file in (given, out, err)]
            socket.send_fds(self._asking, [request], fds)
            try:
                code = self._asking.recv(16)
            except TimeoutError:
                # The run with it; the next one has another.
                os.killpg(self._process.pid, signal.SIGKILL)
                forks.cache_clear()
                raise
            assert code, f"the process that runs {argv[0]} has ended"
            out.seek(0)
            err.seek(0)
            return subprocess.CompletedProcess(list(argv), int(code), out.read(), err.read())


@cache
def forks(program: str, path: str, *options: str) -> Forks:
    """The one of this process for a program, a PYTHONPATH and options of Python."""
    return Forks(program, path, *options)


def serve(prepare: Callable[[], None]) -> None:
    """Prepare, then fork for each request; returns in a fork, as the process that was asked for.

    The process that is forked ends where nobody asks any more.
    """
    asked = socket.socket(fileno=os.dup(0))
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    prepare()
    while True:
        request, fds, _, _ = socket.recv_fds(asked, _LONGEST, 3)
        if not request:
            raise SystemExit
        child = fork()
        if not child:
            break
        for fd in fds:
            os.close(fd)
        asked.send(str(os.waitstatus_to_exitcode(waitpid(child, 0)[1])).encode())
    asked.close()
    for standard, fd in enumerate(fds):
        os.dup2(fd, standard)
        os.close(fd)
    sys.argv[:], environment, folder = json.loads(request)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
