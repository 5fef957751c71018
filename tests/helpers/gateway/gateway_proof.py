"""Clients that send requests for random models to gateways, and what must hold of each answer.

An answer is judged by what the engine itself put into it: its name, and the words of the request.
"""

from __future__ import annotations

import json
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any

import run_record

CLIENTS = 4
#: Requests in a row that a client sends for one model, as somebody at work does.
RUN = 5
#: What a client waits for the next byte, seconds: comments come more often.
SILENCE_S = 120.0
CHAT, PLAIN, MESSAGES = "/v1/chat/completions", "/v1/completions", "/v1/messages"
UNKNOWN = "no-such-model"
#: Models that are asked for more often than others.
BUSY = ("qwen", "mistral") * 2


@dataclass
class Thrown:
    """A fault as it was.

    Attributes:
        number: Its place among the faults.
        name: Its kind.
        host: Where it was.
        cuts: Whether it may break an answer off.
        grace_s: So long after its end its effects may come, seconds.
        began: By `time.monotonic`.
        ended: By the same; None: it lasts.
    """

    number: int
    name: str
    host: str
    cuts: bool
    grace_s: float
    began: float
    ended: float | None = None


@dataclass
class Asked:
    """One request and what came of it.

    Attributes:
        outcome: "answered", "refused", "broken" (off by a fault), "hung up" (by the client).
        said: Of a refusal: its reason.
        violation: A sentence, where something did not hold.
    """

    number: int
    host: str
    model: str
    path: str
    stream: bool
    outcome: str = ""
    status: int = 0
    engine: str = ""
    said: str = ""
    seconds: float = 0.0
    violation: str = ""


@dataclass
class Answer:
    """What came back, as far as it came."""

    status: int = 0
    kind: str = ""
    body: bytes = b""
    broken: str = ""


@dataclass
class Read:
    """What an answer says: its text, who gave it, and how it ended."""

    text: str = ""
    engines: set[str] = field(default_factory=set)
    answers: set[str] = field(default_factory=set)
    ended: bool = False
    error: str | None = None


