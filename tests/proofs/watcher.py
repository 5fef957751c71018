"""Runs on a host as root: samples its engine processes, and reports two models' alive at once.

Prints one JSON object per line: {"violation": [command lines]} as it happens, and every two
seconds {"samples": N, "gap": longest time between two of them in seconds}.

An engine is recognised by its command line, which differs between models; a dead process that
nobody has reaped yet has none.
"""

import json
import os
import sys
import time
from pathlib import Path

EVERY_S = 0.1


def engines() -> set[str]:
    """Command lines of all engine processes that are alive."""
    command_lines = set()
    for name in os.listdir("/proc"):  # noqa: PTH208 -- ten times a second
        if not name.isdigit():
            continue
        try:
            words = Path("/proc", name, "cmdline").read_bytes().split(b"\0")[:-1]
        except OSError:
            continue
        if engine(words):
            command_lines.add(b" ".join(words).decode())
    return command_lines


def engine(words: list[bytes]) -> bool:
    """Match an interpreter that runs `vllm serve` or `sglang serve`; not docker, not its init."""
    return (
        len(words) > 3
        and b"python" in words[0]
        and words[2] == b"serve"
        and words[1].rpartition(b"/")[2] in (b"vllm", b"sglang")
    )


def main() -> None:
    """Sample until the connection is gone."""
    samples, gap, last, last_report = 0, 0.0, time.monotonic(), 0.0
    last_violation: list[str] = []
    while True:
        alive = sorted(engines())
        now = time.monotonic()
        samples, gap, last = samples + 1, max(gap, now - last), now
        if len(alive) > 1 and alive != last_violation:
            print(json.dumps({"violation": alive}), flush=True)
        last_violation = alive if len(alive) > 1 else []
        if now - last_report >= 2:
            last_report = now
            print(json.dumps({"samples": samples, "gap": round(gap, 3)}), flush=True)
        time.sleep(max(0.0, EVERY_S - (time.monotonic() - now)))


if __name__ == "__main__":
    if sys.argv[1:] == ["once"]:
        print(json.dumps(sorted(engines())))
    else:
        main()
