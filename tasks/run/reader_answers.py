"""The facts of each host: read once, by one command, and again after a possible change.

Every command of an operation makes earlier answers of its host worthless. So does time, because
people and services change a host too.
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

from lockstep.files import remote_exec
from lockstep.tasks.run import run_report, ssh_connection

#: Seconds for which an answer counts. A deploy that changes nothing ends within them.
FRESH_S = 60.0
#: Longest wait for an answer, seconds; it only bounds a host that hangs, not one that is busy.
ANSWER_S = 600
# A program on the host takes longer to start than all other readers to answer (0.1 s of processor
# time, 2026-11-28), so those go together. These do not: the first two cost the most, and are asked
# twice only after a wait for another deploy. The others wait for Docker or for a disk, and so would
# operations that need neither.
_ASKED_IF_NEEDED = (
    *("deploy_records.other_and_cut_off_deploy", "preflight"),
    *("deploy_records.foreign_obstacles", "docker.image_architectures", "weights"),
)
# Step of a host that fails before its first operation.
_ASKING = "Preflight | Ask the host what it is"

# Host → reader → the question of this run for it.
_questions: WeakKeyDictionary[Any, dict[str, Any]] = WeakKeyDictionary()
# Host → reader → time and content of its answer.
_answers: WeakKeyDictionary[Any, dict[str, tuple[float, Any]]] = WeakKeyDictionary()


def ask_all_questions(of: Any, questions: Mapping[str, Any]) -> bool:
    """Ask a host all questions of this run; return whether it answered, else the host fails.

    Later `reader_answer` takes its questions from these.
    """
    set_questions(of, questions)
    answers, faults = _ask_readers(of, questions)
    return bool(answers or faults)


def set_questions(of: Any, questions: Mapping[str, Any]) -> None:
    """Set the questions that `reader_answer` has for a host, and drop what is known of it."""
    _questions[of] = dict(questions)
    drop_answers(of)


def reader_answer(reader: str, of: Any = None) -> Any:
    """Return a reader's answer from a host; None where there is none: that host has failed.

    Without `of` it is the current host.
    """
    return reader_answers((reader,), of).get(reader)


def reader_answers(readers: Iterable[str], of: Any = None) -> dict[str, Any]:
    """Return reader → answer of a host; by one command, where a reader has to be asked."""
    of = of or ctx_host.get()
    now = time.monotonic()
    fresh = {
        reader: answer for reader, (at, answer) in _host_cache(of).items() if now - at < FRESH_S
    }
    stale = [reader for reader in readers if reader not in fresh]
    if not stale:
        return fresh
    every = _questions[of]
    beside = [reader for reader in every if reader not in (*_ASKED_IF_NEEDED, *fresh)]
    questions = {reader: every[reader] for reader in (*stale, *beside)}
    return {**fresh, **_required_answers(of, questions, stale)}


def refreshed_answers(questions: Mapping[str, Any], of: Any = None) -> dict[str, Any]:
    """Return reader → new answer, for readers that have one; a host without one has failed."""
    return _required_answers(of or ctx_host.get(), questions, questions)


def _required_answers(
    of: Any, questions: Mapping[str, Any], readers: Container[str]
) -> dict[str, Any]:
    """Return reader → answer; the host has failed where a wanted answer is missing."""
    answers, faults = _ask_readers(of, questions)
    unread = {reader: fault for reader, fault in faults.items() if reader in readers}
    for reader, fault in unread.items():
        logger.error(f"{of.print_prefix}cannot read {reader}: {fault}")
    if unread:
        _fail_host(of)
    return answers


def drop_answers(of: Any) -> None:
    """Drop the answers of a host: something has changed, or is about to."""
    _answers.pop(of, None)


def connector_arguments(of: Any) -> Any:
    """Return how commands of this run are sent: sudo, its account, environment, time-out."""
    every, _ = pop_global_arguments(state, of, {})
    return {key: every[key] for key in CONNECTOR_ARGUMENT_KEYS if key in every}


def _host_cache(of: Any) -> dict[str, tuple[float, Any]]:
    return _answers.setdefault(of, {})


def _fail_host(of: Any) -> None:
    """Have a host fail.

    In an operation, `report` ends the run after it where no host is left: pyinfra raises that here,
    in a greenlet, and shows it with a traceback.
    """
    if not state.is_executing:
        run_report.record_failed_step(of.name, _ASKING)
        state.fail_hosts({of})
        return
    run_report.record_failure_of_operation(state, of)
    with suppress(PyinfraError):
        state.fail_hosts({of})


def _ask_readers(of: Any, questions: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """Return answers and faults by reader; ({}, {}) for a silent host, which has failed."""
    document = remote_exec.readers_input(questions)
    at = time.monotonic()
    with ctx_host.use(of):
        arguments = connector_arguments(of)
        arguments["_timeout"] = arguments.get("_timeout") or ANSWER_S
        command = StringCommand(*(QuoteString(word) for word in remote_exec.COMMAND))
        try:
            is_ok, output = of.run_shell_command(
                command,
                print_output=state.print_fact_output,
                print_input=state.print_fact_input,
                **{**arguments, "_stdin": [document]},
            )
        except ssh_connection.NoPassword as fault:
            logger.error(f"{of.print_prefix}{fault}")
            run_report.outcome_of_host(of.name).reason = str(fault)
            _fail_host(of)
            return {}, {}
        except (TimeoutError, OSError, SSHException) as fault:
            log_host_command_error(of, fault, timeout=arguments["_timeout"])
            if isinstance(fault, TimeoutError):
                run_report.outcome_of_host(of.name).reason = (
                    f"it has not said within {arguments['_timeout']} s what it is. "
                    "Remedy: look there what hangs (ps -ef, dmesg), and deploy again."
                )
            _fail_host(of)
            return {}, {}
    try:
        document_back = json.loads(output.stdout) if is_ok else None
    except ValueError:
        document_back = None
    if document_back is None:
        print_host_combined_output(of, output)
        logger.error(f"{of.print_prefix}cannot be asked about its state")
        _fail_host(of)
        return {}, {}
    faults = document_back["faults"]
    # A reader without an answer of its own has yielded facts, each kind of which is one reader's.
    facts_by_reader = dict.fromkeys(set(questions).difference(faults), document_back["facts"])
    answers = {**facts_by_reader, **document_back["answers"]}
    own, cache = _questions.get(of, {}), _host_cache(of)
    cache |= {
        reader: (at, answers[reader]) for reader in answers if own.get(reader) == questions[reader]
    }
    return answers, faults