class Proof:
    """The clients, and what came of their requests.

    Args:
        addresses: Host → address and port of its gateway.
        keys: Of persons, who take turns.
        engines: Name that a request may have → engines that may answer it.
        seed: The same seed is the same requests.
        grace_s: See `Thrown`.
        enter: What each client's thread does first.
    """

    def __init__(
        self,
        addresses: Mapping[str, tuple[str, int]],
        keys: list[str],
        engines: Mapping[str, set[str]],
        seed: int,
        grace_s: float,
        enter: Callable[[], object] = lambda: None,
    ) -> None:
        self._addresses, self._keys, self._engines = dict(addresses), keys, engines
        self._seed, self._grace_s, self._enter = seed, grace_s, enter
        self._lock = threading.Lock()
        self._over = threading.Event()
        #: Clients that are to hang up, one for each release.
        self.hang_up = threading.Semaphore(0)
        self.asked: list[Asked] = []
        self.thrown: list[Thrown] = []

    def run(
        self,
        requests: int,
        faults: int,
        throw: Callable[[int, Callable[[str, str, bool], Thrown]], object],
        record: Path | None = None,
        progress: Callable[[], object] = lambda: None,
    ) -> None:
        """Send so many requests with so many faults among them; those of the record are done.

        Args:
            requests: How many.
            faults: How many.
            throw: Makes the fault of a number; tells its name, its host and whether it may cut an
                answer off before it begins.
            record: File with a line for each request; its faults are beside it.
            progress: Called after each fault.

        An error of `throw` or `progress` ends it as soon as the requests under way have ended.
        """
        of_faults = record.with_suffix(".faults") if record else None
        self.asked = run_record.read(record, Asked)
        self.thrown = run_record.read(of_faults, Thrown)
        asked = {one.number for one in self.asked}
        thrown = {one.number for one in self.thrown}
        todo = [number for number in range(requests) if number not in asked]
        clients = [
            threading.Thread(target=self._client, args=(each, todo, record), daemon=True)
            for each in range(CLIENTS)
        ]
        for each in clients:
            each.start()
        try:
            for number in range(faults):
                at = (number + 0.5) * requests / faults
                while len(self.asked) < at and any(each.is_alive() for each in clients):
                    time.sleep(0.05)
                if number not in thrown:
                    fault = self._thrown(number, throw)
                    run_record.add(of_faults, fault)
                progress()
        except BaseException:
            # Whoever called takes the hosts down now, and a later run asks the rest.
            self._over.set()
            raise
        finally:
            for each in clients:
                each.join()

    @property
    def violations(self) -> list[str]:
        """What did not hold, a sentence each."""
        return [one.violation for one in self.asked if one.violation]

    def _thrown(
        self, number: int, throw: Callable[[int, Callable[[str, str, bool], Thrown]], object]
    ) -> Thrown:
        def begin(name: str, host: str, cuts: bool) -> Thrown:
            with self._lock:
                self.thrown.append(
                    Thrown(number, name, host, cuts, self._grace_s, time.monotonic())
                )
            return self.thrown[-1]

        try:
            throw(number, begin)
        finally:
            self.thrown[-1].ended = time.monotonic()
        return self.thrown[-1]

    def _client(self, client: int, todo: list[int], record: Path | None) -> None:
        self._enter()
        for number in todo[client::CLIENTS]:
            if self._over.is_set():
                return
            one, words = self._request(number)
            began = time.monotonic()
            hang_up = self.hang_up.acquire(blocking=False)
            answer = self._answer(one, words, self._keys[client % 2], hang_up)
            one.seconds = round(time.monotonic() - began, 2)
            with self._lock:
                thrown = list(self.thrown)
            if hang_up:
                one.outcome = "hung up"
            else:
                may = self._engines.get(one.model, set())
                judged(one, words, answer, may, thrown, began, time.monotonic())
            with self._lock:
                self.asked.append(one)
                run_record.add(record, one)

    def _request(self, number: int) -> tuple[Asked, str]:
        run = random.Random(f"{self._seed} {number % CLIENTS} {number // CLIENTS // RUN}")
        model = run.choice([*self._engines, *BUSY])
        own = random.Random(f"{self._seed} {number}")
        if own.random() < 0.06:
            model = UNKNOWN
        host = own.choice(list(self._addresses))
        path = own.choice((CHAT, CHAT, PLAIN, MESSAGES))
        words = " ".join(f"{own.getrandbits(32):08x}" for _ in range(own.choice((4, 40, 300))))
        return Asked(number, host, model, path, own.random() < 0.6), words

    def _answer(self, one: Asked, words: str, key: str, hang_up: bool) -> Answer:
        text = f"Repeat these words:\n\n{words}"
        asked: dict[str, Any] = {"model": one.model, "stream": one.stream, "max_tokens": 9000}
        asked |= (
            {"prompt": text}
            if one.path == PLAIN
            else {"messages": [{"role": "user", "content": text}]}
        )
        header = ("X-Api-Key", key) if one.path == MESSAGES else ("Authorization", f"Bearer {key}")
        headers = dict([header, ("Content-Type", "application/json")])
        found = Answer()
        line = HTTPConnection(*self._addresses[one.host], timeout=SILENCE_S)
        try:
            line.request("POST", one.path, json.dumps(asked), headers)
            if hang_up and not one.stream:
                return found
            answer = line.getresponse()
            found.status = answer.status
            found.kind = answer.headers.get("Content-Type", "")
            if hang_up:
                answer.read1(64)
                return found
            length = answer.length
            while part := answer.read1(65536):
                found.body += part
            if length is not None and len(found.body) < length:
                found.broken = f"{len(found.body)} of {length} bytes"
        except (OSError, HTTPException) as fault:
            found.broken = f"{type(fault).__name__}: {fault}"[:200]
        finally:
            line.close()
        return found

    def report(self) -> str:
        """Everything that was counted."""
        outcomes = Counter(one.outcome for one in self.asked)
        by = Counter(one.engine for one in self.asked if one.outcome == "answered")
        why = Counter(f"{one.status} {one.said[:110]}" for one in self.asked if one.said)
        thrown = Counter(fault.name for fault in self.thrown)
        waits = sorted(one.seconds for one in self.asked if one.outcome == "answered") or [0.0]
        lines = [
            f"requests      {len(self.asked)}: {dict(outcomes.most_common())}",
            f"answered by   {dict(by.most_common())}",
            f"seconds       median {waits[len(waits) // 2]}, longest {waits[-1]}",
            f"faults        {sum(thrown.values())}: {dict(thrown.most_common())}",
            *(f"  {count:4}  {said}" for said, count in why.most_common(25)),
        ]
        return "\n".join(lines)


