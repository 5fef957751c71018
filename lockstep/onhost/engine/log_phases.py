"""What an engine's log says about how far its start is, in a few words for a phone."""

from __future__ import annotations

import re

# Lines of vLLM 0.18-0.32 and SGLang 0.5 (read in their sources, 2026-11), first match wins. A
# line that matches nothing is no phase: a wrong guess would be worse than the heartbeat.
_PHASES: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"lockstep (?:gate|ready|roles): (?P<text>.+)"), "{text}"),
    (
        re.compile(r"oading .*checkpoint shards:\s+\d+% Completed \| (?P<done>\d+)/(?P<all>\d+)"),
        "loading weights, file {done} of {all}",
    ),
    (re.compile(r"Loading weights took (?P<s>[\d.]+) seconds"), "weights loaded in {s} s"),
    (
        re.compile(r"Model loading took (?P<gib>[\d.]+) GiB"),
        "model takes {gib} GiB",
    ),
    (re.compile(r"Load weight begin"), "loading weights"),
    (re.compile(r"Load weight end"), "weights loaded"),
    (re.compile(r"Starting to load model"), "loading the model"),
    (re.compile(r"torch\.compile takes (?P<s>[\d.]+) ?s"), "compiled in {s} s"),
    (re.compile(r"Compiling a graph|Start compiling|torch\.compile"), "compiling"),
    (
        re.compile(r"Captur\w+ .*?(?P<percent>\d+)%\|"),
        "capturing CUDA graphs, {percent} %",
    ),
    (re.compile(r"Capture cuda graph begin|Graph capturing"), "capturing CUDA graphs"),
    (re.compile(r"GPU KV cache size: (?P<n>[\d,]+) tokens"), "KV cache for {n} tokens"),
    (re.compile(r"Starting vLLM (?:API )?server"), "opening the port"),
    (re.compile(r"Application startup complete"), "port open"),
    (re.compile(r"The server is fired up"), "port open"),
)


_ERROR = re.compile(r"\bERROR\b|[Ee]rror[:\s]|FATAL|Killed|refused")


def phase(line: str) -> str | None:
    """The phase that a line of the engine's log announces, or None."""
    for pattern, text in _PHASES:
        if match := pattern.search(line):
            return text.format(**match.groupdict())
    return None


def reason(lines: list[str]) -> list[str]:
    """Of a failed unit's last lines, the few that say why: our own verdict, else the errors."""
    own = [line for line in lines if re.search(r"lockstep (gate|ready|roles): ", line)]
    verdict = [line for line in own[-1:] if phase(line)]
    errors = [line for line in lines if _ERROR.search(line)]
    return [*dict.fromkeys([*errors[-3:], *verdict])] or lines[-5:]
