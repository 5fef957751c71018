"""Clients that send requests for random models to gateways, and the checks of each answer.

An answer is judged by the engine's own marks in it: its name, and the words of the request.
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
#: Requests in a row that a client sends for one model, as a person at work does.
RUN = 5
#: Seconds that a client waits for the next byte; the gateway's comments come more often.
SILENCE_S = 120.0
CHAT, PLAIN, MESSAGES = "/v1/chat/completions", "/v1/completions", "/v1/messages"
UNKNOWN = "no-such-model"
#: Models that get more requests than others.
BUSY = ("qwen", "mistral") * 2


@dataclass
class ThrownFault:
    """A fault that was planted.

    Attributes:
        number: Its place among the faults.
        name: Its kind.
        host: The host that had it.
        cuts: Whether it may break an answer off.
        grace_s: Seconds after its end in which its effects may come.
        began: Begin by `time.monotonic`.
        end_time: End by `time.monotonic`; None: it lasts.
    """

    number: int
    name: str
    host: str
    cuts: bool
    grace_s: float
    began: float
    end_time: float | None = None


@dataclass
class ProofRequest:
    """One request and its outcome.

    Attributes:
        outcome: "answered", "refused", "broken" (off by a fault), "hung up" (by the client).
        reason: The reason of a refusal.
        violation: A sentence, if a rule was broken.
    """

    number: int
    host: str
    model: str
    path: str
    stream: bool
    outcome: str = ""
    status: int = 0
    engine: str = ""
    reason: str = ""
    seconds: float = 0.0
    violation: str = ""


@dataclass
class Answer:
    """An answer, as far as it came."""

    status: int = 0
    kind: str = ""
    body: bytes = b""
    break_reason: str = ""


@dataclass
class Read:
    """The content of an answer: its text, the engines that gave it, and its end."""

    text: str = ""
    engines: set[str] = field(default_factory=set)
    answers: set[str] = field(default_factory=set)
    is_complete: bool = False
    error: str | None = None


class Proof:
    """The clients, and the outcomes of their requests.

    Args:
        addresses: Host → address and port of its gateway.
        keys: Keys of persons, who take turns.
        engines: Name that a request may have → engines that may answer it.
        seed: The same seed is the same requests.
        grace_s: See `ThrownFault`.
        enter: Called first in each client's thread.
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
        self.finished_requests: list[ProofRequest] = []
        self.thrown_faults: list[ThrownFault] = []

    def run(
        self,
        requests: int,
        faults: int,
        throw: Callable[[int, Callable[[str, str, bool], ThrownFault]], object],
        record: Path | None = None,
        progress: Callable[[], object] = lambda: None,
    ) -> None:
        """Send so many requests with so many faults among them; recorded ones are not repeated.

        Args:
            requests: Number of requests.
            faults: Number of faults.
            throw: Plants the fault of a number. Before the fault begins it reports the fault's
                name and host, and whether it may cut an answer off.
            record: File with a line for each request; its faults are beside it.
            progress: Called after each fault.

        An error of `throw` or `progress` ends the run as soon as the requests under way have ended.
        """
        of_faults = record.with_suffix(".faults") if record else None
        self.finished_requests = run_record.read(record, ProofRequest)
        self.thrown_faults = run_record.read(of_faults, ThrownFault)
        finished_numbers = {entry.number for entry in self.finished_requests}
        thrown_numbers = {entry.number for entry in self.thrown_faults}
        todo = [number for number in range(requests) if number not in finished_numbers]
        clients = [
            threading.Thread(target=self._client, args=(client, todo, record), daemon=True)
            for client in range(CLIENTS)
        ]
        for client in clients:
            client.start()
        try:
            for number in range(faults):
                at = (number + 0.5) * requests / faults
                while len(self.finished_requests) < at and any(
                    client.is_alive() for client in clients
                ):
                    time.sleep(0.05)
                if number not in thrown_numbers:
                    fault = self._throw_fault(number, throw)
                    run_record.add(of_faults, fault)
                progress()
        except BaseException:
            # The caller takes the hosts down now, and a later run sends the remaining requests.
            self._over.set()
            raise
        finally:
            for client in clients:
                client.join()

    @property
    def violations(self) -> list[str]:
        """The rules that were broken, a sentence each."""
        return [request.violation for request in self.finished_requests if request.violation]

    def _throw_fault(
        self, number: int, throw: Callable[[int, Callable[[str, str, bool], ThrownFault]], object]
    ) -> ThrownFault:
        def begin(name: str, host: str, cuts: bool) -> ThrownFault:
            with self._lock:
                self.thrown_faults.append(
                    ThrownFault(number, name, host, cuts, self._grace_s, time.monotonic())
                )
            return self.thrown_faults[-1]

        try:
            throw(number, begin)
        finally:
            self.thrown_faults[-1].end_time = time.monotonic()
        return self.thrown_faults[-1]

    def _client(self, client: int, todo: list[int], record: Path | None) -> None:
        self._enter()
        for number in todo[client::CLIENTS]:
            if self._over.is_set():
                return
            request, words = self._request(number)
            began = time.monotonic()
            hang_up = self.hang_up.acquire(blocking=False)
            answer = self._answer(request, words, self._keys[client % 2], hang_up)
            request.seconds = round(time.monotonic() - began, 2)
            with self._lock:
                thrown_faults = list(self.thrown_faults)
            if hang_up:
                request.outcome = "hung up"
            else:
                may = self._engines.get(request.model, set())
                judge_request(request, words, answer, may, thrown_faults, began, time.monotonic())
            with self._lock:
                self.finished_requests.append(request)
                run_record.add(record, request)

    def _request(self, number: int) -> tuple[ProofRequest, str]:
        run = random.Random(f"{self._seed} {number % CLIENTS} {number // CLIENTS // RUN}")
        model = run.choice([*self._engines, *BUSY])
        own = random.Random(f"{self._seed} {number}")
        if own.random() < 0.06:
            model = UNKNOWN
        host = own.choice(list(self._addresses))
        path = own.choice((CHAT, CHAT, PLAIN, MESSAGES))
        words = " ".join(f"{own.getrandbits(32):08x}" for _ in range(own.choice((4, 40, 300))))
        return ProofRequest(number, host, model, path, own.random() < 0.6), words

    def _answer(self, request: ProofRequest, words: str, key: str, hang_up: bool) -> Answer:
        text = f"Repeat these words:\n\n{words}"
        payload: dict[str, Any] = {
            "model": request.model,
            "stream": request.stream,
            "max_tokens": 9000,
        }
        payload |= (
            {"prompt": text}
            if request.path == PLAIN
            else {"messages": [{"role": "user", "content": text}]}
        )
        header = (
            ("X-Api-Key", key) if request.path == MESSAGES else ("Authorization", f"Bearer {key}")
        )
        headers = dict([header, ("Content-Type", "application/json")])
        result = Answer()
        line = HTTPConnection(*self._addresses[request.host], timeout=SILENCE_S)
        try:
            line.request("POST", request.path, json.dumps(payload), headers)
            if hang_up and not request.stream:
                return result
            answer = line.getresponse()
            result.status = answer.status
            result.kind = answer.headers.get("Content-Type", "")
            if hang_up:
                answer.read1(64)
                return result
            length = answer.length
            while part := answer.read1(65536):
                result.body += part
            if length is not None and len(result.body) < length:
                result.break_reason = f"{len(result.body)} of {length} bytes"
        except (OSError, HTTPException) as fault:
            result.break_reason = f"{type(fault).__name__}: {fault}"[:200]
        finally:
            line.close()
        return result

    def report(self) -> str:
        """The counts as text."""
        outcomes = Counter(request.outcome for request in self.finished_requests)
        by = Counter(
            request.engine for request in self.finished_requests if request.outcome == "answered"
        )
        why = Counter(
            f"{request.status} {request.reason[:110]}"
            for request in self.finished_requests
            if request.reason
        )
        fault_counts = Counter(fault.name for fault in self.thrown_faults)
        waits = sorted(
            request.seconds for request in self.finished_requests if request.outcome == "answered"
        ) or [0.0]
        lines = [
            f"requests      {len(self.finished_requests)}: {dict(outcomes.most_common())}",
            f"answered by   {dict(by.most_common())}",
            f"seconds       median {waits[len(waits) // 2]}, longest {waits[-1]}",
            f"faults        {sum(fault_counts.values())}: {dict(fault_counts.most_common())}",
            *(f"  {count:4}  {reason}" for reason, count in why.most_common(25)),
        ]
        return "\n".join(lines)


