"""Our ruler and vLLM's own `vllm bench serve` on one engine, in turn, in one process.

usage: PYTHON-OF-THE-ENGINE -m benchmarks.side_by_side < JOB.json > ROWS.json

Both ask the same prompts for the same number of tokens. The prompts of two questions differ in the
mark at their beginning, or the engine's prefix cache would answer whoever comes second. Who begins
changes from round to round, so that the comparison holds on a machine whose speed drifts. Both have
open connections when their time begins: vLLM's keeps those of a wave that it does not count. That
wave asks prompts of its own, too.

A third witness is the engine, which counts its tokens and times each request. Where both rulers
stand alike to it, what is left between them is another load, and no other measure.
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
    """What to ask.

    Attributes:
        url: Of the API, without /v1.
        model: The model's name there.
        tokenizer: Folder with its tokenizer, for vLLM's own benchmark.
        rounds: How often each ruler measures each number of streams.
        streams: Numbers of requests at a time.
        tokens: Tokens of each answer.
        each: Requests per stream and round.
    """

    url: str
    model: str
    tokenizer: str
    rounds: int
    streams: tuple[int, ...] = (1,)
    tokens: int = 256
    each: int = 1


@dataclass(frozen=True)
class Row:
    """What one ruler saw in one round.

    Attributes:
        who: "ours" or "theirs".
        streams: Requests at a time.
        first_s: Seconds to the first token, of answers that came token by token.
        decode_tok_s: Tokens after the first over the time after it, of these.
        whole_tok_s: All tokens over the whole time, of each request.
        total_tok_s: Tokens of all requests over the time of all.
        at_once: Answers of which more than half had been generated before anything of them came:
            on a few cores the engine's server does not always get its turn. They have no first
            token that a ruler could see.
        faults: What went wrong.
        over_engine: Whole time of a request as the ruler saw it, over what the engine's own
            histogram says of the same requests; means. 0 where the engine does not tell.
        engine_tokens: Tokens that the engine counted meanwhile, over those that the ruler did.
    """

    who: str
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
class Told:
    """What the engine had counted at one moment: requests that ended, their seconds, tokens."""

    requests: float = 0.0
    seconds: float = 0.0
    tokens: float = 0.0

    def since(self, before: Told) -> Told:
        """What came after another moment."""
        return Told(
            self.requests - before.requests,
            self.seconds - before.seconds,
            self.tokens - before.tokens,
        )


_TOLD = {
    "requests": "vllm:e2e_request_latency_seconds_count",
    "seconds": "vllm:e2e_request_latency_seconds_sum",
    "tokens": "vllm:generation_tokens_total",
}


def told(metrics: str) -> Told:
    """Of /metrics of a vLLM."""
    lines = metrics.splitlines()
    return Told(**{
        key: sum(float(line.split()[-1]) for line in lines if line.startswith(f"{name}{{"))
        for key, name in _TOLD.items()
    })  # fmt: skip


def row(
    who: str,
    streams: int,
    times: Sequence[tuple[int, float, float]],
    total: float,
    faults: Sequence[str],
    engine: Told | None = None,
) -> Row:
    """Of the tokens of each answer, and its seconds to the first and to the last one."""
    apart = [(tokens, first, last) for tokens, first, last in times if first <= last / 2]
    over = counted = 0.0
    if engine and times and engine.requests == len(times):
        over = sum(last for _, _, last in times) / engine.seconds
        counted = engine.tokens / sum(tokens for tokens, _, _ in times)
    return Row(
        who,
        streams,
        tuple(first for _, first, _ in apart),
        tuple((tokens - 1) / (last - first) for tokens, first, last in apart),
        tuple(tokens / last for tokens, _, last in times),
        total,
        len(times) - len(apart),
        tuple(faults),
        over,
        counted,
    )


def measure(job: Job) -> list[Row]:
    """Every row of a job; the first question of each shape is asked before and not counted."""
    client = Client(job.url, job.model)
    client.engine = ENGINES["vllm"]
    with tempfile.TemporaryDirectory() as folder:
        rulers: tuple[Callable[[int], Row], ...] = (
            lambda streams: _ours(client, job, streams),
            lambda streams: _theirs(client, job, streams, Path(folder)),
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


def _ours(client: Client, job: Job, streams: int) -> Row:
    asks = [
        Ask("x", user(text), job.tokens, ignore_eos=True) for text in _prompts(streams * job.each)
    ]
    before = _told(client)
    waves = [client.together(asks[at : at + streams]) for at in range(0, len(asks), streams)]
    engine = _told(client).since(before)
    samples = [sample for of_one, _ in waves for sample in of_one]
    seconds = sum(took for _, took in waves)
    good = [sample for sample in samples if sample.good]
    times = [
        (one.tokens or 0, one.first_s or one.seconds, one.last_s or one.seconds) for one in good
    ]
    faults = [sample.fault or sample.refusal for sample in samples if not sample.good]
    total = sum(tokens for tokens, _, _ in times) / seconds
    return row("ours", streams, times, total, faults, engine)


def _told(client: Client) -> Told:
    return told(client.get("/metrics") or "")


def _theirs(client: Client, job: Job, streams: int, folder: Path) -> Row:
    from vllm.benchmarks import serve
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    asked = folder / "prompts.jsonl"
    prompts = _prompts(streams * job.each)
    asked.write_text("\n".join(json.dumps({"prompt": text}) for text in prompts))
    words = ["--backend", "openai-chat", "--base-url", job.url, "--model", job.model]
    words += ["--endpoint", "/v1/chat/completions", "--tokenizer", job.tokenizer]
    words += ["--dataset-name", "custom", "--dataset-path", str(asked)]
    words += ["--custom-output-len", str(job.tokens), "--num-prompts", str(len(prompts))]
    # What it opens connections with: without, it opens them within its measured time.
    words += ["--num-warmups", str(streams), "--ready-check-timeout-sec", "0"]
    words += ["--max-concurrency", str(streams), "--ignore-eos", "--temperature", "0"]
    words += ["--seed", "0", "--skip-chat-template", "--disable-shuffle"]
    words += ["--save-result", "--save-detailed", "--result-dir", str(folder)]
    words += ["--result-filename", "result.json"]
    parser = FlexibleArgumentParser()
    serve.add_cli_args(parser)
    moments: list[Told] = []
    asks = serve.fetch_spec_decode_metrics

    async def noted(*args: Any) -> Any:
        # It asks for the draft's counters right before its time begins, and right after its end.
        moments.append(_told(client))
        return await asks(*args)

    chat = own_warm_up(serve.ASYNC_REQUEST_FUNCS["openai-chat"], moments.copy)
    # It prints a table of its own.
    with (
        contextlib.redirect_stdout(sys.stderr),
        mock.patch.object(serve, "fetch_spec_decode_metrics", noted),
        mock.patch.dict(serve.ASYNC_REQUEST_FUNCS, {"openai-chat": chat}),
    ):
        asyncio.run(serve.main_async(parser.parse_args(words)))
    result = json.loads((folder / "result.json").read_text())
    rows = zip(result["output_lens"], result["ttfts"], result["itls"], strict=True)
    times = [(tokens, first, first + sum(between)) for tokens, first, between in rows if between]
    faults = [str(error) for error in result.get("errors", ()) if error]
    engine = moments[-1].since(moments[0])
    return row("theirs", streams, times, result["output_throughput"], faults, engine)


def own_warm_up(ask: Callable[..., Any], begun: Callable[[], Any]) -> Callable[..., Any]:
    """Give vLLM's benchmark a request function that warms up with prompts that it does not measure.

    vLLM's own warms up with the first measured prompt (benchmarks/serve.py, 0.26 to 0.32), so the
    engine's prefix cache would spare that one its prefill, at one stream all of them.

    Args:
        ask: The function that sends one request.
        begun: True, or any list that is not empty, once the measured time has begun.
    """

    def changed(request_func_input: Any, **more: Any) -> Any:
        if not begun():
            request_func_input = replace(request_func_input, prompt=_prompts(1)[0])
        return ask(request_func_input=request_func_input, **more)

    return changed


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
        ours: Median, and the middle half.
        theirs: The same.
    """

    name: str
    streams: int
    ours: tuple[float, float, float]
    theirs: tuple[float, float, float]

    @property
    def ratio(self) -> float:
        """Our median over theirs."""
        return self.ours[0] / self.theirs[0]

    @property
    def agree(self) -> bool:
        """Whether the middle halves overlap: single answers may be held back by other work."""
        return max(self.ours[1], self.theirs[1]) <= min(self.ours[2], self.theirs[2])

    def shown(self) -> str:
        """Both, with their middle halves, and the ratio."""
        ours, theirs = (
            f"{middle:.4g} ({low:.4g} to {high:.4g})"
            for middle, low, high in (self.ours, self.theirs)
        )
        return f"ours {ours}   theirs {theirs}   ratio {self.ratio:.4f}"


