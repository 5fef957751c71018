"""Events of a run for the program that started it; without such a program, nothing."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import gevent
from gevent.event import AsyncResult
from gevent.fileobject import FileObject
from pyinfra.api.exceptions import PyinfraError
from pyinfra.api.state import BaseStateCallback
from pyinfra.connectors import ssh_util
from pyinfra.connectors import util as commands

from lockstep.deploy.events import Asks, Event, OperationDone, Ready, StepProgress, line
from lockstep.onhost.core import event_lines


class _Listener:
    def __init__(self) -> None:
        self._answer: AsyncResult[Any] = AsyncResult()
        # gevent has each program that is started here wait at its standard input. It would be this
        # pipe, and this whole process would wait at it from then on.
        pipe = os.dup(sys.stdin.fileno())
        with Path(os.devnull).open() as null:
            os.dup2(null.fileno(), sys.stdin.fileno())
        gevent.spawn(self._read_answers, pipe)

    def _read_answers(self, pipe: int) -> None:
        for text in FileObject(pipe, "r"):
            self._answer.set(json.loads(text))
        # Nobody sees the run or can end it. Hosts know a deploy whose process is gone; an orderly
        # end could wait for the step that is under way.
        os._exit(1)

    def ask_parent_program(self, event: Event) -> Any:
        self._answer = AsyncResult()
        send_event(event)
        return self._answer.get()


_listeners: list[_Listener] = []


def begin_sending() -> None:
    """Begin to send events, if a program listens."""
    if os.environ.pop(event_lines.READER, ""):
        _listeners.append(_Listener())
        for module in (commands, ssh_util):
            module.getpass = _ask_password


def _ask_password(prompt: str = "") -> str:
    # The program with the terminal asks there, and draws nothing meanwhile.
    answer = ask_parent_program(Asks(prompt))
    if answer is None:
        raise PyinfraError("no password was given")
    return str(answer)


def has_listener() -> bool:
    """Tell whether a program listens to the events."""
    return bool(_listeners)


def send_event(event: Event) -> None:
    """Send an event, in order with pyinfra's output."""
    if has_listener():
        print(line(event), flush=True)


def ask_parent_program(event: Ready | Asks) -> Any:
    """Send an event, and wait for the answer."""
    return _listeners[0].ask_parent_program(event)


class OperationEvents(BaseStateCallback):
    """A callback that sends the begin and the result of each operation."""

    @staticmethod
    def operation_start(state: Any, op_hash: str) -> None:
        """Send the begin of an operation on all hosts."""
        send_event(StepProgress(_operation_name(state, op_hash)))

    @staticmethod
    def operation_end(state: Any, op_hash: str) -> None:
        """Send the end of an operation on all hosts."""
        metas = {
            host.name: state.get_op_data_for_host(host, op_hash).operation_meta
            for host in state.inventory
            if op_hash in state.ops.get(host, {})
        }
        complete = {name: meta for name, meta in metas.items() if meta.is_complete()}
        send_event(
            OperationDone(
                _operation_name(state, op_hash),
                [name for name, meta in complete.items() if meta.did_change()],
                [name for name, meta in complete.items() if meta.did_error()],
            )
        )


def planned_changes(state: Any) -> dict[str, list[str]]:
    """Return operation → hosts that it would change, in a dry run."""
    changes: dict[str, list[str]] = {}
    for op_hash in state.get_op_order():
        for host in state.inventory:
            data = state.ops.get(host, {}).get(op_hash)
            if data and data.operation_meta.will_change:
                changes.setdefault(_operation_name(state, op_hash), []).append(host.name)
    return changes


def _operation_name(state: Any, op_hash: str) -> str:
    return ", ".join(sorted(state.get_op_meta(op_hash).names))
