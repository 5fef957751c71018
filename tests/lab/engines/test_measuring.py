"""`lockstep bench HOST` on a stand-in Spark: through SSH to its loopback."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from stack import Host, Stack

PORT = 30001


@pytest.fixture(scope="module")
def hot(stack: Stack, first: object) -> Iterator[Host]:
    """spark1 serves qwen."""
    answer = stack.spark1.switch("qwen")
    assert answer.code == 0, answer.text
    yield stack.spark1
    stack.spark1.switch("none")


def test_the_hot_model_of_a_host_is_measured_by_its_lock(
    stack: Stack, hot: Host, tmp_path: Path
) -> None:
    names = [word for name in ("decode", "speculation", "vision") for word in ("--suite", name)]
    code, suites, output = stack.bench(tmp_path / "r.json", *names)
    assert code == 0, output
    subject = json.loads((tmp_path / "r.json").read_text())["subject"]
    running = hot.root(
        "tr '\\0' '\\n' < /proc/$(systemctl show -p MainPID --value vllm-qwen36)/environ"
        " | sed -n s/^LOCKSTEP_RESTART_KEY=//p"
    )
    assert subject["restart_key"] == running.strip()
    assert (subject["model"], subject["version"]) == ("qwen", "0.32.0")
    checks = {check["name"]: check["verdict"] for check in suites["decode"]["checks"]}
    sound = ("test_question", "model", "lock", "requests", "tokens", "alone", "clocks", "answers")
    assert [checks[name] for name in sound] == ["ok"] * len(sound)
    technical = suites["decode"]["summary"]["by_shape"]["technical"]
    assert len(technical["decode_tok_s"]["samples"]) == 3
    assert technical["first_token_s"], "the stand-in sends each token, thoughts or not"
    # The stand-in drafts three tokens and accepts two.
    acceptance = suites["speculation"]["summary"]["acceptance"]["mean"]
    assert acceptance == pytest.approx(2 / 3, abs=0.01)
    assert suites["vision"]["verdict"] == "refused"
    assert "HTTP 400" in suites["vision"]["refusal"]


def test_somebody_else_in_the_engine_is_no_score(stack: Stack, hot: Host, tmp_path: Path) -> None:
    """Engines that are broken: tests/unit/bench/test_ruler.py."""
    body = {"messages": [{"role": "user", "content": "x"}], "max_tokens": 20000, "ignore_eos": True}
    hot.root(
        "systemd-run --quiet --collect --unit=somebody curl -fsS -o /dev/null"
        f" -d {shlex.quote(json.dumps(body))} http://127.0.0.1:{PORT}/v1/chat/completions"
    )
    try:
        code, suites, output = stack.bench(tmp_path / "r.json", "--suite", "decode")
    finally:
        hot.root("systemctl stop somebody")
    assert code == 2, output
    assert suites["decode"]["summary"] == {}
    assert "suspect alone: 1 request(s) of somebody else" in " ".join(output.split())
