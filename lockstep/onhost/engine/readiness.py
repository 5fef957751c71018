"""Wait until an engine has answered a test question: a token, or the output of its kind of model.

usage: ready MODEL --main-pid PID

Runs as root in ExecStartPost=+ of every model unit, so that the unit counts as started only after a
test question and answers that make sense. Gives up at once if the unit's main process has died.
While the engine loads, this keeps pages free for the driver, and at the end the disks get back
their own read-ahead (free_pages_during_load.py), which takes root.

exit codes: 0 the engine answered, 1 not ready in time, or told to end by somebody else than
            systemd (which gets 0, for the unit is being stopped), 2 wrong use or unreadable
            configuration, 3 the main process died, 4 the engine refuses or fails the test question,
            5 its answers are nonsense, 6 somebody else listens at its port
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
from lockstep.onhost.core import config, errors, event_lines, layout, program_command_lines
from lockstep.onhost.core.event_lines import EventLine
from lockstep.onhost.core.program_command_lines import command
from lockstep.onhost.engine import (
    foreign_listeners,
    free_pages_during_load,
    openai_api,
    sense_check,
    start_check_sigterm,
    weight_reading,
)
from lockstep.onhost.records import models_by_boot, watch_findings
from lockstep.onhost.weights import disk_rate, load_progress_text, model_files

EXIT_DIED = 3
EXIT_TEST_QUESTION = 4
EXIT_NONSENSE = 5
EXIT_STRANGER = 6

# A 5xx or a broken connection right after /health turned green may be an engine still warming up.
_TEST_QUESTION_GRACE_S = 60.0
# A unit must not count as started later than its engine is ready.
_AGAIN_S = 0.5

T = TypeVar("T")


class MainProcess:
    """The unit's main process, held by a descriptor, so that no later process is taken for it."""

    def __init__(self, pid: int) -> None:
        """Remember process `pid`; raise Problem if it is dead already."""
        self.pid = pid
        try:
            self._descriptor = os.pidfd_open(pid)
        except OSError as error:
            raise self._death_problem() from error
        self.check_alive()

    def check_alive(self, within_s: float = 0.0) -> None:
        """Raise Problem if the process has died, or dies within so many seconds.

        A process that nobody has reaped yet counts as dead.
        """
        if select.select([self._descriptor], [], [], within_s)[0]:
            raise self._death_problem()

    def _death_problem(self) -> errors.Problem:
        return errors.Problem(
            f"the engine's main process {self.pid} died before the engine was ready. Its last "
            "lines in this journal say why",
            EXIT_DIED,
        )


