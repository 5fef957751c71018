"""Start an engine, time how long it reads its weights, and end it with all its processes."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.load import checkpoint
from benchmarks.load.device import cached_bytes

PORT = "18723"
_VLLM = re.compile(r"Loading weights took ([\d.]+) seconds")
#: llama-server's own clock: minutes, seconds, milliseconds and microseconds since its start.
_CLOCK = r"^(\d+)\.(\d+)\.(\d+)\.(\d+) \S+ .*"
_LLAMA_BEGIN = re.compile(_CLOCK + "loading model")
_LLAMA_END = re.compile(_CLOCK + "(threadpool init|model loaded)")


class LoadError(Exception):
    """An engine that did not load; the message has the end of its log."""


@dataclass(frozen=True)
class Load:
    """The times of one load, and its page cache.

    Attributes:
        seconds: By the engine's own log.
        start_s: From the start of the process to the end of the load.
        most_cached: The most bytes of the checkpoint in the page cache, seen 10 times a second.
        left_cached: Bytes of it in the page cache after the load.
    """

    seconds: float
    start_s: float
    most_cached: int
    left_cached: int


class VllmTimer:
    """Find the seconds of a load in the log of vLLM."""

    def seconds(self, line: str) -> float | None:
        """Return the seconds, once a line has them."""
        found = _VLLM.search(line)
        return float(found[1]) if found else None


class LlamaTimer:
    """Find the seconds of a load in the log of llama-server."""

    def __init__(self) -> None:
        self._begin: float | None = None

    def seconds(self, line: str) -> float | None:
        """Return the seconds, once a line ends what an earlier line began."""
        if found := _LLAMA_BEGIN.search(line):
            self._begin = _clock(found)
        elif self._begin is not None and (found := _LLAMA_END.search(line)):
            return _clock(found) - self._begin
        return None


@dataclass(frozen=True)
class Engine:
    """An engine of this machine.

    Attributes:
        name: `vllm` or `llama`.
        program: Its Python, or the program `llama-server`.
        variables: Variables of its environment, beside this process's own.
        end_command: Shell command that ends what outlives its session, as a container does.
    """

    name: str
    program: str
    variables: Mapping[str, str]
    end_command: str = ""

    def write(self, folder: Path, size: int) -> None:
        """Write a checkpoint of about so many bytes for this engine."""
        model = checkpoint.llama_of(size)
        if self.name == "vllm":
            # Shards on the hub have up to 5 GB; at least four, so that one follows another.
            checkpoint.write_safetensors(folder, model, max(4, round(size / 5e9)))
        else:
            checkpoint.write_gguf(folder / "model.gguf", model)

    def weights(self, folder: Path) -> list[Path]:
        """The files of the checkpoint in the order in which the engine reads them."""
        return sorted([*folder.glob("*.safetensors"), *folder.glob("*.gguf")])

    def command(self, folder: Path, words: Sequence[str]) -> list[str]:
        """The command line that loads the checkpoint in this folder."""
        if self.name == "vllm":
            serve = [
                self.program,
                "-m",
                "vllm.entrypoints.openai.api_server",
                "--model",
                str(folder),
            ]
            limits = ["--skip-tokenizer-init", "--enforce-eager", "--max-model-len", "256"]
            return [*serve, *limits, "--port", PORT, *words]
        serve = [self.program, "-m", str(self.weights(folder)[0]), "--port", PORT]
        return [*serve, "-c", "256", "--log-timestamps", "--no-warmup", *words]

    def load(self, folder: Path, words: Sequence[str], log: Path, limit_s: float) -> Load:
        """Start the engine, wait until its weights are loaded, end it.

        Raises:
            LoadError: It ended, or took longer than the limit.
        """
        files = self.weights(folder)
        environ = {
            **os.environ,
            "VLLM_CPU_KVCACHE_SPACE": "1",
            "VLLM_NO_USAGE_STATS": "1",
            "HF_HUB_OFFLINE": "1",
            **self.variables,
        }
        timer = VllmTimer() if self.name == "vllm" else LlamaTimer()
        start, cache_sizes, end = time.monotonic(), [0], threading.Event()
        process = subprocess.Popen(
            self.command(folder, words),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=environ,
            cwd=log.parent,
            text=True,
            errors="replace",
            start_new_session=True,
        )

        _favour(process)

        def sample() -> None:
            while not end.wait(0.1):
                cache_sizes.append(sum(map(cached_bytes, files)))

        sampler = threading.Thread(target=sample)
        alarm = threading.Timer(limit_s, _kill, [process])
        sampler.start()
        alarm.start()
        assert process.stdout
        seconds = None
        try:
            with log.open("w") as text:
                for line in process.stdout:
                    text.write(line)
                    if (seconds := timer.seconds(line)) is not None:
                        break
            start_s, cache_left = time.monotonic() - start, sum(map(cached_bytes, files))
        finally:
            alarm.cancel()
            end.set()
            sampler.join()
            _kill(process)
            _wait_for_all(process)
            if self.end_command:
                subprocess.run(["sh", "-c", self.end_command], check=True)
        if seconds is None:
            raise LoadError(
                f"it ended with its weights not loaded, or took {limit_s:.0f} s:\n"
                + log.read_text()[-3000:]
            )
        return Load(seconds, start_s, max(*cache_sizes, cache_left), cache_left)


def _clock(found: re.Match[str]) -> float:
    minutes, seconds, milliseconds, microseconds = map(int, found.groups()[:4])
    return minutes * 60 + seconds + milliseconds / 1e3 + microseconds / 1e6


def _kill(process: subprocess.Popen[str]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def _favour(process: subprocess.Popen[str]) -> None:
    """Let the engine's session have the processors first: what others do is not measured."""
    with contextlib.suppress(OSError):
        Path(f"/proc/{process.pid}/autogroup").write_text("-15")


def _wait_for_all(process: subprocess.Popen[str]) -> None:
    """Wait for the engine and its children: process 1 of a namespace inherits them."""
    with contextlib.suppress(ChildProcessError):
        while True:
            os.waitpid(-process.pid, 0)
