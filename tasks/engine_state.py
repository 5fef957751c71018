"""What a host's engines say, asked once and again after what may change it.

pyinfra asks a fact each time it is named, and a deploy names this one a dozen times. Nothing but
the commands made here changes the answer while a deploy runs: one that is not made here must not.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from weakref import WeakKeyDictionary

from pyinfra import host, state
from pyinfra.api import StringCommand
from pyinfra.context import ctx_host

from tasks import remote, run
from tasks.facts.host import Engines

# Host → whether this was the phase of executing, and what was answered then.
_answers: WeakKeyDictionary[Any, tuple[bool, Any]] = WeakKeyDictionary()


def ask() -> Any:
    """What the probe `engines` answers on the current host; None when it cannot be asked."""
    this = ctx_host.get()
    executing, answer = _answers.get(this, (None, None))
    if executing != state.is_executing or not answer:
        answer = host.get_fact(Engines, asked=run.current().engine_question)
        _answers[this] = (state.is_executing, answer)
    return answer


def build(stage: str, user: str) -> StringCommand:
    """A stage of the engine's environment, as `remote.build`; to be run at once."""
    _forget()
    return remote.build(stage, user)


def job(name: str, argv: Sequence[str]) -> StringCommand:
    """Another job that finds something out about an engine, as `remote.job`; to be run at once."""
    _forget()
    return remote.job(name, argv)


def _forget() -> None:
    _answers.pop(ctx_host.get(), None)