@dataclass
class ReadyWaiter:
    """A loop that polls one engine until the test question passes; `tell` gets the lines for the
    journal.

    `impostor_texts` lists other processes that answer at its port.
    """

    model: config.Model
    process: MainProcess
    tell: Callable[[str], None]
    impostor_texts: Callable[[], Sequence[str]] = tuple
    began: float = field(default_factory=time.monotonic)

    def wait(self, key: str | None) -> str:
        """Return the test question's result; raise Problem if none comes within the start
        time-out."""
        # An engine logs nothing before it has imported itself, which takes half a minute and more.
        self.tell(EventLine("load", "loading the engine's program"))
        self._wait_for_health()
        # No prompt is sent before it is known who receives it.
        self._refuse_impostors()
        green = f"/health is green after {self._waited_s():.0f} s, asking for a token"
        self.tell(EventLine("test_question", green))
        answer = self._wait_for_token(key)
        # From now on the listener receives people's prompts.
        self._refuse_impostors()
        return answer

    def check_sense(self, key: str | None, paths: layout.Paths) -> str:
        """Return the verdict on the engine's answers; raise Problem if they are nonsense."""
        verdict = self._run_watched(partial(sense_check.judge_engine_sense, self.model, key))
        # The answers must be the engine's.
        self._refuse_impostors()
        summary = f"{verdict.words} ({verdict.seconds:.1f} s)"
        try:
            pid, name = self.process.pid, self.model.name
            watch_findings.save(
                paths, watch_findings.SenseLook(name, pid, verdict.state, verdict.words)
            )
        except OSError as error:
            summary += f"; not noted: {errors.why(error)}"
        if verdict.state != "nonsense":
            return summary
        raise errors.Problem(
            f"it generates, but {self.model.name} {verdict.words}. Remedy: another image, "
            "quantisation or draft; an earlier generation by `lockstep rollback`. Or `sense: "
            '"off"` of the model',
            EXIT_NONSENSE,
        )

    def _refuse_impostors(self) -> None:
        if impostors := self.impostor_texts():
            raise errors.Problem(
                f"{' and '.join(impostors)} answers at {self.model.url}, and is none of "
                f"{self.model.unit}. Remedy: stop it, then switch.sh {self.model.name}",
                EXIT_STRANGER,
            )

    def _wait_for_health(self) -> None:
        limit = self.model.start_timeout_s
        while True:
            try:
                self._run_watched(partial(openai_api.check_health, self.model))
                return
            except (openai_api.NotReady, openai_api.RequestRefusal) as answer:
                if self._waited_s() >= limit:
                    raise errors.Problem(
                        f"not ready after {self._waited_s():.0f} s (start_timeout_s "
                        f"{limit:.0f}): {self.model.url}/health: {answer}"
                    ) from answer
            self.process.check_alive(_AGAIN_S)

    def _wait_for_token(self, key: str | None) -> str:
        first = time.monotonic()
        while True:
            seconds_left = self.model.start_timeout_s - self._waited_s()
            timeout = max(1.0, min(seconds_left, self.model.test_question_timeout_s))
            try:
                return self._run_watched(
                    partial(openai_api.ask_test_question, self.model, key, timeout)
                )
            except (openai_api.RequestRefusal, openai_api.Nonsense) as answer:
                raise self._test_question_problem(answer) from answer
            except openai_api.NotReady as answer:
                if time.monotonic() - first >= min(seconds_left, _TEST_QUESTION_GRACE_S):
                    raise self._test_question_problem(answer) from answer
            self.process.check_alive(_AGAIN_S)

    def _test_question_problem(self, answer: Exception) -> errors.Problem:
        if isinstance(answer, openai_api.RequestRefusal):
            remedy = "compare the recipe's served model name and API key with the engine's lines"
        else:
            remedy = "the engine is wedged or broken: its lines in this journal say why"
        return errors.Problem(
            f"/health is green, but model {self.model.served_name!r} fails the test question: "
            f"{answer}. Remedy: {remedy}",
            EXIT_TEST_QUESTION,
        )

    def _run_watched(self, ask: Callable[[], T]) -> T:
        """Run `ask` in a thread and watch the main process until it answers."""
        answer = futures.Future[T]()

        def work() -> None:
            try:
                answer.set_result(ask())
            except BaseException as error:
                answer.set_exception(error)

        threading.Thread(target=work, daemon=True).start()
        while not answer.done():
            self.process.check_alive()
            futures.wait([answer], 0.2)
        return answer.result()

    def _waited_s(self) -> float:
        return time.monotonic() - self.began


def print_marked_line(line: str) -> None:
    """Print one line for the journal: an event, or a line by which switch.sh finds its program."""
    event_lines.say(
        event_lines.line_for_programs(line)
        if event_lines.kind_of(line)
        else f"lockstep ready: {line}"
    )


def main(argv: list[str], paths: layout.Paths | None = None) -> int:
    """Run the command line; see the module's docstring."""
    parser = program_command_lines.parser(__doc__)
    parser.add_argument("model")
    parser.add_argument("--main-pid", type=int, required=True, metavar="PID")
    options = parser.parse_args(argv)
    paths = paths or layout.Paths()
    model = config.load_host(paths.models).model(options.model).at_engine_address
    within = f"{engines.ENGINES[model.engine].end_s:g}"
    # systemd runs no ExecStop= for a unit that has not started.
    end = ("end-engine", "--asked", "--within", within, str(options.main_pid))
    start_check_sigterm.exit_check_on_sigterm(command(*end))
    key = openai_api.api_key(model)
    waiter = ReadyWaiter(
        model,
        MainProcess(options.main_pid),
        print_marked_line,
        partial(foreign_listeners.impostor_texts, model, paths),
    )
    disk_mb_s = disk_rate.rate_of_files(paths, model_files.model_files(model, paths))

    def say_progress(progress: weight_reading.LoadProgress) -> None:
        print_marked_line(
            load_progress_text.load_progress_text(
                progress.done_bytes, progress.all_bytes, progress.bytes_per_s, disk_mb_s
            )
        )

    with free_pages_during_load.LoadGuard(model, paths, print_marked_line, say_progress).watching():
        answer = waiter.wait(key)
    print_marked_line(EventLine("answer", f"answered with {answer}"))
    # An earlier version's "record" is no request for right answers.
    if model.sense == "answers":
        print_marked_line(EventLine("test_question", "asking whether it makes sense"))
        verdict = f"{model.name} {waiter.check_sense(key, paths)}"
        print_marked_line(EventLine("test_question", verdict))
    try:
        watch_findings.remove_kill(paths, model.unit)
        models_by_boot.record_model_phase(paths, model.name, models_by_boot.HOT)
    except OSError as error:
        print_marked_line(f"not noted in {paths.boots}: {errors.why(error)}")
    return errors.EXIT_DONE
