"""Readers of a host's state, one module per subject, for deploy, diff, bench and evidence alike.

A reader is a function that takes its question and returns JSON, or yields facts (`Fact`). Its name
is "MODULE.FUNCTION" below this package; "MODULE" alone means its function `read`. Its docstring
describes the question. The code is sent to a host on standard input, because a wiped Spark has none
of it yet.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from importlib import import_module
from threading import Thread
from typing import Any

from lockstep.onhost.core import errors


def answer_request(questions: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Ask readers; return their answers, facts and faults.

    A reader that fails does not affect the others: perhaps nobody wants its answer on a host where
    its subject is still to come. Facts that it had yielded are kept.

    Args:
        questions: The question of each reader, by its name.

    Returns:
        {"answers": {reader: answer}, "facts": {kind: {item: text}}, "faults": {reader: why}}.
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
        except BaseException as fault:
            # The host holds something that no reader expected, so this part is unknown.
            faults[name] = f"{type(fault).__name__}: {fault}"

    for name in questions:
        # One after the other: two threads may each see a module that the other has half imported.
        # `ask` reports the fault of a module.
        with suppress(Exception):
            import_module(f"{__name__}.{name.partition('.')[0]}")
    # Readers mostly wait for other programs; no pool, whose module takes long to import.
    threads = [Thread(target=ask, args=(name,)) for name in questions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return {"answers": answers, "facts": facts, "faults": faults}
