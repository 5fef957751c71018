"""The last lines of a run: failed hosts with the reason, else the models of each host."""

from __future__ import annotations

import atexit
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyinfra import logger
from pyinfra.api.exceptions import PyinfraError
from pyinfra.api.state import BaseStateCallback

from lockstep.core.errors import LockstepError, paragraph
from lockstep.deploy.events import Over
from lockstep.deploy.summary import CONNECTING, HostOutcome, render
from lockstep.tasks import connection, events

_outcomes: dict[str, HostOutcome] = {}
_left_out: list[str] = []
# The state of the run.
_watched: list[Any] = []
_when_whole: list[Callable[[], None]] = []


def watch(state: Any) -> None:
    """Collect failures of this run from now on, and print the end of it when the process ends."""
    if _watched:
        return
    _watched.append(state)
    for host in state.inventory:
        if not state.is_host_in_limit(host):
            _left_out.append(host.name)
        else:
            of(host.name).failed_at = CONNECTING if host in state.failed_hosts else ""
    state.add_callback_handler(_Watcher())
    atexit.register(_print)


def when_whole(act: Callable[[], None]) -> None:
    """Do this at the end, if every host of the inventory was brought to its end."""
    _when_whole.append(act)


def of(name: str) -> HostOutcome:
    """What becomes of a host in this run."""
    return _outcomes.setdefault(name, HostOutcome(name))


def failed(name: str, at: str) -> None:
    """Remember at which step a host was given up."""
    of(name).failed_at = of(name).failed_at or at


def failed_now(state: Any, host: Any) -> None:
    """Remember that a host was given up at the operation that it is in, and a lost connection."""
    now = host.executing_op_hash
    at = ", ".join(sorted(state.get_op_meta(now).names)) if now else "reading its state"
    failed(host.name, at)
    if connection.is_lost(host):
        lost = f"connection lost to {host.name} while it was at: {at}; run the same command again"
        of(host.name).reason = lost
        logger.error(f"{host.print_prefix}{lost}")


def stopped(name: str, first: str, returned: bool | None) -> None:
    """Remember what became of a host whose run ended because one of all failed.

    Args:
        name: The host.
        first: The host that failed.
        returned: Whether it is as it was before; None: nothing of its generation was changed.
    """
    outcome = of(name)
    if returned:
        outcome.generation = "old"
    stuck = "it could not return: /var/log/lockstep/jobs/rollout.log on it says why"
    if returned is False:
        outcome.reason = "\n".join(filter(None, (outcome.reason, stuck)))
    if outcome.failed_at:
        return
    outcome.failed_at = f"all or none, after {first}"
    if returned is None:
        outcome.held = "nothing of its generation was changed"
    outcome.returned = bool(returned)


def to_restart(name: str, units: list[str]) -> None:
    """Remember what a run that only looks would restart on a host."""
    outcome = of(name)
    outcome.restarts = list(dict.fromkeys((*outcome.restarts, *units)))


def to_restart_together(name: str, model: str, members: list[str]) -> None:
    """Remember a cluster's model that a run which only looks would take down and up on all."""
    outcome = of(name)
    outcome.together = {**outcome.together, model: members}


def news(name: str, text: str) -> None:
    """Say this at the end of the run, of a host."""
    if text not in of(name).news:
        of(name).news.append(text)


def unanswered() -> dict[str, str]:
    """Digest of each image with an engine → why that could not be asked, as the hosts say."""
    found: dict[str, str] = {}
    for outcome in _outcomes.values():
        found |= outcome.snapshot.get("unanswered") or {}
    return found


class _Watcher(BaseStateCallback):
    @staticmethod
    def operation_start(state: Any, op_hash: Any) -> None:
        # An operation that could not ask its last host ends without this.
        if not state.active_hosts:
            raise PyinfraError("No hosts remaining!")

    @staticmethod
    def operation_host_error(
        state: Any, host: Any, op_hash: Any, retry_count: int = 0, max_retries: int = 0
    ) -> None:
        failed_now(state, host)


def _again() -> str:
    """The command of this run without its options, one of which may be a password."""
    files = [word for word in sys.argv[1:] if word.endswith(".py")]
    ours = ("config.py", "deploy.py")
    inventory = next((word for word in files if Path(word).name not in ours), "INVENTORY")
    return shlex.join(["pyinfra", inventory, "deploy.py"])


def _print() -> None:
    if events.heard():
        outcomes = list(_outcomes.values())
        would = {} if _watched[0].is_executing else events.would(_watched[0])
        events.say(Over(outcomes, _left_out, would))
    text = render(list(_outcomes.values()), again=_again())
    if text:
        print(text)
    whole = all(each.snapshot and not each.failed_at for each in _outcomes.values())
    if whole and not _left_out:
        try:
            for act in _when_whole:
                act()
        except LockstepError as fault:
            print(paragraph(str(fault)))
