"""One engine, started as a unit starts it, watched by Lockstep's own programs, and ended."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.cuda.card import Card, back, back_after, seconds_until, used_gib
from lockstep.onhost.core.config import Model
from lockstep.onhost.core.errors import Problem
from lockstep.onhost.engine import exec_stop, log_phases, openai_api, readiness
from lockstep.onhost.engines import ENGINES

PORT = 8123
START_S = 480
MODEL = "measured"


@dataclass(frozen=True)
class Environment:
    """The place where an engine runs.

    Attributes:
        python: The Python of the engine's environment.
        folder: Folder for logs, caches and checkpoints.
        card: A card of this machine.
        variables: Variables of every engine, beside this process's own.
    """

    python: str
    folder: Path
    card: Card
    variables: Mapping[str, str]

    def environ(self, more: Mapping[str, str] | None = None) -> dict[str, str]:
        """The variables of one process."""
        caches = {"VLLM_CACHE_ROOT": str(self.folder / "cache"), "HF_HUB_OFFLINE": "1"}
        return {
            **os.environ,
            "VLLM_NO_USAGE_STATS": "1",
            **caches,
            **self.variables,
            **(more or {}),
        }

    def program_output(self, program: str) -> str:
        """Run a program's text with the engine's Python and return its output."""
        return subprocess.run(
            [self.python, "-c", program],
            capture_output=True,
            text=True,
            check=True,
            env=self.environ(),
        ).stdout


class Server:
    """An engine process with all its children, in a session of its own.

    Args:
        environment: The place where it runs.
        name: Name of its log.
        argv: The words of `serve_command`; the first one becomes the environment's Python.
        variables: Variables of this engine alone.
        port: The port that `argv` names.
        prefix: Words before the engine's own; they end as the engine, by `exec`.
    """

    def __init__(
        self,
        environment: Environment,
        name: str,
        argv: Sequence[str],
        variables: Mapping[str, str] | None = None,
        port: int = PORT,
        prefix: Sequence[str] = (),
    ):
        self.environment, self.name = environment, name
        self.url = f"http://127.0.0.1:{port}"
        self.log = environment.folder / f"{name}.log"
        self.before_gib = used_gib(environment.card)
        words = [*prefix, environment.python, "-m", "vllm.entrypoints.cli.main", *argv[1:]]
        self.began = time.monotonic()
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=environment.environ(variables),
                cwd=environment.folder,
                start_new_session=True,
            )
        self.model = Model(
            MODEL, "unit", self.url, MODEL, memory_gib=1.0, start_timeout_s=START_S, engine="vllm"
        )

    def wait(self) -> dict[str, Any]:
        """Wait as the unit's `ready` does; returns the seconds, or the message of its refusal."""
        messages: list[str] = []
        try:
            process = readiness.MainProcess(self.process.pid)
            readiness.ReadyWaiter(self.model, process, messages.append).wait(None)
        except Problem as problem:
            reason = log_phases.failure_lines(self.lines())
            seconds = time.monotonic() - self.began
            return {
                "failed": str(problem),
                "exit": problem.code,
                "seconds": seconds,
                "reason": reason,
            }
        return {
            "seconds": time.monotonic() - self.began,
            "used_gib": used_gib(self.environment.card) - self.before_gib,
            "phases": self.phases(),
        }

    def lines(self) -> list[str]:
        """Lines of the log; a progress bar has one line for each of its states."""
        return self.log.read_text(errors="replace").replace("\r", "\n").splitlines()

    def phases(self) -> list[str]:
        """The phases that an operator is shown, each once."""
        return list(
            dict.fromkeys(p for line in self.lines() if (p := log_phases.announced_phase(line)))
        )

    def living(self) -> dict[int, str]:
        """Processes of the engine that live: id → name, the main process included."""
        processes = {}
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError, ValueError, IndexError):
                head, _, tail = (entry / "stat").read_text().rpartition(")")
                fields = tail.split()
                if int(fields[3]) == self.process.pid and fields[0] not in ("Z", "X"):
                    processes[int(entry.name)] = head.partition("(")[2]
        return processes

    def core(self) -> int:
        """The process that computes, or leads those that do (`part`)."""
        return self.part("EngineCor")

    def part(self, word: str) -> int:
        """The process with a word in its name.

        Raises:
            LookupError: no process has it.
        """
        for pid in self.living():
            line = (
                Path(f"/proc/{pid}/cmdline").read_bytes() + Path(f"/proc/{pid}/comm").read_bytes()
            )
            if word.encode() in line and pid != self.process.pid:
                return pid
        raise LookupError(f"{self.name} has no process with {word} in its name")

    def send_signal(self, act: int, pid: int | None = None) -> dict[str, Any]:
        """Send a signal to the main process or another, and observe the ends (`_observe_end`)."""
        return self._observe_end(lambda: os.kill(pid or self.process.pid, act))

    def stop(self) -> dict[str, Any]:
        """Stop the engine as its unit's ExecStop= does, and observe the ends (`_observe_end`)."""
        within = ENGINES["vllm"].end_s
        return self._observe_end(lambda: exec_stop.end_process(self.process.pid, within))

    def _observe_end(self, act: Callable[[], object], limit_s: float = 15.0) -> dict[str, Any]:
        """Measure seconds from `act` to the end of the main process, of all, and of memory in use.

        A figure is None when it took longer than `limit_s`. The other processes are killed then, as
        systemd does (`KillMode=mixed`); `killed_s` says how long their memory took to come back.
        """
        began = time.monotonic()
        acting = threading.Thread(target=act)
        acting.start()
        ends = {
            "memory_s": self.memory_back,
            "main_s": self.has_ended,
            "all_s": lambda: not self.living(),
        }
        figures: dict[str, Any] = seconds_until(ends, began, limit_s)
        figures["left"] = sorted(self.living().values())
        kill_began = time.monotonic()
        self.kill()
        if figures["left"]:
            figures["killed_s"] = time.monotonic() - kill_began
        acting.join()
        return figures

    def has_ended(self) -> bool:
        """Tell whether the main process has ended."""
        return self.process.poll() is not None

    def memory_back(self) -> bool:
        """Tell whether the memory in use on the card is what it was before the start."""
        return back(self.environment.card, self.before_gib)

    def kill(self) -> None:
        """Kill all its processes, and wait until the memory is back."""
        for pid in self.living():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()
        back_after(self.environment.card, self.before_gib, time.monotonic())

    def health(self) -> str:
        """The answer of /health."""
        try:
            openai_api.check_health(self.model)
        except (openai_api.NotReady, openai_api.RequestRefusal) as answer:
            return str(answer)
        return "200"


@contextlib.contextmanager
def serving(
    environment: Environment,
    name: str,
    argv: Sequence[str],
    variables: Mapping[str, str] | None = None,
) -> Iterator[tuple[Server, dict[str, Any]]]:
    """An engine that has generated a token, or the message of its refusal; killed at the end."""
    server = Server(environment, name, argv, variables)
    try:
        yield server, server.wait()
    finally:
        if server.living():
            server.kill()
