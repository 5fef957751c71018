"""Reports about a small kernel; none runs here, for there is no GPU."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from lockstep.onhost.engines import EngineUnavailable
from lockstep.onhost.environment import kernel_self_test


@pytest.mark.parametrize(
    ("does", "outcome"),
    [
        (lambda: 0.0, 0.0),
        (lambda: 0.4, "its result is 40.0% off PyTorch's; rounding makes at most 2%"),
        (lambda: float("nan"), "its result is nan% off PyTorch's; rounding makes at most 2%"),
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

    monkeypatch.setattr(kernel_self_test, "_kernel_difference", differs)
    assert kernel_self_test.compare_kernel("matrix product", {}, ()) == outcome


@pytest.mark.parametrize(
    ("part", "fault", "reason"),
    [
        ("matrix product", EngineUnavailable("this vLLM has no a:b"), "this vLLM has no a:b"),
        (
            "matrix product",
            TypeError("no k\nmore"),
            "this vLLM takes other arguments: TypeError: no k",
        ),
        ("attention NEW", None, "no small kernel of it is known here"),
    ],
)
def test_a_part_without_a_kernel_is_not_asked(
    part: str, fault: Exception | None, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def differs(*_: object) -> float:
        assert fault
        raise fault

    monkeypatch.setattr(kernel_self_test, "_kernel_difference", differs)
    with pytest.raises(EngineUnavailable) as refusal:
        kernel_self_test.compare_kernel(part, {}, ())
    assert str(refusal.value) == reason
