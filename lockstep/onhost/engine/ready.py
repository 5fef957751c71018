"""Wait until an engine has answered a canary: a token, or what its kind of model gives.

usage: ready TARGET --main-pid PID

Runs as root in ExecStartPost=+ of every model unit, so that the unit counts as started only after a
canary generation and answers that make sense. Gives up at once when the unit's main process has
died. While it loads it keeps pages free for the driver (load_guard.py), which takes root.

exit codes: 0 it answered, 1 not ready in time, or told to end by somebody else than
            systemd (which gets 0, for the unit is being stopped), 2 wrong use or unreadable
            configuration, 3 the main process died, 4 the engine refuses or fails the canary,
            5 what it answers is nonsense, 6 somebody else listens at its port
"""

from __future__ import annotations

import os
import select
import threading
import time
from collections.abc import Callable, Sequence
from concurrent import futures
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from lockstep.onhost import engines
from lockstep.onhost.core import config, errors, layout, output, program
from lockstep.onhost.core.program import command
from lockstep.onhost.engine import load_guard, openai_api, orderly_end, port, sense, sense_record
from lockstep.onhost.records import boots, ended

EXIT_DIED = 3
EXIT_CANARY = 4
EXIT_NONSENSE = 5
EXIT_STRANGER = 6

# A 5xx or a broken connection right after /health turned green may be an engine still warming up.
_CANARY_GRACE_S = 60.0
# A start must not end later than the engine is ready.
_AGAIN_S = 0.5

T = TypeVar("T")


class MainProcess:
    """The unit's main process, by a descriptor, which no later process with its id shares."""

    def __init__(self, pid: int) -> None:
        """Remember process `pid`; Problem when it is dead already."""
        self.pid = pid
        try:
            self._descriptor = os.pidfd_open(pid)
        except OSError as error:
            raise self._died() from error
        self.check()

    def check(self, within_s: float = 0.0) -> None:
        """Problem when the process has died, or dies within so many seconds.

        One that nobody has reaped yet counts as dead.
        """
        if select.select([self._descriptor], [], [], within_s)[0]:
            raise self._died()

    def _died(self) -> errors.Problem:
        return errors.Problem(
            f"the engine's main process {self.pid} died before the engine was ready. "
            "Its last lines in this journal say why",
            EXIT_DIED,
        )


