"""The key `adopt`: what an inventory takes over on purpose although Lockstep did not make it."""

from __future__ import annotations

import pytest
from a_spark import spark

from lockstep.core.errors import InventoryError


@pytest.mark.parametrize(
    "entry",
    [
        "/etc/systemd/system/vllm.service",
        "/data/models",
        "unit vllm.service",
        "container open-webui",
        "volume open-webui",
        "account lockstep",
    ],
)
def test_a_path_and_a_kind_with_a_name_can_be_taken_over(entry: str) -> None:
    assert spark(adopt=(entry,)).settings.adopt == (entry,)


@pytest.mark.parametrize(
    "entry",
    ["", "/", "vllm", "unit", "unit ", "unit a b", "service vllm", "/etc/../etc", "/a//b", "/a/"],
)
def test_anything_else_is_refused(entry: str) -> None:
    with pytest.raises(InventoryError, match=r"adopt\[1\] names nothing .* found .* Copy it from"):
        spark(adopt=("/etc/x", entry))
