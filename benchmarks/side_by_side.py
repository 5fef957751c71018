"""Our ruler and vLLM's own `vllm bench serve` on one engine, in turn, in one process.

usage: PYTHON-OF-THE-ENGINE -m benchmarks.side_by_side < JOB.json > ROWS.json

Both ask the same prompts for the same number of tokens. The prompts of two questions differ in the
mark at their beginning, or the engine's prefix cache would answer the second ruler. The ruler that
begins changes from round to round, so that the comparison holds on a machine whose speed drifts.
Both have open connections when their time begins: vLLM's benchmark keeps those of a wave that it
does not count. That wave asks prompts of its own, too.

A third witness is the engine, which counts its tokens and times each request. Where both rulers
agree with it equally, a remaining difference between them is another load, not another measure.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median, quantiles
from typing import Any
from unittest import mock

from lockstep.bench.client import Client
from lockstep.bench.prompts import SHAPES, user
from lockstep.bench.sample import Ask
from lockstep.onhost.engines import ENGINES


@dataclass(frozen=True)
class Job:
    """The measurements to make.

    Attributes:
        url: Address of the API, without /v1.
        model: The model's name there.
        tokenizer: Folder with its tokenizer, for vLLM's own benchmark.
        rounds: How often each ruler measures each number of streams.
        streams: Numbers of requests at a time.
        tokens: Tokens of each answer.
        requests_per_stream: Requests per stream and round.
    """

    url: str
    model: str
    tokenizer: str
    rounds: int
    streams: tuple[int, ...] = (1,)
    tokens: int = 256
    requests_per_stream: int = 1


@dataclass(frozen=True)
class Row:
    """The figures of one ruler in one round.

    Attributes:
        ruler: "ours" or "theirs".
        streams: Requests at a time.
        first_s: Seconds to the first token, of answers that came token by token.
        decode_tok_s: Tokens after the first over the time after it, of the same answers.
        whole_tok_s: All tokens over the whole time, of each request.
        total_tok_s: Tokens of all requests over the time of all.
        at_once: Answers of which more than half had been generated before anything of them came:
            on a few cores the engine's server does not always get its turn. They have no first
            token that a ruler could see.
        faults: Errors of requests.
        over_engine: Whole time of a request as the ruler saw it, over the figure that the engine's
            own histogram has for the same requests; means. 0 where the engine has no histogram.
        engine_tokens: Tokens that the engine counted meanwhile, over those that the ruler did.
    """

    ruler: str
    streams: int
    first_s: tuple[float, ...] = ()
    decode_tok_s: tuple[float, ...] = ()
    whole_tok_s: tuple[float, ...] = ()
    total_tok_s: float = 0.0
    at_once: int = 0
    faults: tuple[str, ...] = ()
    over_engine: float = 0.0
    engine_tokens: float = 0.0


@dataclass(frozen=True)
class EngineTotals:
    """Totals of the engine at one moment: requests that ended, their seconds, tokens."""

    requests: float = 0.0
    seconds: float = 0.0
    tokens: float = 0.0

    def since(self, earlier_totals: EngineTotals) -> EngineTotals:
        """The difference from another moment's totals."""
        return EngineTotals(
            self.requests - earlier_totals.requests,
            self.seconds - earlier_totals.seconds,
            self.tokens - earlier_totals.tokens,
        )


_TOLD = {
    "requests": "vllm:e2e_request_latency_seconds_count",
    "seconds": "vllm:e2e_request_latency_seconds_sum",
    "tokens": "vllm:generation_tokens_total",
}


def engine_totals(metrics: str) -> EngineTotals:
    """The totals in the text of a vLLM's /metrics."""
    lines = metrics.splitlines()
    return EngineTotals(**{
        key: sum(float(line.split()[-1]) for line in lines if line.startswith(f"{name}{{"))
        for key, name in _TOLD.items()
    })  # fmt: skip


