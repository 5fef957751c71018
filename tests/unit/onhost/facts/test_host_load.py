"""Questions of a measurement to a host, and models with requests that a deploy would end."""

from __future__ import annotations

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


def compiler_line(folder: Path, monkeypatch: pytest.MonkeyPatch, engine: str, journal: str) -> Any:
    """The last line about a compiler where the journal does this."""
    FakeSystemd(folder / "systemd", monkeypatch).unit(UNIT, ActiveState="active")
    program(folder / "bin", "journalctl", journal)
    models = folder / "models.json"
    models.write_text(json.dumps({"models": {"qwen": {"unit": UNIT}}}))
    monkeypatch.setenv("PATH", f"{folder}/bin:/usr/bin:/bin")
    monkeypatch.setattr(host_load, "_LOOK_S", 0.0)
    question = {
        "models": str(models),
        "compiler_pattern": engines.ENGINES[engine].compile_pattern,
    }
    return host_load.read(question)["compiler_line"]


@pytest.mark.parametrize(
    ("engine", "journal", "line"),
    [
        (
            "vllm",
            "\n".join(
                f"echo '{LINE.format(second, message)}'"
                for second, message in enumerate((COMPILED, COMPILED, "Avg prompt throughput"))
            ),
            LINE.format(1, COMPILED),
        ),
        ("vllm", "true", ""),
        ("vllm", "exit 1", None),
        ("llamacpp", f"echo '{COMPILED}'", None),
    ],
)
def test_the_last_kernel_that_a_request_waited_for(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    engine: str,
    journal: str,
    line: str | None,
) -> None:
    assert compiler_line(tmp_path, monkeypatch, engine, journal) == line


QWEN, OTHER = (model(name, unit=f"{name}.service") for name in ("qwen", "other"))


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """A host of two models: unit → state."""
    states = {"qwen.service": "hot", "other.service": "off"}
    models = {entry.name: entry for entry in (QWEN, OTHER)}
    monkeypatch.setattr(config, "load_host", lambda _: SimpleNamespace(models=models))
    unit_states = {name: SimpleNamespace(state=state) for name, state in states.items()}
    monkeypatch.setattr(
        units, "units_by_name", lambda names: {name: unit_states[name] for name in names}
    )
    return states


@pytest.mark.usefixtures("host")
@pytest.mark.parametrize(
    ("counters", "requests"),
    [("vllm:num_requests_running 2\nvllm:num_requests_waiting 1\n", 3), (None, None)],
    ids=["it answers", "it does not"],
)
def test_a_model_that_runs_is_told_with_its_requests_where_its_engine_answers(
    monkeypatch: pytest.MonkeyPatch, counters: str | None, requests: int | None
) -> None:
    def ask(*_: Any) -> Any:
        if counters is None:
            raise openai_api.NotReady("no answer")
        return engines.counters(f"{counters}vllm:generation_tokens_total 5\n")

    monkeypatch.setattr(openai_api, "counters", ask)
    assert host_load.hot_models(None) == {"qwen.service": {"name": "qwen", "requests": requests}}


def test_a_host_without_a_deploy_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(_: Any) -> None:
        raise errors.Problem("no such file")

    monkeypatch.setattr(config, "load_host", none)
    assert host_load.hot_models(None) == {}
