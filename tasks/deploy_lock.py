"""The lock of this deploy on each of its hosts: held by a command that runs as long as it lives."""

from __future__ import annotations

import getpass
import json
import os
import socket
import sys
import time
import uuid
from collections.abc import Callable
from dataclasses import asdict
from functools import cache
from typing import Any

import gevent
from paramiko import SSHException
from pyinfra import logger, state
from pyinfra.api import QuoteString, StringCommand
from pyinfra.api.state import BaseStateCallback
from pyinfra.context import ctx_host

from lockstep.core.errors import LockstepError
from lockstep.deploy.beats import Beats
from lockstep.files import sent
from lockstep.fleet.hosts import WAIT, WHAT
from lockstep.onhost.records.deploys import DONE, Deploy
from lockstep.tasks import report
from lockstep.tasks.facts import host as facts

#: Group data by which hosts keep what a deploy brought only together.
ALL = "all"
READER = "records.deploying"
# Between two tries of a deploy that waits for another one, seconds.
_AGAIN_S = 5.0

_held: dict[Any, tuple[Beats, gevent.Greenlet[..., Any]]] = {}
_changing: dict[Any, str] = {}


@cache
def mine() -> Deploy:
    """This deploy, as its hosts are told."""
    what = os.environ.get(WHAT) or "deploy"
    names = ", ".join(str(group) for group in list(state.inventory.groups)[:1])
    return Deploy(
        uuid.uuid4().hex, getpass.getuser(), socket.gethostname(), f"{what} of {names}", time.time()
    )


def wanted() -> bool:
    """Whether this run may change something."""
    return "--dry" not in sys.argv


def question() -> dict[str, Any]:
    """What to ask a host beside all else."""
    return {READER: asdict(mine())} if wanted() else {}


def sent_for(each: Any) -> None:
    """Send for the lock of a host; what the host is asked next says whose it is."""
    if not wanted():
        return
    beats = Beats(sent.document("records.deploys", asdict(mine())))
    task = gevent.spawn(_hold, each, beats)
    _held[each] = beats, task
    # Where sudo wants a password, pyinfra sends that before the first command, not beside it.
    gevent.wait([beats.begun, task], count=1)


def _hold(each: Any, beats: Beats) -> Any:
    command = StringCommand(*(QuoteString(word) for word in sent.LISTENING))
    with ctx_host.use(each):
        arguments = {**facts.connector_arguments(each), "_stdin": beats, "_timeout": None}
        try:
            return each.run_shell_command(
                command, print_output=False, print_input=False, **arguments
            )
        except (OSError, SSHException):
            # Said where it matters: by `lost`.
            return None


def released(how: str = "") -> None:
    """Let go of every host; this run changes none. `how` it ended is for the log of the hosts."""
    for each in _held:
        say(each, f"ended {how}")
        _held[each][0].end()
    gevent.joinall([task for _, task in _held.values()], timeout=_AGAIN_S)
    _held.clear()


def ended(each: Any, how: str) -> dict[str, Any] | None:
    """Tell a host how this run ended there, and wait until it has returned from it.

    Args:
        each: A host of pyinfra's.
        how: For the log of the host; "" where it was said already.

    Returns:
        "returned", whether it is as it was before, and "said", by the program that returned; None
        where there was nothing to return from, or no answer came.
    """
    if each not in _held:
        return None
    beats, task = _held[each]
    if how:
        say(each, f"ended {how}")
    beats.end()
    answer = task.get()
    try:
        found: dict[str, Any] = json.loads(answer[1].stdout)
    except (TypeError, ValueError):
        return None
    return found


def lost(each: Any) -> bool:
    """Whether the lock of a host went although this run has not ended."""
    return each in _held and _held[each][1].dead


def say(each: Any, line: str) -> None:
    """Tell the holder on a host of a change or of the end."""
    if each in _held:
        _held[each][0].say(line)


def changes(each: Any) -> None:
    """Tell of the operation that changes a host now, once."""
    operation = each.executing_op_hash
    if each in _held and operation and _changing.get(each) != operation:
        _changing[each] = operation
        say(each, f"changed {', '.join(sorted(state.get_op_meta(operation).names))}")


def before(each: Any) -> str:
    """How the deploy before ended, where the host had to return from it; else ""."""
    return str(_said(each).get("before", ""))


def waited(each: Any) -> bool:
    """Whether another deploy still ran on a host when this one asked, and has ended since."""
    found = _said(each)
    return bool(found and found["waited"] and not found["other"])


def other(each: Any) -> str:
    """Who else deploys to a host, in words; "" where it is this run's, or cannot be asked."""
    return str(_said(each).get("other", ""))


def _said(each: Any) -> dict[str, Any]:
    return (facts.ask(READER, each) if each in _held else None) or {}


def patiently(ask: Callable[[], dict[str, str]]) -> dict[str, str]:
    """What `ask` gives: host → who else deploys there, {} when this run has every lock.

    It asks again as long as LOCKSTEP_WAIT says; meanwhile this run holds no lock.
    """
    until = time.monotonic() + _wait_s()
    while found := ask():
        released()
        if time.monotonic() >= until:
            break
        for name, who in found.items():
            logger.info(f"--> {name}: waiting for {who}")
        gevent.sleep(_AGAIN_S)
    return found


def _wait_s() -> float:
    given = os.environ.get(WAIT) or "0"
    if not given.isdecimal():
        raise LockstepError(f"{WAIT} is no time", found=repr(given)[:40], allowed="seconds")
    return float(given)


@cache
def _last_of(each: Any) -> str | None:
    found = [operation for operation in state.get_op_order() if operation in state.ops[each]]
    return found[-1] if found else None


class Ends(BaseStateCallback):
    """Tells each host how this run ended there."""

    @staticmethod
    def operation_host_success(state: Any, host: Any, op_hash: str, retry_count: int = 0) -> None:
        """Its last operation was the end, unless the other hosts have a say in that."""
        if host in _held and host.data.get("rollout") != ALL and _last_of(host) == op_hash:
            say(host, f"ended {DONE}")

    @staticmethod
    def host_disconnect(state: Any, host: Any) -> None:
        """The process would wait for what still speaks."""
        if host in _held:
            _held[host][0].end()

    @staticmethod
    def operation_host_error(
        state: Any, host: Any, op_hash: str, retry_count: int = 0, max_retries: int = 0
    ) -> None:
        """No further one is done there."""
        at = ", ".join(sorted(state.get_op_meta(op_hash).names))
        held = report.of(host.name).held
        say(host, f"ended held back before {at}, where {held}" if held else f"ended failed at {at}")
