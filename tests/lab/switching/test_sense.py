"""Sense on hosts: a model that talks nonsense does not become hot."""

import json

import pytest

KNOBS = "/run/unified-memory/standin-sglang.json"
SENSE = "sudo -n /usr/bin/python3 /usr/local/lib/lockstep sense"
HOT = "http://127.0.0.1:30001/standin/knob"


@pytest.fixture(scope="module", autouse=True)
def hot(stack, first):
    """Make qwen hot on spark1; nothing is hot afterwards."""
    answer = stack.spark1.switch("qwen")
    assert answer.code == 0, answer.text
    yield stack.spark1
    stack.spark1.root(f"rm -f {KNOBS}")
    stack.spark1.switch("none")


def test_what_the_timer_finds_is_told_and_nothing_is_restarted(stack, hot):
    pid = hot.show("vllm-qwen36", "MainPID")
    hot.root(f"""curl -fsS -d '{{"corruption": "salad"}}' {HOT}""")
    # As if the last look had been yesterday.
    hot.root("rm /run/lockstep/findings/sense-*; systemctl start lockstep-sense.service")
    hot.logs("qwen talks nonsense", "-u lockstep-sense")
    assert "talks nonsense: echo" in hot.status()["models"]["qwen"]["sense"]
    assert hot.show("vllm-qwen36", "MainPID") == pid
    drift = json.loads(stack.diff("--json", "--limit", "spark1").out)
    assert "talks nonsense: echo" in json.dumps(drift)
    hot.root(f"""curl -fsS -d '{{"corruption": ""}}' {HOT}""")
    again = hot.run(f"{SENSE} qwen")
    assert again.code == 0, again.text
    assert "talks nonsense" not in json.dumps(hot.status())


def test_nonsense_fails_a_switch_and_a_fallback_on_another_engine_does_not_share_it(hot):
    """A fault of one engine's kernels affects every recipe that the engine runs."""
    talk = json.dumps({"corruption": "one-letter", "load_seconds": 0.2})
    hot.root(f"echo '{talk}' > {KNOBS}")
    answer = hot.switch("mistral")
    hot.root(f"rm -f {KNOBS}")
    assert answer.code == 3, answer.text
    output = " ".join(answer.text.split())
    assert "mistral talks nonsense: echo: expected the eight identifiers of the prompt" in output
    assert hot.status()["hot"] == "mistral-fallback"
