"""Reports about a small kernel; none runs here, for there is no GPU."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from lockstep.onhost.engines import EngineUnavailable
from lockstep.onhost.environment import engine_kernels


@pytest.mark.parametrize(
    ("does", "outcome"),
    [
        (lambda: 0.0, 0.0),
        (lambda: 0.4, "its result is 40.0% off PyTorch's; rounding makes at most 2%"),
        (lambda: float("nan"), "its result is nan% off PyTorch's; rounding makes at most 2%"),
        (EngineUnavailable("this vLLM has no a:b"), "not asked: this vLLM has no a:b"),
        (TypeError("no k\nmore"), "not asked: this vLLM takes other arguments: TypeError: no k"),
        (ModuleNotFoundError("flashinfer"), "ModuleNotFoundError: flashinfer"),
    ],
)
def test_a_kernel_s_end_is_told_in_one_line(
    does: Callable[[], float] | Exception, outcome: float | str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def differs(*_: object) -> float:
        if isinstance(does, Exception):
            raise does
        return does()

    monkeypatch.setattr(engine_kernels, "_differs", differs)
    assert engine_kernels.run("matrix product", {}, ()) == outcome


def test_a_part_without_a_kernel_is_not_asked() -> None:
    assert engine_kernels.run("attention NEW", {}, ()) == (
        "not asked: no small kernel of it is known here"
    )
