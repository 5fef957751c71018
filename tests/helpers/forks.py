"""Runs a program many times from one process that has imported its modules: each run is a fork.

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

# An import of pyinfra lets gevent replace these; the forking process must use the originals.
from os import fork, waitpid  # isort: skip
from signal import signal as handle  # isort: skip
from socket import recv_fds, socket as Socket  # isort: skip

#: A request, with a whole environment, is one message.
_LONGEST = 2**20


class Run:
    """A running program, in a session of its own."""

    def __init__(self, argv: Sequence[str], answers: socket.socket) -> None:
        self._argv, self._answers = list(argv), answers
        process_id = answers.recv(16)
        assert process_id, f"the process that runs {argv[0]} has ended"
        #: The run's process, which is no child of this one.
        self.pid = int(process_id)
        self._code: int | None = None

    def poll(self) -> int | None:
        """The program's exit code, or minus the signal that ended it; None while it runs."""
        try:
            return self.wait(0)
        except subprocess.TimeoutExpired:
            return None

    def wait(self, limit_s: float | None = None) -> int:
        """Wait for the program's end; returns its exit code. Raises `subprocess.TimeoutExpired`."""
        if self._code is None:
            if not select.select([self._answers], [], [], limit_s)[0]:
                raise subprocess.TimeoutExpired(self._argv, limit_s or 0)
            answer = self._answers.recv(16)
            assert answer, f"nobody waits for {self._argv[0]} any more"
            self._code = int(answer)
            self._answers.close()
        return self._code

    def kill(self) -> None:
        """Kill the program, if it runs; also from another thread than the waiting one."""
        if self._code is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)


class Forks:
    """A process that runs `program`, which calls `serve`; it ends with this process.

    `program` gets a descriptor for each of `other_forks`, and may request runs there (`asked_by`).
    """

    def __init__(
        self, program: str, path: str, *options: str, other_forks: Sequence[Forks] = ()
    ) -> None:
        self._asking, request_socket = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        descriptors = [other_fork._asking.fileno() for other_fork in other_forks]
        with request_socket:
            self._process = subprocess.Popen(
                [sys.executable, *options, program, *map(str, descriptors)],
                pass_fds=descriptors,
                cwd="/",
                env={**os.environ, "PYTHONPATH": path},
                stdin=request_socket,
                start_new_session=True,
            )

    @classmethod
    def asked_by(cls, descriptor: int) -> Self:
        """A handle for the forks of another process, which gave this descriptor."""
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
        """Start `program ARGV` in a folder, with exactly this environment and three descriptors."""
        answers, remote_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        request = json.dumps([list(argv), dict(environment), str(folder)]).encode()
        with remote_end:
            socket.send_fds(self._asking, [request], [*standard, remote_end.fileno()])
        return Run(argv, answers)

    def run(
        self,
        argv: Sequence[str],
        environment: Mapping[str, str],
        folder: Path,
        limit_s: float,
        text: str = "",
    ) -> subprocess.CompletedProcess[str]:
        """Call `start` with `text` as input, and wait for the end; returns code and output."""
        new = tempfile.TemporaryFile
        with new("w+") as stdin_file, new("w+") as out, new("w+") as err:
            stdin_file.write(text)
            stdin_file.seek(0)
            run = self.start(
                argv, environment, folder, [stream.fileno() for stream in (stdin_file, out, err)]
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
def forks(program: str, path: str, *options: str, other_forks: tuple[Forks, ...] = ()) -> Forks:
    """The forks of this process for a program, a PYTHONPATH and options of Python."""
    return Forks(program, path, *options, other_forks=other_forks)


def serve(prepare: Callable[[], None]) -> None:
    """Prepare, then fork for each request; returns in a fork, as the requested process.

    The forking process ends when no process can send it requests any more.
    """
    request_socket = Socket(fileno=os.dup(0))
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    prepare()
    # Processes that wait for the runs are reaped by the kernel.
    handle(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        request, fds, _, _ = recv_fds(request_socket, _LONGEST, 4)
        if not request:
            raise SystemExit
        if not fork():
            break
        for fd in fds:
            os.close(fd)
    handle(signal.SIGCHLD, signal.SIG_DFL)
    request_socket.close()
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
