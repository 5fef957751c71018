"""Questions of a measurement to a host, and models with requests that a deploy would end."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from a_model import model
from a_probe import program
from onhost_fakes import FakeSystemd

from lockstep.onhost import engines
from lockstep.onhost.core import config, errors
from lockstep.onhost.engine import openai_api
from lockstep.onhost.facts import host_load
from lockstep.onhost.systemd import units

UNIT = "vllm-qwen36.service"
LINE = "2026-11-22T21:04:0{}.123456+0000 spark-1 vllm[9]: WARNING [jit_monitor.py:135] {}"
COMPILED = "Triton kernel JIT compilation during inference: fused_moe_kernel."
LINES = [
    LINE.format(second, message)
    for second, message in enumerate((COMPILED, COMPILED, "Avg prompt throughput"))
]


def compiler_line(folder: Path, monkeypatch: pytest.MonkeyPatch, engine: str, journal: str) -> Any:
    """The last line about a compiler where the journal does this."""
    FakeSystemd(folder / "systemd", monkeypatch).unit(UNIT, ActiveState="active")
    program(folder / "bin", "journalctl", journal)
    models = folder / "models.json"
    models.write_text(json.dumps({"models": {"qwen": {"unit": UNIT}}}))
    monkeypatch.setenv("PATH", f"{folder}/bin:/usr/bin:/bin")
    monkeypatch.setattr(host_load, "_LOOK_S", 0.0)
    pattern = engines.ENGINES[engine].compile_pattern
    return host_load.read({"models": str(models), "compiler_pattern": pattern})["compiler_line"]


@pytest.mark.parametrize(
    ("engine", "journal", "line"),
    [
        ("vllm", "\n".join(f"echo '{line}'" for line in LINES), LINES[1]),
        ("vllm", "true", ""),
        ("vllm", "exit 1", None),
        ("llamacpp", f"echo '{COMPILED}'", None),
    ],
)
def test_the_last_kernel_that_a_request_waited_for(tmp_path, monkeypatch, engine, journal, line):
    assert compiler_line(tmp_path, monkeypatch, engine, journal) == line


def test_a_model_that_runs_is_told_with_its_requests_where_its_engine_answers(monkeypatch):
    states = {"qwen.service": "hot", "other.service": "off"}
    models = {name: model(name, unit=f"{name}.service") for name in ("qwen", "other")}
    monkeypatch.setattr(config, "load_host", lambda _: SimpleNamespace(models=models))
    monkeypatch.setattr(
        units, "units_by_name", lambda names: {n: SimpleNamespace(state=states[n]) for n in names}
    )
    answers = iter(["running 2\nvllm:num_requests_waiting 1\nvllm:generation_tokens_total 5\n"])

    def ask(*_: Any) -> Any:
        for answer in answers:
            return engines.counters(f"vllm:num_requests_{answer}")
        raise openai_api.NotReady("no answer")

    monkeypatch.setattr(openai_api, "counters", ask)
    assert host_load.hot_models(None) == {"qwen.service": {"name": "qwen", "requests": 3}}
    assert host_load.hot_models(None) == {"qwen.service": {"name": "qwen", "requests": None}}

    def lack_file(_: Any) -> None:
        raise errors.Problem("no such file")

    monkeypatch.setattr(config, "load_host", lack_file)
    assert host_load.hot_models(None) == {}, "a host without a deploy"