def judge_request(
    request: ProofRequest,
    words: str,
    answer: Answer,
    engines: set[str],
    thrown_faults: Iterable[ThrownFault],
    began: float,
    end_time: float,
) -> None:
    """Write the outcome into a request, and any broken rule.

    Args:
        request: The request.
        words: The words that its answer must repeat.
        answer: The answer as it came.
        engines: The engines that may answer it.
        thrown_faults: Faults until now.
        began: Time of sending, by `time.monotonic`.
        end_time: Time at which its answer ended or broke off.
    """
    request.status = answer.status
    parsed_answer = read(answer)
    request.engine = " AND ".join(sorted(parsed_answer.engines))
    wrong = _mixing_fault(words, parsed_answer) or (
        f"answered by {request.engine}" if parsed_answer.engines - engines else ""
    )
    if parsed_answer.error is not None and not answer.break_reason:
        request.outcome, request.reason = "refused", parsed_answer.error
        near = any(_reaches(fault, began, end_time) for fault in thrown_faults)
        wrong = wrong or _badly_refused(request, parsed_answer, near)
    elif parsed_answer.is_complete:
        request.outcome = "answered"
        if not wrong and parsed_answer.text != words:
            wrong = f"answered {parsed_answer.text[-200:]!r} to {words[-200:]!r}"
    else:
        request.outcome, request.reason = "broken", answer.break_reason or "it has no end"
        if not wrong and not any(_reaches(fault, began, end_time) for fault in thrown_faults):
            wrong = f"broken off without a fault: {request.reason}; {answer.body[-300:]!r}"
    if wrong:
        request.violation = (
            f"request {request.number} ({request.model} at {request.host}{request.path}): {wrong}"
        )