def judged(
    one: Asked,
    words: str,
    answer: Answer,
    engines: set[str],
    thrown: Iterable[Thrown],
    began: float,
    ended: float,
) -> None:
    """Write into a request what came of it, and what of that must not be.

    Args:
        one: The request.
        words: What its answer is to say.
        answer: What came.
        engines: Those that may answer it.
        thrown: Faults until now.
        began: When it was sent, by `time.monotonic`.
        ended: When its answer ended or broke off.
    """
    one.status = answer.status
    found = read(answer)
    one.engine = " AND ".join(sorted(found.engines))
    wrong = _mixed(words, found) or (f"answered by {one.engine}" if found.engines - engines else "")
    if found.error is not None and not answer.broken:
        one.outcome, one.said = "refused", found.error
        near = any(_reaches(fault, began, ended) for fault in thrown)
        wrong = wrong or _badly_refused(one, found, near)
    elif found.ended:
        one.outcome = "answered"
        if not wrong and found.text != words:
            wrong = f"answered {found.text[-200:]!r} to {words[-200:]!r}"
    else:
        one.outcome, one.said = "broken", answer.broken or "it has no end"
        if not wrong and not any(_reaches(fault, began, ended) for fault in thrown):
            wrong = f"broken off without a fault: {one.said}; {answer.body[-300:]!r}"
    if wrong:
        one.violation = f"request {one.number} ({one.model} at {one.host}{one.path}): {wrong}"


def _mixed(words: str, found: Read) -> str:
    if len(found.answers) > 1 or len(found.engines) > 1:
        return f"two answers in one: {found.answers} of {found.engines}"
    if not words.startswith(found.text):
        return f"{found.text[-200:]!r} is not the beginning of {words[:200]!r}"
    return ""


def _badly_refused(one: Asked, found: Read, near: bool) -> str:
    if found.answers:
        return f"refused in the middle of an answer: {one.said}"
    # A reason is a sentence.
    if len(one.said.split()) < 3:
        return f"refused without a reason: {one.status} {one.said!r}"
    unknown = one.model == UNKNOWN
    # A stream that waited has begun with 200.
    allowed = (404,) if unknown else (200, 429, 503, *((502,) if near else ()))
    return "" if one.status in allowed else f"{one.status}: {one.said}"


def _reaches(fault: Thrown, began: float, ended: float) -> bool:
    """Whether a fault that may cut an answer off was there in that time."""
    over = fault.ended is not None and fault.ended + fault.grace_s < began
    return fault.cuts and fault.began <= ended and not over


def read(answer: Answer) -> Read:
    """An answer in either API's form, whole or streamed, as far as it came."""
    found = Read()
    if answer.kind.startswith("text/event-stream"):
        for line in answer.body.decode("utf-8", "replace").split("\n")[:-1]:
            if line == "data: [DONE]":
                found.ended = True
            elif line.startswith("data: "):
                _add(found, json.loads(line[6:]))
    elif answer.body:
        try:
            _add(found, json.loads(answer.body))
        except ValueError:
            found.error = "" if not answer.broken else None
        found.ended = found.error is None and not answer.broken and answer.status == 200
    return found


def _add(found: Read, part: dict[str, Any]) -> None:
    error = part.get("error")
    if part.get("object") == "error":
        # SGLang's own form.
        error = part
    if error is not None:
        found.error = str(error.get("message", "")) if isinstance(error, dict) else ""
        return
    message = part.get("message") if part.get("type") == "message_start" else part
    assert isinstance(message, dict)
    if name := message.get("id"):
        found.answers.add(name)
        found.engines.add(message.get("system_fingerprint") or name.partition(" ")[2])
    for choice in part.get("choices", ()):
        said = choice.get("delta") or choice.get("message") or choice
        found.text += said.get("content") or said.get("text") or ""
    for block in part.get("content", ()):
        found.text += block["text"]
    found.text += part.get("delta", {}).get("text", "")
    found.ended = found.ended or part.get("type") == "message_stop"
