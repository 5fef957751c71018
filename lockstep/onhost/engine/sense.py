"""Ask a model that generates what has one right answer, so that nonsense shows within seconds.

The questions and their judges are in `probes`. A target with `sense: "record"` talks nonsense by
nature: it is judged by the log-probabilities that it had when its answers were first accepted.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Literal

from lockstep.onhost.core import config
from lockstep.onhost.engine import openai_api, probes, sense_pooling

# A hundred numbers are 300 tokens of Qwen and 400 of Mistral; thoughts that cannot be turned off
# need room too.
MOST_TOKENS = 1500
# Templates call it so or so, and leave alone what they do not know.
THINKING_OFF = {"chat_template_kwargs": {"enable_thinking": False, "thinking": False}}
# MOST_TOKENS at 5 tok/s. An engine that needs more is wedged.
ANSWER_S = 300.0
# After so long no further question begins: an engine of 3 tok/s is slow, and no liar.
ENOUGH_S = 300.0
# Of a model that is judged by its record: enough for `probes.LEADING`.
RECORD_TOKENS, RECORD_OTHERS = 16, 5
# Log-probabilities of one prompt were the same to the last digit in two passes of 420 answers of
# vLLM's CPU build, also after a start with other threads and without its prefix cache (2026-11-23).
# A step of bfloat16 is 0.03 at the logits seen there, so this is less than one. Beside another
# request a GPU adds in another order: several steps are none.
TOLERANCE, TOLERANCE_TOGETHER = 0.02, 0.15
RECORDED = "judged by its record only"

State = Literal["sound", "nonsense", "untold"]


@dataclass(frozen=True)
class Look:
    """What one question brought: which, how it was judged, and the words for it."""

    probe: str
    state: State
    words: str


@dataclass(frozen=True)
class Verdict:
    """What all questions brought.

    Attributes:
        looks: Each question; the first nonsense is the last one asked.
        by_record: Whether its record alone decided.
        seconds: How long it took.
        answers: Question → what is kept of its answer: "sha256", and "leading" as `probes.leading`
            gives it.
    """

    looks: tuple[Look, ...]
    by_record: bool = False
    seconds: float = 0.0
    answers: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @property
    def state(self) -> State:
        """Nonsense where any is; untold where nothing could be asked."""
        states = [look.state for look in self.looks]
        if "nonsense" in states:
            return "nonsense"
        return "sound" if "sound" in states else "untold"

    @property
    def words(self) -> str:
        """One sentence for the operator."""
        how = f" ({RECORDED})" if self.by_record else ""
        if wrong := self._of("nonsense"):
            return f"talks nonsense{how}: {wrong}"
        sound = ", ".join(look.probe for look in self.looks if look.state == "sound")
        said = f"makes sense{how}: {sound}" if sound else f"sense is not known{how}"
        silent = self._of("untold")
        return said + (f"; could not be asked: {silent}" if silent else "")

    def _of(self, state: State) -> str:
        every = (f"{look.probe}: {look.words}" for look in self.looks if look.state == state)
        return "; ".join(every)


def look(
    target: config.Target, key: str | None, record: Mapping[str, Any] | None = None
) -> Verdict:
    """Ask `target.url` all of its questions, and judge. Ends at the first nonsense.

    `record` is what was accepted of this target, as `Verdict.answers`; None: nothing was.
    """
    began = time.monotonic()
    if target.kind != "chat":
        return Verdict((_pooled(target, key),), seconds=time.monotonic() - began)
    session = _Session(target, key, record or {})
    if not target.logprobs:
        session.no_logprobs = "this engine ends when it is asked for them while drafting"
    pair = (probes.ECHO, probes.COUNT)
    alone = pair if session.by_record or not target.tools else (*pair, probes.TOOL)
    for probe in alone:
        if session.ended or time.monotonic() - began > ENOUGH_S:
            break
        session.add(probe.name, *session.judged(probe))
    if all(look.state == "sound" for look in session.looks) and len(session.looks) == len(alone):
        session.tolerance = TOLERANCE_TOGETHER
        with ThreadPoolExecutor(len(pair)) as pool:
            both = list(pool.map(session.judged, pair))
        for probe, (state, words) in zip(pair, both, strict=True):
            if state == "nonsense":
                words = f"right alone, but beside another request: {words}"
            session.add(f"{probe.name} of two at once", state, words)
    elif not session.ended:
        session.add("two at once", "untold", "alone it was not all answered, or not soon")
    if session.no_logprobs:
        session.add("log-probabilities", "untold", session.no_logprobs)
    seconds = time.monotonic() - began
    return Verdict(tuple(session.looks), session.by_record, seconds, session.answers)


def _pooled(target: config.Target, key: str | None) -> Look:
    """What a model that generates nothing was judged."""
    if target.sense == "record":
        return Look(target.kind, "untold", "a record holds answers in words only")
    try:
        wrong = sense_pooling.WRONG[target.kind](target, key, ANSWER_S)
    except openai_api.Refused as said:
        return Look(target.kind, "untold", str(said)[:160])
    except openai_api.NotReady as said:
        wrong = str(said)[:160]
    return Look(target.kind, "nonsense" if wrong else "sound", wrong)


@dataclass
class _Session:
    """Asks one engine, remembers what it does not take, and judges.

    Attributes:
        record: What was accepted of it; {}: nothing was.
        off: Whether a request may turn thinking off: some tokenizers refuse the key.
        no_logprobs: Why it gives no log-probabilities; "" while it may.
    """

    target: config.Target
    key: str | None
    record: Mapping[str, Any]
    off: bool = True
    no_logprobs: str = ""
    tolerance: float = TOLERANCE
    looks: list[Look] = field(default_factory=list)
    answers: dict[str, Mapping[str, Any]] = field(default_factory=dict)

    @property
    def by_record(self) -> bool:
        return self.target.sense == "record"

    @property
    def ended(self) -> bool:
        return bool(self.looks) and self.looks[-1].state == "nonsense"

    def add(self, name: str, state: State, words: str) -> None:
        self.looks.append(Look(name, state, words))

    def judged(self, probe: probes.Probe) -> tuple[State, str]:
        """What a question brought. The first answer is kept, which was asked for alone."""
        try:
            answer = self._answer(probe)
        except openai_api.Refused as said:
            return "untold", str(said)[:160]
        except openai_api.NotReady as said:
            return "nonsense", f"expected {probe.expected}, no answer came ({said})"[:240]
        except ValueError as said:
            return "nonsense", f"expected {probe.expected}, came {said}"
        kept = {"sha256": answer.sha256, "leading": probes.leading(answer)}
        self.answers.setdefault(probe.name, kept)
        if self.by_record:
            return self._compared(probe, answer)
        if wrong := probe.wrong(answer):
            return "nonsense", f"expected {probe.expected}, came {wrong}"
        why = probe.untold(answer)
        return ("untold" if why else "sound"), why

    def _answer(self, probe: probes.Probe) -> probes.Answer:
        """One answer. NotReady or Refused as the engine says, ValueError for what is no answer."""
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
                raw = openai_api.chat(self.target, self.key, probe.prompt, ANSWER_S, body)
                return probes.parsed(raw)
            except (openai_api.Refused, openai_api.NotReady) as answer:
                if not self._without(str(answer), isinstance(answer, openai_api.Refused)):
                    raise

    def _without(self, said: str, refused: bool) -> bool:
        """Leave out one key that the engine may have refused; whether there was one."""
        if "JSON compliant" in said and not self.no_logprobs:
            raise ValueError(f"log-probabilities that are no numbers ({said[:120]})")
        if refused and self.off and "logprob" not in said:
            self.off = False
        elif not self.no_logprobs and (refused or said.startswith("HTTP 5")):
            self.no_logprobs = said[:120]
        else:
            return False
        return True

    def _compared(self, probe: probes.Probe, answer: probes.Answer) -> tuple[State, str]:
        """Judged by its record."""
        if not answer.tokens:
            return "nonsense", "no token came"
        if wrong := probes.not_finite(answer):
            return "nonsense", f"came {wrong}"
        kept = self.record.get(probe.name)
        # A first answer without them would be a record by which nothing is judged ever after.
        if not (answer.leading and (kept is None or kept["leading"])):
            return "untold", "without log-probabilities nothing can be compared"
        if kept is None:
            return "sound", ""
        differs = probes.differs(kept, answer, self.tolerance)
        return ("nonsense", f"differs from its record: {differs}") if differs else ("sound", "")
