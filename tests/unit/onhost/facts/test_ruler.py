"""What a measurement asks a host."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from a_probe import program

from lockstep.onhost.engines import ENGINES
from lockstep.onhost.facts import ruler

UNIT = "vllm-qwen36.service"
LINE = "2026-11-22T21:04:0{}.123456+0000 spark-1 vllm[9]: WARNING [jit_monitor.py:135] {}"
COMPILED = "Triton kernel JIT compilation during inference: fused_moe_kernel."


def asked(folder: Path, monkeypatch: pytest.MonkeyPatch, engine: str, journal: str) -> Any:
    """The last line about a compiler where the journal does this."""
    program(
        folder / "bin",
        "systemctl",
        f'printf "Id={UNIT}\\nActiveState=active\\nMainPID=0\\nInvocationID=aa\\n"',
    )
    program(folder / "bin", "journalctl", journal)
    targets = folder / "targets.json"
    targets.write_text(json.dumps({"targets": {"qwen": {"unit": UNIT}}}))
    monkeypatch.setenv("PATH", f"{folder}/bin:/usr/bin:/bin")
    monkeypatch.setattr(ruler, "_LOOK_S", 0.0)
    question = {"targets": str(targets), "compiled": ENGINES[engine].compiled}
    return ruler.read(question)["compiled"]


@pytest.mark.parametrize(
    ("engine", "journal", "found"),
    [
        (
            "vllm",
            "\n".join(
                f"echo '{LINE.format(second, said)}'"
                for second, said in enumerate((COMPILED, COMPILED, "Avg prompt throughput"))
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
    found: str | None,
) -> None:
    assert asked(tmp_path, monkeypatch, engine, journal) == found
