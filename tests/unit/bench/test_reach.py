"""The way to a host that is measured: where it is barred, the message says what to do."""

from __future__ import annotations

import subprocess
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from a_probe import program
from a_spark import pins_for, spark

from lockstep.bench import reach
from lockstep.bench.results import ResultError
from lockstep.fleet.login import Login
from lockstep.onhost.core.config import Model
from lockstep.onhost.engines import ENGINES

SPARK = spark()
PLACE = reach.BenchAddress(
    SPARK, Login("spark-1", ("ssh", "--", "spark-1")), pins_for(SPARK), Path("some.lock.yaml")
)
KEY = "/etc/lockstep/secrets/api-key"


def refusal(folder: Path, monkeypatch: pytest.MonkeyPatch, ssh: str) -> str:
    """The message when ssh does this while the API key is read."""
    program(folder / "bin", "ssh", ssh)
    monkeypatch.setenv("PATH", f"{folder}/bin:/usr/bin:/bin")
    with pytest.raises(ResultError) as fault:
        PLACE.secret(KEY)
    return str(fault.value)


@pytest.mark.parametrize(
    ("ssh", "message"),
    [
        ("echo cat: No such file >&2; exit 1", "found cat: No such file. Deploy to this host"),
        (
            "echo timed out >&2; exit 255",
            "found no connection: timed out. Try `ssh` to the host by hand.",
        ),
    ],
)
def test_a_key_that_cannot_be_read(
    ssh: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusal_text = refusal(tmp_path, monkeypatch, ssh)
    assert refusal_text.startswith(f"spark-1:{KEY}: the API key cannot be read; {message}")


def test_a_host_that_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def silent(argv: list[str], **options: Any) -> None:
        raise subprocess.TimeoutExpired(argv, options["timeout"])

    monkeypatch.setattr(subprocess, "run", silent)
    for ask in (PLACE.probe, lambda: PLACE.secret(KEY)):
        with pytest.raises(ResultError, match=r"within 60 s\. Try `ssh` to "):
            ask()


def test_the_host_is_asked_for_what_the_log_of_its_engine_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    requests = []

    def read(where: Login, name: str, question: dict[str, Any], **_: Any) -> tuple[Any, None]:
        requests.append(question["compiler_pattern"])
        return {"hot": "a.service", "compiler_line": "21:04 JIT compilation"}, None

    monkeypatch.setattr(reach.hosts, "read", read)
    assert PLACE.look("vllm").compiler_line == "21:04 JIT compilation"
    PLACE.look("an engine of somebody else")
    assert requests == [ENGINES["vllm"].compile_pattern, ""]


def test_a_model_that_gives_no_tokens_is_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    model = Model("vectors", "v.service", "http://127.0.0.1:1", "m", 1.0, kind="embedding")
    answer = {"hot": model.unit, "models": {model.name: asdict(model)}}
    monkeypatch.setattr(reach.hosts, "read", lambda *_, **__: (answer, None))
    with pytest.raises(ResultError, match=r"vectors gives no tokens.*found kind embedding"):
        reach.hot(PLACE)
