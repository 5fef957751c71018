"""Tells the program that started this run how it goes; without one, nothing."""

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

from lockstep.deploy.events import VARIABLE, Asks, Done, Event, Ready, Step, line


class _Listener:
    def __init__(self) -> None:
        self._answer: AsyncResult[Any] = AsyncResult()
        # gevent has each program that is started here wait at its standard input. It would be this
        # pipe, and this whole process would wait at it from then on.
        heard = os.dup(sys.stdin.fileno())
        with Path(os.devnull).open() as nothing:
            os.dup2(nothing.fileno(), sys.stdin.fileno())
        gevent.spawn(self._hear, heard)

    def _hear(self, heard: int) -> None:
        for text in FileObject(heard, "r"):
            self._answer.set(json.loads(text))
        # Nobody sees what goes on, nor can end it. Hosts know a deploy whose process is gone; an
        # orderly end could wait for the step that is under way.
        os._exit(1)

    def ask(self, event: Event) -> Any:
        self._answer = AsyncResult()
        say(event)
        return self._answer.get()


_listeners: list[_Listener] = []


def listen() -> None:
    """Speak from now on, if somebody hears it."""
    if os.environ.pop(VARIABLE, ""):
        _listeners.append(_Listener())
        for module in (commands, ssh_util):
            module.getpass = _password


def _password(prompt: str = "") -> str:
    # Whoever has the terminal asks there, and draws nothing meanwhile.
    given = ask(Asks(prompt))
    if given is None:
        raise PyinfraError("no password was given")
    return str(given)


def heard() -> bool:
    """Whether somebody hears what is said."""
    return bool(_listeners)


def say(event: Event) -> None:
    """Say it, among what pyinfra prints."""
    if heard():
        print(line(event), flush=True)


def ask(event: Ready | Asks) -> Any:
    """Say it, and wait for the answer."""
    return _listeners[0].ask(event)


class Teller(BaseStateCallback):
    """Says which operation begins, and what it has done."""

    @staticmethod
    def operation_start(state: Any, op_hash: str) -> None:
        """It begins on all hosts."""
        say(Step(_name(state, op_hash)))

    @staticmethod
    def operation_end(state: Any, op_hash: str) -> None:
        """It has ended on all of them."""
        metas = {
            host.name: state.get_op_data_for_host(host, op_hash).operation_meta
            for host in state.inventory
            if op_hash in state.ops.get(host, {})
        }
        ended = {name: meta for name, meta in metas.items() if meta.is_complete()}
        say(
            Done(
                _name(state, op_hash),
                [name for name, meta in ended.items() if meta.did_change()],
                [name for name, meta in ended.items() if meta.did_error()],
            )
        )


def would(state: Any) -> dict[str, list[str]]:
    """Operation → hosts that it would change, of a run that only looks."""
    found: dict[str, list[str]] = {}
    for op_hash in state.get_op_order():
        for host in state.inventory:
            data = state.ops.get(host, {}).get(op_hash)
            if data and data.operation_meta.will_change:
                found.setdefault(_name(state, op_hash), []).append(host.name)
    return found


def _name(state: Any, op_hash: str) -> str:
    return ", ".join(sorted(state.get_op_meta(op_hash).names))