def row(
    ruler: str,
    streams: int,
    times: Sequence[tuple[int, float, float]],
    total: float,
    faults: Sequence[str],
    engine: EngineTotals | None = None,
) -> Row:
    """A row from the tokens of each answer, and its seconds to the first and to the last one."""
    apart = [(tokens, first, last) for tokens, first, last in times if first <= last / 2]
    over = token_ratio = 0.0
    if engine and times and engine.requests == len(times):
        over = sum(last for _, _, last in times) / engine.seconds
        token_ratio = engine.tokens / sum(tokens for tokens, _, _ in times)
    return Row(
        ruler,
        streams,
        tuple(first for _, first, _ in apart),
        tuple((tokens - 1) / (last - first) for tokens, first, last in apart),
        tuple(tokens / last for tokens, _, last in times),
        total,
        len(times) - len(apart),
        tuple(faults),
        over,
        token_ratio,
    )


def measure(job: Job) -> list[Row]:
    """Measure every row of a job; the first question of each shape does not count."""
    client = Client(job.url, job.model)
    client.engine = ENGINES["vllm"]
    with tempfile.TemporaryDirectory() as folder:
        rulers: tuple[Callable[[int], Row], ...] = (
            lambda streams: _own_row(client, job, streams),
            lambda streams: _vllm_row(client, job, streams, Path(folder)),
        )
        for streams in job.streams:
            for ruler in rulers:
                ruler(streams)
        return [
            ruler(streams)
            for number in range(job.rounds)
            for streams in job.streams
            for ruler in (rulers if number % 2 == 0 else reversed(rulers))
        ]


def _prompts(count: int) -> list[str]:
    texts = list(SHAPES.values())
    return [f"[{secrets.token_hex(4)}] {texts[number % len(texts)]}" for number in range(count)]


def _own_row(client: Client, job: Job, streams: int) -> Row:
    asks = [
        Ask("x", user(text), job.tokens, ignore_eos=True)
        for text in _prompts(streams * job.requests_per_stream)
    ]
    earlier_totals = _read_totals(client)
    waves = [client.together(asks[at : at + streams]) for at in range(0, len(asks), streams)]
    engine = _read_totals(client).since(earlier_totals)
    samples = [sample for of_one, _ in waves for sample in of_one]
    seconds = sum(took for _, took in waves)
    good = [sample for sample in samples if sample.good]
    times = [
        (
            good_sample.tokens or 0,
            good_sample.first_s or good_sample.seconds,
            good_sample.last_s or good_sample.seconds,
        )
        for good_sample in good
    ]
    faults = [sample.fault or sample.refusal for sample in samples if not sample.good]
    total = sum(tokens for tokens, _, _ in times) / seconds
    return row("ours", streams, times, total, faults, engine)


def _read_totals(client: Client) -> EngineTotals:
    return engine_totals(client.get("/metrics") or "")


def _vllm_row(client: Client, job: Job, streams: int, folder: Path) -> Row:
    from vllm.benchmarks import serve
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    target_path = folder / "prompts.jsonl"
    prompts = _prompts(streams * job.requests_per_stream)
    target_path.write_text("\n".join(json.dumps({"prompt": text}) for text in prompts))
    words = ["--backend", "openai-chat", "--base-url", job.url, "--model", job.model]
    words += ["--endpoint", "/v1/chat/completions", "--tokenizer", job.tokenizer]
    words += ["--dataset-name", "custom", "--dataset-path", str(target_path)]
    words += ["--custom-output-len", str(job.tokens), "--num-prompts", str(len(prompts))]
    # The warm-up opens the connections, or they would be opened within the measured time.
    words += ["--num-warmups", str(streams), "--ready-check-timeout-sec", "0"]
    words += ["--max-concurrency", str(streams), "--ignore-eos", "--temperature", "0"]
    words += ["--seed", "0", "--skip-chat-template", "--disable-shuffle"]
    words += ["--save-result", "--save-detailed", "--result-dir", str(folder)]
    words += ["--result-filename", "result.json"]
    parser = FlexibleArgumentParser()
    serve.add_cli_args(parser)
    moments: list[EngineTotals] = []
    asks = serve.fetch_spec_decode_metrics

    async def note_totals(*args: Any) -> Any:
        # The benchmark reads the draft's counters right before and right after its measured time.
        moments.append(_read_totals(client))
        return await asks(*args)

    chat = own_warm_up(serve.ASYNC_REQUEST_FUNCS["openai-chat"], moments.copy)
    # The benchmark prints a table of its own.
    with (
        contextlib.redirect_stdout(sys.stderr),
        mock.patch.object(serve, "fetch_spec_decode_metrics", note_totals),
        mock.patch.dict(serve.ASYNC_REQUEST_FUNCS, {"openai-chat": chat}),
    ):
        asyncio.run(serve.main_async(parser.parse_args(words)))
    result = json.loads((folder / "result.json").read_text())
    rows = zip(result["output_lens"], result["ttfts"], result["itls"], strict=True)
    times = [(tokens, first, first + sum(between)) for tokens, first, between in rows if between]
    faults = [str(error) for error in result.get("errors", ()) if error]
    engine = moments[-1].since(moments[0])
    return row("theirs", streams, times, result["output_throughput"], faults, engine)


