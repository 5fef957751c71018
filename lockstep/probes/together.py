"""Several probes at once: what each of them answers, and why one could not."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from typing import Any


def take(questions: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """{"answers": {probe: answer}, "faults": {probe: text}}: each probe is in one of them.

    One that fails leaves the others as they are: nobody may want its answer on a host where what it
    reads is still to come.

    Args:
        questions: Probe → question.
    """
    found: dict[str, dict[str, Any]] = {"answers": {}, "faults": {}}

    def ask(name: str) -> None:
        try:
            probe = import_module(f"lockstep.probes.{name}")
            found["answers"][name] = probe.main(questions[name])
        except Exception as fault:
            found["faults"][name] = f"{type(fault).__name__}: {fault}"

    # They wait for other programs most of the time.
    with ThreadPoolExecutor(max(1, len(questions))) as pool:
        list(pool.map(ask, questions))
    return found