def _mixing_fault(words: str, parsed_answer: Read) -> str:
    if len(parsed_answer.answers) > 1 or len(parsed_answer.engines) > 1:
        return f"two answers in one: {parsed_answer.answers} of {parsed_answer.engines}"
    if not words.startswith(parsed_answer.text):
        return f"{parsed_answer.text[-200:]!r} is not the beginning of {words[:200]!r}"
    return ""


def _badly_refused(request: ProofRequest, parsed_answer: Read, near: bool) -> str:
    if parsed_answer.answers:
        return f"refused in the middle of an answer: {request.reason}"
    # A reason is a sentence.
    if len(request.reason.split()) < 3:
        return f"refused without a reason: {request.status} {request.reason!r}"
    unknown = request.model == UNKNOWN
    # A stream that waited has begun with 200.
    allowed_statuses = (404,) if unknown else (200, 429, 503, *((502,) if near else ()))
    return "" if request.status in allowed_statuses else f"{request.status}: {request.reason}"


def _reaches(fault: ThrownFault, began: float, end_time: float) -> bool:
    """Tell whether a fault that may cut an answer off was active in that time."""
    over = fault.end_time is not None and fault.end_time + fault.grace_s < began
    return fault.cuts and fault.began <= end_time and not over


def read(answer: Answer) -> Read:
    """Read an answer in either API's form, whole or streamed, as far as it came."""
    parsed_answer = Read()
    if answer.kind.startswith("text/event-stream"):
        for line in answer.body.decode("utf-8", "replace").split("\n")[:-1]:
            if line == "data: [DONE]":
                parsed_answer.is_complete = True
            elif line.startswith("data: "):
                _add(parsed_answer, json.loads(line[6:]))
    elif answer.body:
        try:
            _add(parsed_answer, json.loads(answer.body))
        except ValueError:
            parsed_answer.error = "" if not answer.break_reason else None
        parsed_answer.is_complete = (
            parsed_answer.error is None and not answer.break_reason and answer.status == 200
        )
    return parsed_answer


def _add(parsed_answer: Read, part: dict[str, Any]) -> None:
    error = part.get("error")
    if part.get("object") == "error":
        # SGLang's own form.
        error = part
    if error is not None:
        parsed_answer.error = str(error.get("message", "")) if isinstance(error, dict) else ""
        return
    message = part.get("message") if part.get("type") == "message_start" else part
    assert isinstance(message, dict)
    if name := message.get("id"):
        parsed_answer.answers.add(name)
        parsed_answer.engines.add(message.get("system_fingerprint") or name.partition(" ")[2])
    for choice in part.get("choices", ()):
        choice_body = choice.get("delta") or choice.get("message") or choice
        parsed_answer.text += choice_body.get("content") or choice_body.get("text") or ""
    for block in part.get("content", ()):
        parsed_answer.text += block["text"]
    parsed_answer.text += part.get("delta", {}).get("text", "")
    parsed_answer.is_complete = parsed_answer.is_complete or part.get("type") == "message_stop"