def own_warm_up(ask: Callable[..., Any], has_begun: Callable[[], Any]) -> Callable[..., Any]:
    """Give vLLM's benchmark a request function that warms up with prompts that it does not measure.

    vLLM's own warms up with the first measured prompt (benchmarks/serve.py, 0.26 to 0.32), so the
    engine's prefix cache would spare that one its prefill, at one stream all of them.

    Args:
        ask: The function that sends one request.
        has_begun: True, or any list that is not empty, once the measured time has begun.
    """

    def request_with_warm_up(request_func_input: Any, **more: Any) -> Any:
        if not has_begun():
            request_func_input = replace(request_func_input, prompt=_prompts(1)[0])
        return ask(request_func_input=request_func_input, **more)

    return request_with_warm_up


FIGURES = (
    *("first_s", "decode_tok_s", "whole_tok_s", "total_tok_s"),
    *("over_engine", "engine_tokens"),
)


@dataclass(frozen=True)
class Ratio:
    """One figure by both rulers, at one number of streams.

    Attributes:
        name: One of `FIGURES`.
        streams: Requests at a time.
        ours: Our median, and the middle half.
        theirs: Their median, and the middle half.
    """

    name: str
    streams: int
    our_spread: tuple[float, float, float]
    their_spread: tuple[float, float, float]

    @property
    def ratio(self) -> float:
        """Our median over theirs."""
        return self.our_spread[0] / self.their_spread[0]

    @property
    def agree(self) -> bool:
        """Tell whether the middle halves overlap: single answers may be held back by other work."""
        return max(self.our_spread[1], self.their_spread[1]) <= min(
            self.our_spread[2], self.their_spread[2]
        )

    def summary(self) -> str:
        """Text of both medians, with their middle halves, and the ratio."""
        our_text, their_text = (
            f"{middle:.4g} ({low:.4g} to {high:.4g})"
            for middle, low, high in (self.our_spread, self.their_spread)
        )
        return f"ours {our_text}   theirs {their_text}   ratio {self.ratio:.4f}"


def ratios(rows: Sequence[Row]) -> list[Ratio]:
    """The ratio of each figure of which both rulers have at least two values."""
    results = []
    for streams in sorted({row.streams for row in rows}):
        for name in FIGURES:
            sides = [_values(rows, ruler, streams, name) for ruler in ("ours", "theirs")]
            if min(map(len, sides)) > 1:
                our_spread, their_spread = (_middle(side) for side in sides)
                results.append(Ratio(name, streams, our_spread, their_spread))
    return results


def _values(rows: Sequence[Row], ruler: str, streams: int, name: str) -> list[float]:
    values: list[float] = []
    for row in rows:
        if (row.ruler, row.streams) == (ruler, streams):
            value = getattr(row, name)
            # 0 stands for a missing figure.
            values += [value] * (value > 0) if isinstance(value, float) else value
    return values


def _middle(values: Sequence[float]) -> tuple[float, float, float]:
    low, _, high = quantiles(values, n=4)
    return median(values), low, high


def read(text: str) -> list[Row]:
    """Rows as this program prints them."""
    rows: list[dict[str, Any]] = json.loads(text)
    for result_row in rows:
        result_row |= {
            key: tuple(value) for key, value in result_row.items() if isinstance(value, list)
        }
    return [Row(**result_row) for result_row in rows]


if __name__ == "__main__":
    print(
        json.dumps([asdict(measured_row) for measured_row in measure(Job(**json.load(sys.stdin)))])
    )
