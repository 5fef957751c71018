"""Violations that the long proof of the gateway finds; the proof itself is a script for the lab."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from gateway_proof import (
    CHAT,
    MESSAGES,
    PLAIN,
    Answer,
    Proof,
    ProofRequest,
    ThrownFault,
    judge_request,
    read,
)
from local_server import as_json, serving

WORDS = "0123abcd 4567ef01"
ENGINES = {"qwen": {"vllm Q"}, "auto": {"vllm Q", "sglang M"}}
BREAKS = [ThrownFault(0, "engine killed", "spark1", True, 20.0, began=90.0, end_time=91.0)]


def chunk(text: str, answer: str = "a1", engine: str = "vllm Q") -> dict[str, Any]:
    choices = [{"delta": {"content": text}}]
    return {"id": answer, "system_fingerprint": engine, "choices": choices}


def stream(*parts: dict[str, Any], end: str = "data: [DONE]\n\n", error: str = "") -> Answer:
    text = ": waits\n\n" + "".join(f"data: {json.dumps(part)}\n\n" for part in parts) + end
    return Answer(200, "text/event-stream; charset=utf-8", text.encode(), error)


def refusal(status: int, message: str, kind: str = "application/json") -> Answer:
    return Answer(status, kind, json.dumps({"error": {"message": message}}).encode())


def verdict(
    answer: Answer, model: str = "qwen", path: str = CHAT, faults: list[ThrownFault] = BREAKS[:0]
) -> ProofRequest:
    request = ProofRequest(0, "spark1", model, path, stream=True)
    judge_request(
        request, WORDS, answer, ENGINES.get(model, set()), faults, began=100.0, end_time=101.0
    )
    return request


def test_an_answer_of_the_right_engine_with_its_own_words_holds() -> None:
    request = verdict(stream(chunk("0123abcd "), chunk("4567ef01")))
    assert (request.outcome, request.violation, request.engine) == ("answered", "", "vllm Q")
    start = {"type": "message_start", "message": {"id": "msg_1 vllm Q", "content": []}}
    delta = {"type": "content_block_delta", "delta": {"type": "text_delta", "text": WORDS}}
    content = read(stream(start, delta, {"type": "message_stop"}, end=""))
    assert (content.text, content.engines, content.is_complete) == (WORDS, {"vllm Q"}, True)
    assert verdict(stream(start, delta, end=""), path=MESSAGES).outcome == "broken"
    assert verdict(refusal(404, "there is no such model"), "no-such-model").violation == ""
    assert "answered by vllm Q" in verdict(stream(chunk(WORDS)), "no-such-model").violation


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (stream(chunk(WORDS, engine="sglang M")), "answered by sglang M"),
        (stream(chunk("0123abcd "), chunk("4567ef01", answer="a2")), "two answers in one"),
        (stream(chunk("0123abcd "), chunk("4567ef01", engine="sglang M")), "two answers in one"),
        (stream(chunk("0123abcd ffffffff")), "is not the beginning of"),
        (stream(chunk("0123abcd ")), "answered '0123abcd '"),
        (stream(chunk("0123abcd "), end=""), "broken off without a fault"),
        (refusal(503, ""), "refused without a reason"),
        (refusal(404, "no model of this name here"), "404: no model"),
        (refusal(500, "something broke in the gateway"), "500: something"),
        (
            stream(chunk("0123abcd "), {"error": {"message": "it went wrong there"}}, end=""),
            "refused in the middle",
        ),
        (Answer(503, "text/plain", b"down"), "refused without a reason"),
    ],
)
def test_what_is_wrong_with_an_answer(answer: Answer, message: str) -> None:
    assert message in verdict(answer, faults=BREAKS[:0]).violation


def test_only_a_fault_that_cuts_excuses_an_answer_without_an_end() -> None:
    cut = stream(chunk("0123abcd "), end="", error="ConnectionResetError: ")
    assert verdict(cut, faults=BREAKS).outcome == "broken"
    assert verdict(cut, faults=BREAKS).violation == ""
    hang_up = [ThrownFault(0, "client hangs up", "spark1", False, 20.0, began=100.0)]
    earlier_faults = [
        ThrownFault(0, "engine killed", "spark1", True, 20.0, began=10.0, end_time=11.0)
    ]
    later_faults = [ThrownFault(0, "engine killed", "spark1", True, 20.0, began=102.0)]
    for faults in (hang_up, earlier_faults, later_faults):
        assert "without a fault" in verdict(cut, faults=faults).violation
    # No fault excuses words of somebody else.
    wrong = stream(chunk("ffffffff"), end="", error="ConnectionResetError: ")
    assert "is not the beginning" in verdict(wrong, faults=BREAKS).violation


def test_a_fault_that_cannot_be_made_ends_it_and_the_next_run_asks_the_rest(tmp_path: Path) -> None:
    record = tmp_path / "soak.jsonl"
    refusal_reply = as_json({"error": {"message": "no model of this name here"}})
    with serving(dict.fromkeys((CHAT, MESSAGES, PLAIN), refusal_reply)) as server:
        where = urlsplit(server.url)
        hosts = {"spark1": (str(where.hostname), int(where.port or 0))}

        def throw(number: int, begin: Any) -> None:
            begin("memory", "spark1", False)
            raise OSError("the lab does not answer")

        proof = Proof(hosts, ["a", "b"], {"qwen": set()}, 1, 0.0)
        with pytest.raises(OSError, match="does not answer"):
            proof.run(200, 10, throw, record)
        numbers = [json.loads(line)["number"] for line in record.read_text().splitlines()]
        assert 10 <= len(numbers) < 100
        assert not record.with_suffix(".faults").exists()
        again = Proof(hosts, ["a", "b"], {"qwen": set()}, 1, 0.0)
        again.run(200, 10, lambda number, begin: begin("memory", "spark1", False), record)
    assert sorted(request.number for request in again.finished_requests) == list(range(200))
    assert len(record.with_suffix(".faults").read_text().splitlines()) == 10
