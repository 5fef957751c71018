"""The facts of each host: read once, by one command, and again after a possible change.

Every command of an operation makes what was answered before it worthless on its host; so does time,
because people and services change a host too.
"""

from __future__ import annotations

import json
import time
from collections.abc import Container, Iterable, Mapping
from contextlib import suppress
from typing import Any
from weakref import WeakKeyDictionary

from paramiko import SSHException
from pyinfra import logger, state
from pyinfra.api import QuoteString, StringCommand
from pyinfra.api.arguments import CONNECTOR_ARGUMENT_KEYS, pop_global_arguments
from pyinfra.api.exceptions import PyinfraError
from pyinfra.api.util import log_host_command_error, print_host_combined_output
from pyinfra.context import ctx_host

from lockstep.files import sent
from lockstep.tasks import connection, report

#: Seconds for which an answer counts. A deploy that changes nothing ends within them.
FRESH_S = 60.0
#: Longest wait for an answer, seconds; only bounds a host that hangs, not one that is busy.
ANSWER_S = 600
# What operations after a change ask again, one of them this and another one that: a program on the
# host takes longer to start than all of these to answer (0.1 s of processor time, 2026-11-28).
_USUAL = ("files", "units", "files.marked", "environments")
# Where a host fails before its first operation.
_ASKING = "Preflight | Ask the host what it is"

# Host → reader → the question that this run has for it.
_questions: WeakKeyDictionary[Any, dict[str, Any]] = WeakKeyDictionary()
# Host → reader → when it answered, and what.
_answers: WeakKeyDictionary[Any, dict[str, tuple[float, Any]]] = WeakKeyDictionary()


def ask_all(of: Any, questions: Mapping[str, Any]) -> bool:
    """Ask a host everything that this run wants to know of it; whether it answered, else it fails.

    `ask` takes its questions from these.
    """
    prepare(of, questions)
    answers, faults = _ask(of, questions)
    return bool(answers or faults)


def prepare(of: Any, questions: Mapping[str, Any]) -> None:
    """Say what `ask` is to ask a host; nothing is known of it yet."""
    _questions[of] = dict(questions)
    forget(of)


def ask(reader: str, of: Any = None) -> Any:
    """What a reader of `lockstep.onhost.facts` says of a host; None where it cannot: that host has
    failed. Without `of` it is the current one."""
    return ask_together((reader,), of).get(reader)


def ask_together(wanted: Iterable[str], of: Any = None) -> dict[str, Any]:
    """Reader → what it says of a host; by one command, where one of them has to be asked."""
    of = of or ctx_host.get()
    now = time.monotonic()
    fresh = {reader: answer for reader, (at, answer) in _known(of).items() if now - at < FRESH_S}
    stale = [reader for reader in wanted if reader not in fresh]
    if not stale:
        return fresh
    every = _questions[of]
    usual = [reader for reader in _USUAL if reader in every and reader not in fresh]
    beside = [] if set(stale).isdisjoint(_USUAL) else usual
    questions = {reader: every[reader] for reader in (*stale, *beside)}
    return {**fresh, **_demand(of, questions, stale)}


def ask_anew(questions: Mapping[str, Any], of: Any = None) -> dict[str, Any]:
    """Reader → what it says now, of those that can; where one cannot, the host has failed."""
    return _demand(of or ctx_host.get(), questions, questions)


def _demand(of: Any, questions: Mapping[str, Any], wanted: Container[str]) -> dict[str, Any]:
    """Reader → its answer; the host has failed where one that is wanted has none."""
    answers, faults = _ask(of, questions)
    failed = {reader: fault for reader, fault in faults.items() if reader in wanted}
    for reader, fault in failed.items():
        logger.error(f"{of.print_prefix}cannot read {reader}: {fault}")
    if failed:
        _give_up(of)
    return answers


def forget(of: Any) -> None:
    """Ask a host again: something has changed, or is about to."""
    _answers.pop(of, None)


def connector_arguments(of: Any) -> Any:
    """How commands of this run are sent to a host: sudo, its account, environment, time-out."""
    every, _ = pop_global_arguments(state, of, {})
    return {key: every[key] for key in CONNECTOR_ARGUMENT_KEYS if key in every}


def _known(of: Any) -> dict[str, tuple[float, Any]]:
    return _answers.setdefault(of, {})


def _give_up(of: Any) -> None:
    """Have a host fail. In an operation, `report` ends the run after it where no host is left:
    pyinfra raises that here, in a greenlet, and shows it with a traceback."""
    if not state.is_executing:
        report.failed(of.name, _ASKING)
        state.fail_hosts({of})
        return
    report.failed_now(state, of)
    with suppress(PyinfraError):
        state.fail_hosts({of})


def _ask(of: Any, questions: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """Answers and faults by reader; ({}, {}) of a host that did not answer, and so has failed."""
    document = sent.questions(questions)
    at = time.monotonic()
    with ctx_host.use(of):
        arguments = connector_arguments(of)
        arguments["_timeout"] = arguments.get("_timeout") or ANSWER_S
        command = StringCommand(*(QuoteString(word) for word in sent.COMMAND))
        try:
            done, output = of.run_shell_command(
                command,
                print_output=state.print_fact_output,
                print_input=state.print_fact_input,
                **{**arguments, "_stdin": [document]},
            )
        except connection.NoPassword as fault:
            logger.error(f"{of.print_prefix}{fault}")
            report.of(of.name).reason = str(fault)
            _give_up(of)
            return {}, {}
        except (TimeoutError, OSError, SSHException) as fault:
            log_host_command_error(of, fault, timeout=arguments["_timeout"])
            if isinstance(fault, TimeoutError):
                report.of(of.name).reason = (
                    f"it has not said within {arguments['_timeout']} s what it is. "
                    "Remedy: look there what hangs (ps -ef, dmesg), and deploy again."
                )
            _give_up(of)
            return {}, {}
    try:
        found = json.loads(output.stdout) if done else None
    except ValueError:
        found = None
    if found is None:
        print_host_combined_output(of, output)
        logger.error(f"{of.print_prefix}cannot be asked about its state")
        _give_up(of)
        return {}, {}
    answers, faults = found["answers"], found["faults"]
    own, known = _questions.get(of, {}), _known(of)
    known |= {
        reader: (at, answers[reader]) for reader in answers if own.get(reader) == questions[reader]
    }
    return answers, faults
