"""Questions with one right answer for a model that generates, to find nonsense within seconds.

The questions and their judges are in `sense_questions`. A model with `sense: "record"` talks
nonsense by nature. Its judge is the log-probabilities that it had when its answers were first
accepted.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Literal

from lockstep.onhost.core import config
from lockstep.onhost.engine import openai_api, sense_pooling, sense_questions

# A hundred numbers are 300 tokens of Qwen and 400 of Mistral. Thoughts that cannot be turned off
# need room too.
MOST_TOKENS = 1500
# Templates use either name, and ignore names that they do not know.
THINKING_OFF = {"chat_template_kwargs": {"enable_thinking": False, "thinking": False}}
# MOST_TOKENS at 5 tok/s. An engine that needs more is wedged.
ANSWER_S = 300.0
# After this time no further question begins: an engine of 3 tok/s is slow, but does not lie.
ENOUGH_S = 300.0
# For a model that is judged by its record: enough for `sense_questions.LEADING`.
RECORD_TOKENS, RECORD_OTHERS = 16, 5
# Log-probabilities of one prompt were the same to the last digit in two passes of 420 answers of
# vLLM's CPU build, also after a start with other threads and without its prefix cache (2026-11-23).
# A step of bfloat16 is 0.03 at the logits seen there, so TOLERANCE is less than one step. Beside
# another request a GPU adds in another order: then several steps do not count.
TOLERANCE, TOLERANCE_TOGETHER = 0.02, 0.15
RECORD_ONLY = "judged by its record only"

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
        by_record: Whether the record alone decided.
        seconds: Duration of the whole check.
        answers: Question → the kept part of its answer: "sha256", and "leading" as
            `sense_questions.leading_tokens` gives it.
    """

    looks: tuple[SenseCheck, ...]
    by_record: bool = False
    seconds: float = 0.0
    answers: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

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
        how = f" ({RECORD_ONLY})" if self.by_record else ""
        if wrong := self._checks_text("nonsense"):
            return f"talks nonsense{how}: {wrong}"
        sound = ", ".join(look.probe for look in self.looks if look.state == "sound")
        sentence = f"makes sense{how}: {sound}" if sound else f"sense is not known{how}"
        silent = self._checks_text("untold")
        return sentence + (f"; could not be asked: {silent}" if silent else "")

    def _checks_text(self, state: State) -> str:
        every = (f"{look.probe}: {look.words}" for look in self.looks if look.state == state)
        return "; ".join(every)


def judge_engine_sense(
    model: config.Model, key: str | None, record: Mapping[str, Any] | None = None
) -> SenseVerdict:
    """Ask `model.url` all of the model's questions, and judge; end at the first nonsense.

    `record` is the accepted answers of this model, as `SenseVerdict.answers`; None without any.
    """
    began = time.monotonic()
    if model.kind != "chat":
        return SenseVerdict((_judge_pooling(model, key),), seconds=time.monotonic() - began)
    session = _Session(model, key, record or {})
    if not model.logprobs:
        session.no_logprobs = "this engine ends when it is asked for them while drafting"
    pair = (sense_questions.ECHO, sense_questions.COUNT)
    alone = pair if session.by_record or not model.tools else (*pair, sense_questions.TOOL)
    for probe in alone:
        if session.has_ended or time.monotonic() - began > ENOUGH_S:
            break
        session.add(probe.name, *session.judge_probe(probe))
    if all(look.state == "sound" for look in session.looks) and len(session.looks) == len(alone):
        session.tolerance = TOLERANCE_TOGETHER
        with ThreadPoolExecutor(len(pair)) as pool:
            pair_verdicts = list(pool.map(session.judge_probe, pair))
        for probe, (state, words) in zip(pair, pair_verdicts, strict=True):
            if state == "nonsense":
                words = f"right alone, but beside another request: {words}"
            session.add(f"{probe.name} of two at once", state, words)
    elif not session.has_ended:
        session.add("two at once", "untold", "alone it was not all answered, or not soon")
    if session.no_logprobs:
        session.add("log-probabilities", "untold", session.no_logprobs)
    seconds = time.monotonic() - began
    return SenseVerdict(tuple(session.looks), session.by_record, seconds, session.answers)


