"""An engine without a network and without time: its figures and their noise as on an H200.

Seen there on vLLM 0.26.0 (2026-11): 0.3 to 0.7 % between repeats at one stream, up to 2 % at eight.
The first token takes 15 ms and varies by several percent. The first request of a shape compiles a
kernel. Runs of one server drift apart, and now and then an answer is late.
"""

import json
import random
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from lockstep.bench.client import Client, Clock
from lockstep.bench.results import Result, Subject
from lockstep.bench.ruler import ExpectedFigures
from lockstep.bench.run import Bench, measure
from lockstep.bench.sample import Ask, BenchSample
from lockstep.bench.suites.suites import SUITES
from lockstep.onhost.engines import ENGINES

MODEL = "some/model"


class SimulatedClient(Client):
    """One engine from its start on, for one run."""

    def __init__(
        self,
        seed: int,
        tok_s: float = 190.0,  # Speed of one stream.
        noise: float = 0.005,  # Standard deviation between repeats, a share.
        drift: float = 0.005,
        late: float = 0.02,  # Chance that an answer takes a tenth to four tenths longer.
        compile_s: float = 0.8,  # The first request of a shape waits for that.
        compiles_at: tuple[int, ...] = (),  # Requests that wait for it whatever their shape.
    ) -> None:
        super().__init__("http://simulated", MODEL, clock=Clock(self.now, self.now))
        self.engine = ENGINES["vllm"]
        self.noise, self.late = noise, late
        self.compile_s, self.compiles_at = compile_s, compiles_at
        self._chance = random.Random(seed)
        # Both figures of a run drift, each independently.
        self.tok_s = tok_s * self._chance.gauss(1, drift)
        self._first_s = 0.015 * self._chance.gauss(1, 2 * drift)
        self._time = 100.0
        self._wave: list[float] = []
        self._shapes: set[tuple[int, int]] = set()
        self.compiled_requests: list[int] = []
        self.request_count = self.finished_requests = self.generated_tokens = 0

    def now(self) -> float:
        """The present second; time passes only during a generation."""
        return self._time

    def pass_time(self, seconds: float) -> None:
        self._time += seconds

    def get(self, path: str, timeout_s: float = 10.0) -> str | None:
        if path == "/v1/models":
            return json.dumps({"data": [{"id": MODEL, "max_model_len": 32768}]})
        if path == "/version":
            return '{"version": "0.26.0"}'
        if path == "/metrics":
            return (
                'vllm:num_requests_running{engine="0"} 0.0\n'
                f'vllm:request_success_total{{finished_reason="length"}} '
                f"{self.finished_requests}.0\n"
                f'vllm:generation_tokens_total{{engine="0"}} {self.generated_tokens}.0\n'
            )
        return None

    def together(self, asks: Sequence[Ask]) -> tuple[list[BenchSample], float]:
        began = self.now()
        return [self._complete(ask) for ask in asks], self.now() - began

    def _complete(self, ask: Ask) -> BenchSample:
        self.request_count += 1
        self.finished_requests += 1
        self.generated_tokens += ask.max_tokens
        streams = int(ask.label.split()[0]) if ask.label.endswith(" streams") else 1
        words = len(str(ask.messages).split())
        first = self._first_s * streams + words * 1e-5
        first *= abs(self._chance.gauss(1, 0.03))
        shape = streams, words // 500
        if self.request_count in self.compiles_at or (ask.stream and shape not in self._shapes):
            self._shapes.add(shape)
            self.compiled_requests.append(self.request_count)
            first += self.compile_s
        pace = (1 + streams / 100) / self.tok_s * self._chance.gauss(1, self.noise)
        if self._chance.random() < self.late:
            pace *= self._chance.uniform(1.1, 1.4)
        seconds = first + (ask.max_tokens - 1) * pace
        if not self._wave:
            self._wave = [self._time] * streams
        began = self._wave.pop()
        self._time = max(self._time, began + seconds)
        return BenchSample(
            ask.label,
            seconds=seconds,
            first_s=first if ask.stream else None,
            first_tokens=1,
            last_s=seconds,
            pieces=ask.max_tokens,
            tokens=ask.max_tokens,
            prompt_tokens=words,
            max_tokens=ask.max_tokens,
            status=200,
            finish="length",
            text=f"answer {self.request_count}",
        )


def suite_result(engine: SimulatedClient, *suites: str) -> Result:
    """The result of one run of these suites, as `lockstep bench` keeps it."""
    bench = Bench(engine, ExpectedFigures(MODEL), context=32768)
    began = datetime(2026, 11, 22, tzinfo=UTC)
    suite_results = tuple(measure(bench, SUITES[name]) for name in suites)
    end = began + timedelta(seconds=engine.now())
    times = (f"{at:%Y-%m-%dT%H:%M:%SZ}" for at in (began, end))
    return Result(Subject(engine.url, MODEL), *times, lockstep="0.1", suites=suite_results)
