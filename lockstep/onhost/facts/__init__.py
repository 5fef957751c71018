"""Readers of a host's state, one module per subject, for deploy, diff, bench and evidence alike.

A reader is a function that takes its question and answers with JSON, or yields facts (`Fact`). It
is named as "MODULE.FUNCTION" below this package; "MODULE" alone is its function `read`. Its
docstring ends with the question ("Asked: …"). What a host runs is sent to it on standard input,
because a wiped Spark has none of this yet.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from importlib import import_module
from typing import Any

from lockstep.onhost.core import errors

_AT_ONCE = 12  # They wait for other programs most of the time.


def take(questions: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """{"answers": {reader: answer}, "facts": {kind: {item: text}}, "faults": {reader: why}}.

    A reader that fails leaves the others as they are: nobody may want its answer on a host where
    what it reads is still to come. Facts that it had yielded are told. `questions`: of each reader.
    """
    answers: dict[str, Any] = {}
    facts: dict[str, dict[str, str]] = {}
    faults: dict[str, str] = {}

    def ask(name: str) -> None:
        module, _, function = name.partition(".")
        try:
            read = getattr(import_module(f"{__name__}.{module}"), function or "read")
            answer = read(questions[name])
            if isinstance(answer, Iterator):
                for kind, item, value in answer:
                    facts.setdefault(kind, {})[item] = str(value)
            else:
                answers[name] = answer
        except errors.Problem as fault:
            faults[name] = str(fault)
        except Exception as fault:
            # Whatever a host holds that no reader expected: this part is not known.
            faults[name] = f"{type(fault).__name__}: {fault}"

    for name in questions:
        # One after the other: two threads may each see a module that the other has imported half.
        # What is wrong with it is said by `ask`.
        with suppress(Exception):
            import_module(f"{__name__}.{name.partition('.')[0]}")
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        list(pool.map(ask, questions))
    return {"answers": answers, "facts": facts, "faults": faults}