def _judge_pooling(model: config.Model, key: str | None) -> SenseCheck:
    """Judge a model that does not generate text."""
    if model.sense == "record":
        return SenseCheck(model.kind, "untold", "a record holds answers in words only")
    try:
        wrong = sense_pooling.WRONG[model.kind](model, key, ANSWER_S)
    except openai_api.RequestRefusal as error:
        return SenseCheck(model.kind, "untold", str(error)[:160])
    except openai_api.NotReady as error:
        wrong = str(error)[:160]
    return SenseCheck(model.kind, "nonsense" if wrong else "sound", wrong)


@dataclass
class _Session:
    """A session with one engine: it asks, remembers refused options, and judges.

    Attributes:
        record: The accepted answers of the model; {} if there are none.
        off: Whether a request may turn thinking off: some tokenizers refuse the key.
        no_logprobs: Why the engine gives no log-probabilities; "" while it may give them.
    """

    model: config.Model
    key: str | None
    record: Mapping[str, Any]
    off: bool = True
    no_logprobs: str = ""
    tolerance: float = TOLERANCE
    looks: list[SenseCheck] = field(default_factory=list)
    answers: dict[str, Mapping[str, Any]] = field(default_factory=dict)

    @property
    def by_record(self) -> bool:
        return self.model.sense == "record"

    @property
    def has_ended(self) -> bool:
        return bool(self.looks) and self.looks[-1].state == "nonsense"

    def add(self, name: str, state: State, words: str) -> None:
        self.looks.append(SenseCheck(name, state, words))

    def judge_probe(self, probe: sense_questions.SenseQuestion) -> tuple[State, str]:
        """Ask and judge one question, and keep its first answer, which was asked for alone."""
        try:
            answer = self._answer(probe)
        except openai_api.RequestRefusal as error:
            return "untold", str(error)[:160]
        except openai_api.NotReady as error:
            return "nonsense", f"expected {probe.expected_answer}, no answer came ({error})"[:240]
        except ValueError as error:
            return "nonsense", f"expected {probe.expected_answer}, came {error}"
        answer_record = {"sha256": answer.sha256, "leading": sense_questions.leading_tokens(answer)}
        self.answers.setdefault(probe.name, answer_record)
        if self.by_record:
            return self._compare_with_record(probe, answer)
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
            more: dict[str, Any] = {"max_tokens": RECORD_TOKENS if self.by_record else MOST_TOKENS}
            if self.off:
                more |= THINKING_OFF
            if not self.no_logprobs:
                more["logprobs"] = True
                if self.by_record:
                    more["top_logprobs"] = RECORD_OTHERS
            body = {**more, **probe.more}
            try:
                raw = openai_api.chat(self.model, self.key, probe.prompt, ANSWER_S, body)
                return sense_questions.parse_answer(raw)
            except (openai_api.RequestRefusal, openai_api.NotReady) as answer:
                if not self._drop_refused_option(
                    str(answer), isinstance(answer, openai_api.RequestRefusal)
                ):
                    raise

    def _drop_refused_option(self, message: str, is_refused: bool) -> bool:
        """Leave out one key that the engine may have refused; tell whether there was one."""
        if "JSON compliant" in message and not self.no_logprobs:
            raise ValueError(f"log-probabilities that are no numbers ({message[:120]})")
        if is_refused and self.off and "logprob" not in message:
            self.off = False
        elif not self.no_logprobs and (is_refused or message.startswith("HTTP 5")):
            self.no_logprobs = message[:120]
        else:
            return False
        return True

    def _compare_with_record(
        self, probe: sense_questions.SenseQuestion, answer: sense_questions.SenseAnswer
    ) -> tuple[State, str]:
        """Judge an answer by the model's record."""
        if not answer.tokens:
            return "nonsense", "no token came"
        if wrong := sense_questions.nonfinite_token(answer):
            return "nonsense", f"came {wrong}"
        kept_answer = self.record.get(probe.name)
        # A first answer without log-probabilities would become a record that can never judge.
        if not (answer.leading and (kept_answer is None or kept_answer["leading"])):
            return "untold", "without log-probabilities nothing can be compared"
        if kept_answer is None:
            return "sound", ""
        differs = sense_questions.difference_from_record(kept_answer, answer, self.tolerance)
        return ("nonsense", f"differs from its record: {differs}") if differs else ("sound", "")
