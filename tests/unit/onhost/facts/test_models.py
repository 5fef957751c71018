"""The models that run now, with the requests that a deploy would end."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from a_target import target

from lockstep.onhost import engines
from lockstep.onhost.core import config, errors
from lockstep.onhost.engine import openai_api
from lockstep.onhost.facts import ruler
from lockstep.onhost.systemd import units

QWEN, OTHER = (target(name, unit=f"{name}.service") for name in ("qwen", "other"))


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """A host of two models: unit → state."""
    states = {"qwen.service": "hot", "other.service": "off"}
    targets = {each.name: each for each in (QWEN, OTHER)}
    monkeypatch.setattr(config, "load_host", lambda _: SimpleNamespace(targets=targets))
    shown = {name: SimpleNamespace(state=state) for name, state in states.items()}
    monkeypatch.setattr(units, "show", lambda names: {name: shown[name] for name in names})
    return states


@pytest.mark.usefixtures("host")
def test_a_model_that_runs_is_told_with_its_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    counted = engines.counters(
        "vllm:num_requests_running 2\nvllm:num_requests_waiting 1\nvllm:generation_tokens_total 5\n"
    )
    monkeypatch.setattr(openai_api, "counters", lambda *_: counted)
    assert ruler.models(None) == {"qwen.service": {"name": "qwen", "requests": 3}}


@pytest.mark.usefixtures("host")
def test_of_an_engine_that_does_not_answer_nobody_can_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    def silent(*_: Any) -> None:
        raise openai_api.NotReady("no answer")

    monkeypatch.setattr(openai_api, "counters", silent)
    assert ruler.models(None) == {"qwen.service": {"name": "qwen", "requests": None}}


def test_a_host_without_a_deploy_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(_: Any) -> None:
        raise errors.Problem("no such file")

    monkeypatch.setattr(config, "load_host", none)
    assert ruler.models(None) == {}
