"""Questions with one right answer for a model that generates, to find nonsense within seconds.

The questions and their judges are in `sense_questions`.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Literal

from lockstep.onhost.core import config
from lockstep.onhost.engine import openai_api, sense_of_vectors_and_orders, sense_questions

# A hundred numbers are 300 tokens of Qwen and 400 of Mistral. Thoughts that cannot be turned off
# need room too.
MOST_TOKENS = 1500
# Templates use either name, and ignore names that they do not know.
THINKING_OFF = {"chat_template_kwargs": {"enable_thinking": False, "thinking": False}}
# MOST_TOKENS at 5 tok/s. An engine that needs more is wedged.
ANSWER_S = 300.0
# After this time no further question begins: an engine of 3 tok/s is slow, but does not lie.
ENOUGH_S = 300.0

State = Literal["sound", "nonsense", "untold"]


@dataclass(frozen=True)
class SenseCheck:
    """The result of one question: its name, the judgement, and the words for it."""

    probe: str
    state: State
    words: str


@dataclass(frozen=True)
class SenseVerdict:
    """The result of all questions.

    Attributes:
        looks: Each question; after the first nonsense no other is asked.
        seconds: Duration of the whole check.
    """

    looks: tuple[SenseCheck, ...]
    seconds: float = 0.0

    @property
    def state(self) -> State:
        """Nonsense if any answer is; untold if nothing could be asked."""
        states = [look.state for look in self.looks]
        if "nonsense" in states:
            return "nonsense"
        return "sound" if "sound" in states else "untold"

    @property
    def words(self) -> str:
        """One sentence for the operator."""
        if wrong := self._text_of_checks_in_state("nonsense"):
            return f"talks nonsense: {wrong}"
        sound = ", ".join(look.probe for look in self.looks if look.state == "sound")
        sentence = f"makes sense: {sound}" if sound else "sense is not known"
        silent = self._text_of_checks_in_state("untold")
        return sentence + (f"; could not be asked: {silent}" if silent else "")

    def _text_of_checks_in_state(self, state: State) -> str:
        every = (f"{look.probe}: {look.words}" for look in self.looks if look.state == state)
        return "; ".join(every)


def judge_engine_sense(model: config.Model, key: str | None) -> SenseVerdict:
    """Ask `model.url` all of the model's questions, and judge; end at the first nonsense."""
    began = time.monotonic()
    if model.kind != "chat":
        return SenseVerdict((_judge_pooling(model, key),), seconds=time.monotonic() - began)
    session = _Session(model, key)
    if not model.logprobs:
        session.no_logprobs = "this engine ends when it is asked for them while drafting"
    pair = (sense_questions.ECHO, sense_questions.COUNT)
    alone = (*pair, sense_questions.TOOL) if model.tools else pair
    for probe in alone:
        if session.has_nonsense or time.monotonic() - began > ENOUGH_S:
            break
        session.add(probe.name, *session.ask_and_judge(probe))
    if all(look.state == "sound" for look in session.looks) and len(session.looks) == len(alone):
        with ThreadPoolExecutor(len(pair)) as pool:
            pair_verdicts = list(pool.map(session.ask_and_judge, pair))
        for probe, (state, words) in zip(pair, pair_verdicts, strict=True):
            if state == "nonsense":
                words = f"right alone, but beside another request: {words}"
            session.add(f"{probe.name} of two at once", state, words)
    elif not session.has_nonsense:
        session.add("two at once", "untold", "alone it was not all answered, or not soon")
    if session.no_logprobs:
        session.add("log-probabilities", "untold", session.no_logprobs)
    return SenseVerdict(tuple(session.looks), time.monotonic() - began)


def _judge_pooling(model: config.Model, key: str | None) -> SenseCheck:
    """Judge a model that does not generate text."""
    try:
        wrong = sense_of_vectors_and_orders.WRONG[model.kind](model, key, ANSWER_S)
    except openai_api.RequestRefusal as error:
        return SenseCheck(model.kind, "untold", str(error)[:160])
    except openai_api.NotReady as error:
        wrong = str(error)[:160]
    return SenseCheck(model.kind, "nonsense" if wrong else "sound", wrong)


@dataclass
class _Session:
    """A session with one engine: it asks, remembers refused options, and judges.

    Attributes:
        off: Whether a request may turn thinking off: some tokenizers refuse the key.
        no_logprobs: Why the engine gives no log-probabilities; "" while it may give them.
    """

    model: config.Model
    key: str | None
    off: bool = True
    no_logprobs: str = ""
    looks: list[SenseCheck] = field(default_factory=list)

    @property
    def has_nonsense(self) -> bool:
        return bool(self.looks) and self.looks[-1].state == "nonsense"

    def add(self, name: str, state: State, words: str) -> None:
        self.looks.append(SenseCheck(name, state, words))

    def ask_and_judge(self, probe: sense_questions.SenseQuestion) -> tuple[State, str]:
        """Ask and judge one question."""
        try:
            answer = self._answer(probe)
        except openai_api.RequestRefusal as error:
            return "untold", str(error)[:160]
        except openai_api.NotReady as error:
            return "nonsense", f"expected {probe.expected_answer}, no answer came ({error})"[:240]
        except ValueError as error:
            return "nonsense", f"expected {probe.expected_answer}, came {error}"
        if wrong := probe.fault_of_answer(answer):
            return "nonsense", f"expected {probe.expected_answer}, came {wrong}"
        why = probe.reason_undecided(answer)
        return ("untold" if why else "sound"), why

    def _answer(self, probe: sense_questions.SenseQuestion) -> sense_questions.SenseAnswer:
        """Return one answer.

        Raises:
            NotReady, RequestRefusal: The engine says so.
            ValueError: The response is no answer.
        """
        while True:
            more: dict[str, Any] = {"max_tokens": MOST_TOKENS}
            if self.off:
                more |= THINKING_OFF
            if not self.no_logprobs:
                more["logprobs"] = True
            body = {**more, **probe.more}
            try:
                raw = openai_api.raw_chat_answer(self.model, self.key, probe.prompt, ANSWER_S, body)
                return sense_questions.parse_answer(raw)
            except (openai_api.RequestRefusal, openai_api.NotReady) as answer:
                if not self._drop_refused_option(answer):
                    raise

    def _drop_refused_option(self, answer: openai_api.RequestRefusal | openai_api.NotReady) -> bool:
        """Leave out one key that the engine may have refused; tell whether there was one."""
        message, is_refused = str(answer), isinstance(answer, openai_api.RequestRefusal)
        has_failed = isinstance(answer, openai_api.NotReady) and answer.status >= 500
        if "JSON compliant" in message and not self.no_logprobs:
            raise ValueError(f"log-probabilities that are no numbers ({message[:120]})")
        if is_refused and self.off and "logprob" not in message:
            self.off = False
        elif not self.no_logprobs and (is_refused or has_failed):
            self.no_logprobs = message[:120]
        else:
            return False
        return True
