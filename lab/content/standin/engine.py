"""The life of a stand-in engine: load, serve, die; one server process and one engine process."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import threading
import time
from dataclasses import dataclass

from . import memory, record, weights
from .arguments import Serving, UsageError, parse
from .knobs import Knobs, initial_knobs
from .log import Log
from .server import EngineServer

_PR_SET_NAME = 15
#: vLLM ends with success when its engine process was killed (ran on 0.32.0); SGLang does not.
EXIT_WHEN_ENGINE_DIES = {"vllm": 0, "sglang": 1}
PROCESS_NAME = {"vllm": b"VLLM::EngineCore", "sglang": b"sglang::scheduler"}


class CannotStart(Exception):
    """The engine ends before it serves; the text is its last line."""


def serve(engine: str, version: str, argv: list[str], words: list[str]) -> int:
    """Run until told to stop; the exit code is that of the process.

    ``argv`` is the whole command line, which is recorded; ``words`` are those after ``serve``.
    """
    try:
        serving = parse(engine, words, version)
        knobs = initial_knobs(engine)
    except (UsageError, ValueError) as error:
        print(error, file=sys.stderr)
        return 2
    started_with = record.started_with(argv)
    record.write(started_with)
    log = Log(engine, version)
    try:
        available = knobs.available_gib or memory.available_gib() or memory.TOTAL_GIB
        usable_gib = available - memory.START_GIB
        count = _check(serving, knobs, usable_gib)
        server = EngineServer(serving, knobs, version, started_with)
    except (CannotStart, weights.MissingWeights, OSError) as error:
        log.line("ERROR", str(error))
        return 1
    return _Life(serving, knobs, server, log, count, usable_gib).run()


def _check(serving: Serving, knobs: Knobs, usable_gib: float) -> int:
    count = 2
    if knobs.need_model:
        count = weights.require(
            serving.engine,
            serving.model,
            serving.revision,
            serving.draft,
            old_mistral_format=knobs.old_mistral_format,
        )
    refusal = memory.refused_at_start(serving, usable_gib)
    if knobs.need_memory and refusal:
        raise CannotStart(refusal)
    return count


@dataclass
class _Life:
    serving: Serving
    knobs: Knobs
    server: EngineServer
    log: Log
    shards: int
    usable_gib: float
    last_holding: str = ""
    share: float = 0.0
    is_stuck: bool = False

    def run(self) -> int:
        self.began = time.monotonic()
        self.stopping = threading.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._asked_to_stop)
        self.child = self._start_engine_process()
        self.server.alive = lambda: not self.dead.is_set()
        self.dead = threading.Event()
        threading.Thread(target=self._watch_child, daemon=True).start()
        early = self.serving.engine == "sglang"
        if early:
            self._open_port()
        code = self._load()
        if code is None:
            self.server.ready.set()
            if not early:
                self._open_port()
            self.log.ready(self.serving)
            code = self._until_the_end()
        if self.server.ready.is_set() and self.stopping.is_set():
            self._end_with_requests_open()
        self._end_child()
        return code

    def _open_port(self) -> None:
        self.server.server_activate()
        threading.Thread(target=self.server.serve_forever, args=(0.1,), daemon=True).start()

    def _asked_to_stop(self, number: int, frame: object) -> None:
        if self.knobs.ignore_sigterm and number == signal.SIGTERM:
            self.log.line("WARNING", "SIGTERM ignored: the knob says so")
            return
        self.stopping.set()

    def _end_with_requests_open(self) -> None:
        """Stop serving while requests are open, as SGLang 0.5.23 and vLLM 0.32 do.

        SGLang first answers the open requests. vLLM never answers them, and waits for its clients.
        """
        self.server.shutdown()
        self.server.server_close()
        if self.serving.engine == "vllm":
            self.server.alive = lambda: True
            self.knobs.is_wedged = True
            self._end_child()
        if self.server.counters.running:
            self.log.line("INFO", "Waiting for connections to close. (CTRL+C to force quit)")
        while self.server.counters.running:
            time.sleep(0.05)

    def _load(self) -> int | None:
        """Load the weights; an exit code means that loading failed."""
        self.log.loading(self.serving)
        if self.knobs.freezes_host:
            memory.freeze_host()
        loaded_shards = 0
        while True:
            elapsed_s = time.monotonic() - self.began
            share = min(1.0, elapsed_s / max(self.knobs.load_seconds, 0.001))
            if self.knobs.never_ready:
                share = min(share, 0.5)
            self.share = max(self.share, share)
            if share >= 1.0 and not self._finds_blocks():
                share = 0.9
            while loaded_shards < int(share * self.shards):
                loaded_shards += 1
                self.log.shard(loaded_shards, self.shards, elapsed_s)
            if self.knobs.crash_while_loading and share >= 0.5:
                self.log.line("ERROR", "the engine crashed while loading: the knob says so")
                return self.knobs.exit_code
            code = self._exit_code()
            if code is None and share >= 1.0:
                return (
                    self._fail_capture() if self.knobs.unsupported_ptx else self._finish_loading()
                )
            if code is not None:
                return code
            self.stopping.wait(0.05)

    def _finds_blocks(self) -> bool:
        """Tell whether the driver has blocks left.

        Without them a real engine hangs, and no error ends it.
        """
        free = memory.free_gib()
        if free >= self.knobs.blocks_gib:
            return True
        if not self.is_stuck:
            self.is_stuck = True
            self.log.line("INFO", f"NVRM: NV_ERR_NO_MEMORY with {free:.1f} GiB free")
        return False

    def _finish_loading(self) -> int | None:
        refusal = memory.refused_when_loaded(self.serving, self.usable_gib)
        if refusal is None or not self.knobs.need_memory:
            return None
        self.log.line("ERROR", f"Scheduler hit an exception: {refusal}")
        return 1

    def _fail_capture(self) -> int:
        """Fail as vLLM does with CUDA 13.3 on driver 580.159.03 (vllm-project/vllm#47397)."""
        self.log.line("INFO", "Capturing CUDA graphs (decode, FULL): 0%|")
        self.log.line(
            "ERROR",
            "CUDA error: the provided PTX was compiled with an unsupported toolchain. "
            "(cudaErrorUnsupportedPtxVersion)",
        )
        return 1

    def _until_the_end(self) -> int:
        while (code := self._exit_code()) is None:
            self.stopping.wait(0.05)
        return code

    def _exit_code(self) -> int | None:
        """The exit code when there is a reason to end, else None."""
        self._hold_memory()
        elapsed_s = time.monotonic() - self.began
        if self.knobs.crash_after and elapsed_s >= self.knobs.crash_after:
            self.log.line("ERROR", f"the engine crashed after {elapsed_s:.1f} s: the knob says so")
            return self.knobs.exit_code
        if self.dead.is_set():
            self.log.line("ERROR", "EngineCore died unexpectedly, shutting down")
            time.sleep(0.3)
            return EXIT_WHEN_ENGINE_DIES[self.serving.engine]
        if self.stopping.is_set():
            self.log.line("INFO", "Shutting down")
            time.sleep(self.knobs.stop_seconds)
            return 0
        return None

    def _start_engine_process(self) -> int:
        """Fork the process that holds the memory; it ends when this one does."""
        reading, self.writing = os.pipe()
        child = os.fork()
        if child:
            os.close(reading)
            return child
        os.close(self.writing)
        self.server.server_close()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)
        ctypes.CDLL(None).prctl(_PR_SET_NAME, PROCESS_NAME[self.serving.engine][:15], 0, 0, 0)
        holding = memory.Holding()
        with os.fdopen(reading) as changes:
            for line in changes:
                holding.resize(*map(float, line.split()))
        os._exit(0)

    def _hold_memory(self) -> None:
        """Tell the engine process how much to hold, when that has changed."""
        held_gib = self.knobs.memory_gib or memory.held_gib(self.serving, self.usable_gib)
        # A Spark's disk delivers in steps, too; at each step the lab reads how much is held.
        read = round(self.knobs.streamed_gib * self.share, 1)
        holding = f"{held_gib} {self.knobs.memory_lingers} {read}\n"
        if holding != self.last_holding:
            self.last_holding = holding
            with contextlib.suppress(BrokenPipeError):
                os.write(self.writing, holding.encode())

    def _watch_child(self) -> None:
        os.waitpid(self.child, 0)
        self.dead.set()

    def _end_child(self) -> None:
        if not self.dead.is_set():
            os.close(self.writing)
            self.dead.wait(2)