def ratios(rows: Sequence[Row]) -> list[Ratio]:
    """Each figure that both rulers have at least two of."""
    found = []
    for streams in sorted({row.streams for row in rows}):
        for name in FIGURES:
            sides = [_values(rows, who, streams, name) for who in ("ours", "theirs")]
            if min(map(len, sides)) > 1:
                ours, theirs = (_middle(side) for side in sides)
                found.append(Ratio(name, streams, ours, theirs))
    return found


def _values(rows: Sequence[Row], who: str, streams: int, name: str) -> list[float]:
    values: list[float] = []
    for row in rows:
        if (row.who, row.streams) == (who, streams):
            value = getattr(row, name)
            # 0 is a figure that was not told.
            values += [value] * (value > 0) if isinstance(value, float) else value
    return values


def _middle(values: Sequence[float]) -> tuple[float, float, float]:
    low, _, high = quantiles(values, n=4)
    return median(values), low, high


def read(text: str) -> list[Row]:
    """Rows as this program prints them."""
    rows: list[dict[str, Any]] = json.loads(text)
    for each in rows:
        each |= {key: tuple(one) for key, one in each.items() if isinstance(one, list)}
    return [Row(**each) for each in rows]


if __name__ == "__main__":
    print(json.dumps([asdict(each) for each in measure(Job(**json.load(sys.stdin)))]))