@dataclass
class Waiter:
    """Polls one engine until its canary has sung; `tell` gets the lines for the journal.

    `pretenders` says who else answers at its port.
    """

    target: config.Target
    process: MainProcess
    tell: Callable[[str], None]
    pretenders: Callable[[], Sequence[str]] = tuple
    began: float = field(default_factory=time.monotonic)

    def wait(self, key: str | None) -> str:
        """What the canary brought; Problem when it does not come within the start time-out."""
        # An engine says nothing before it has imported itself, which takes half a minute and more.
        self.tell("loading the engine's program")
        self._wait_for_health()
        # No word of a prompt before it is known who gets it.
        self._refuse_pretenders()
        self.tell(f"/health is green after {self._waited():.0f} s, asking for a token")
        answer = self._wait_for_token(key)
        # Who answers from now on is asked what people write.
        self._refuse_pretenders()
        return answer

    def make_sense(self, key: str | None, paths: layout.Paths) -> str:
        """What its answers were judged; Problem when they are nonsense."""
        record = sense_record.accepted(paths, self.target)
        verdict = self._watched(partial(sense.look, self.target, key, record))
        # Sound answers without a record become it: they must be the engine's.
        self._refuse_pretenders()
        try:
            note = sense_record.keep(paths, self.target, verdict, self.process.pid)
        except OSError as error:
            note = f"not noted: {errors.why(error)}"
        if verdict.state != "nonsense":
            said = f"{verdict.words} ({verdict.seconds:.1f} s)"
            return f"{said}; {note}" if note else said
        remedy = (
            "another image, quantisation or draft; an earlier generation by `lockstep rollback`"
        )
        if verdict.by_record:
            forget = " ".join(command("sense", self.target.name, "--forget"))
            remedy = f"check the weights; where the difference is meant: sudo {forget}"
        raise errors.Problem(
            f"it generates, but {self.target.name} {verdict.words}. Remedy: {remedy}. "
            'Or `sense: "off"` of the target',
            EXIT_NONSENSE,
        )

    def _refuse_pretenders(self) -> None:
        if others := self.pretenders():
            raise errors.Problem(
                f"{' and '.join(others)} answers at {self.target.url}, and is none of "
                f"{self.target.unit}. Remedy: stop it, then switch.sh {self.target.name}",
                EXIT_STRANGER,
            )

    def _wait_for_health(self) -> None:
        limit = self.target.start_timeout_s
        while True:
            try:
                self._watched(partial(openai_api.check_health, self.target))
                return
            except (openai_api.NotReady, openai_api.Refused) as answer:
                if self._waited() >= limit:
                    raise errors.Problem(
                        f"not ready after {self._waited():.0f} s (start_timeout_s {limit:.0f}): "
                        f"{self.target.url}/health: {answer}"
                    ) from answer
            self.process.check(_AGAIN_S)

    def _wait_for_token(self, key: str | None) -> str:
        first = time.monotonic()
        while True:
            left = self.target.start_timeout_s - self._waited()
            timeout = max(1.0, min(left, self.target.canary_timeout_s))
            try:
                return self._watched(partial(openai_api.canary, self.target, key, timeout))
            except (openai_api.Refused, openai_api.Nonsense) as answer:
                raise self._canary_failed(answer) from answer
            except openai_api.NotReady as answer:
                if time.monotonic() - first >= min(left, _CANARY_GRACE_S):
                    raise self._canary_failed(answer) from answer
            self.process.check(_AGAIN_S)

    def _canary_failed(self, answer: Exception) -> errors.Problem:
        if isinstance(answer, openai_api.Refused):
            remedy = "compare the recipe's served model name and API key with the engine's lines"
        else:
            remedy = "the engine is wedged or broken: its lines in this journal say why"
        return errors.Problem(
            f"/health is green, but model {self.target.model!r} fails the canary: {answer}. "
            f"Remedy: {remedy}",
            EXIT_CANARY,
        )

    def _watched(self, ask: Callable[[], T]) -> T:
        """Run `ask` in a thread and watch the main process until it answers."""
        answer = futures.Future[T]()

        def work() -> None:
            try:
                answer.set_result(ask())
            except BaseException as error:
                answer.set_exception(error)

        threading.Thread(target=work, daemon=True).start()
        while not answer.done():
            self.process.check()
            futures.wait([answer], 0.2)
        return answer.result()

    def _waited(self) -> float:
        return time.monotonic() - self.began


def tell(line: str) -> None:
    """One line for the journal, with the mark by which switch.sh finds it."""
    output.say(f"lockstep ready: {line}")


def main(argv: list[str], paths: layout.Paths | None = None) -> int:
    """Command line; see the module's docstring."""
    parser = program.parser(__doc__)
    parser.add_argument("target")
    parser.add_argument("--main-pid", type=int, required=True, metavar="PID")
    options = parser.parse_args(argv)
    paths = paths or layout.Paths()
    target = config.load_host(paths.targets).target(options.target).itself
    within = f"{engines.ENGINES[target.engine].end_s:g}"
    # systemd runs no ExecStop= for a unit that has not started.
    end = ("end-engine", "--asked", "--within", within, str(options.main_pid))
    orderly_end.leave_behind(command(*end))
    key = openai_api.api_key(target)
    waiter = Waiter(
        target,
        MainProcess(options.main_pid),
        tell,
        partial(port.pretenders, target, paths),
    )
    with load_guard.LoadGuard(target.load_free_gib, tell, paths.proc).watching():
        answer = waiter.wait(key)
    tell(f"{target.name} answered with {answer}")
    if target.sense != "off":
        tell("asking whether it makes sense")
        tell(f"{target.name} {waiter.make_sense(key, paths)}")
    try:
        ended.forget(paths, target.unit)
        boots.noted(paths, target.name, boots.HOT)
    except OSError as error:
        tell(f"not noted in {paths.boots}: {errors.why(error)}")
    return errors.EXIT_DONE
