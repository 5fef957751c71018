"""Runs a program many times from one process that has imported what it needs: each run is a fork.

Imports take more processor time than most runs do.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Self

# gevent replaces these when pyinfra is imported: the process that is forked runs none of it.
from os import fork, waitpid  # isort: skip
from signal import signal as handle  # isort: skip
from socket import recv_fds, socket as Socket  # isort: skip

#: A request, with a whole environment, is one message.
_LONGEST = 2**20


class Run:
    """A program that runs, in a session of its own."""

    def __init__(self, argv: Sequence[str], answers: socket.socket) -> None:
        self._argv, self._answers = list(argv), answers
        started = answers.recv(16)
        assert started, f"the process that runs {argv[0]} has ended"
        #: Its process, which is no child of this one.
        self.pid = int(started)
        self._code: int | None = None

    def poll(self) -> int | None:
        """Its exit code, minus the signal that ended it; None while it runs."""
        try:
            return self.wait(0)
        except subprocess.TimeoutExpired:
            return None

    def wait(self, limit_s: float | None = None) -> int:
        """Its exit code, when it has ended; raises `subprocess.TimeoutExpired`."""
        if self._code is None:
            if not select.select([self._answers], [], [], limit_s)[0]:
                raise subprocess.TimeoutExpired(self._argv, limit_s or 0)
            answer = self._answers.recv(16)
            assert answer, f"nobody waits for {self._argv[0]} any more"
            self._code = int(answer)
            self._answers.close()
        return self._code

    def kill(self) -> None:
        """End it without warning, if it runs; also from another thread than the one that waits."""
        if self._code is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)


class Forks:
    """A process that runs `program`, which calls `serve`; it ends with this one.

    `program` gets a descriptor for each of `others`, whom it may ask, too (`asked_by`).
    """

    def __init__(
        self, program: str, path: str, *options: str, others: Sequence[Forks] = ()
    ) -> None:
        self._asking, asked = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        given = [other._asking.fileno() for other in others]
        with asked:
            self._process = subprocess.Popen(
                [sys.executable, *options, program, *map(str, given)],
                pass_fds=given,
                cwd="/",
                env={**os.environ, "PYTHONPATH": path},
                stdin=asked,
                start_new_session=True,
            )

    @classmethod
    def asked_by(cls, descriptor: int) -> Self:
        """One of another process, which gave this descriptor."""
        forks = cls.__new__(cls)
        forks._asking = socket.socket(fileno=descriptor)
        return forks

    def start(
        self,
        argv: Sequence[str],
        environment: Mapping[str, str],
        folder: Path,
        standard: Sequence[int],
    ) -> Run:
        """`program ARGV` in a folder, with this whole environment and three descriptors."""
        answers, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        request = json.dumps([list(argv), dict(environment), str(folder)]).encode()
        with other:
            socket.send_fds(self._asking, [request], [*standard, other.fileno()])
        return Run(argv, answers)

    def run(
        self,
        argv: Sequence[str],
        environment: Mapping[str, str],
        folder: Path,
        limit_s: float,
        text: str = "",
    ) -> subprocess.CompletedProcess[str]:
        """`start` with `text` to read, its end and what it said."""
        new = tempfile.TemporaryFile
        with new("w+") as given, new("w+") as out, new("w+") as err:
            given.write(text)
            given.seek(0)
            run = self.start(
                argv, environment, folder, [each.fileno() for each in (given, out, err)]
            )
            try:
                code = run.wait(limit_s)
            except subprocess.TimeoutExpired:
                os.killpg(run.pid, signal.SIGKILL)
                raise
            out.seek(0)
            err.seek(0)
            return subprocess.CompletedProcess(list(argv), code, out.read(), err.read())


@cache
def forks(program: str, path: str, *options: str, others: tuple[Forks, ...] = ()) -> Forks:
    """The one of this process for a program, a PYTHONPATH and options of Python."""
    return Forks(program, path, *options, others=others)


def serve(prepare: Callable[[], None]) -> None:
    """Prepare, then fork for each request; returns in a fork, as the process that was asked for.

    The process that is forked ends where nobody asks any more.
    """
    asked = Socket(fileno=os.dup(0))
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    prepare()
    # Nobody waits for those who wait for the runs.
    handle(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        request, fds, _, _ = recv_fds(asked, _LONGEST, 4)
        if not request:
            raise SystemExit
        if not fork():
            break
        for fd in fds:
            os.close(fd)
    handle(signal.SIGCHLD, signal.SIG_DFL)
    asked.close()
    answers = Socket(fileno=fds.pop())
    if run := fork():
        for fd in fds:
            os.close(fd)
        answers.send(str(run).encode())
        answers.send(str(os.waitstatus_to_exitcode(waitpid(run, 0)[1])).encode())
        os._exit(0)
    answers.close()
    os.setsid()
    for standard, fd in enumerate(fds):
        os.dup2(fd, standard)
        os.close(fd)
    sys.argv[:], environment, folder = json.loads(request)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
