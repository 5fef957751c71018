"""earlyoom from 1.8 on counts its percentages otherwise: that is said before a deploy."""

from __future__ import annotations

import pytest
from a_spark import healthy, pins_for, spark

from lockstep import preflight


def codes(version: str, **data: object) -> list[str]:
    plan = spark(**data)
    facts = healthy(plan, 1000.0) | {"earlyoom": version}
    found = preflight.findings(plan, pins_for(plan), facts, now=1000.0)
    return [item.code for item in found]


@pytest.mark.parametrize("version", ["1.8-1", "1.8.2-1", "1.10.0-1ubuntu1", "1:2.0"])
def test_one_that_counts_otherwise_is_a_warning(version: str) -> None:
    assert codes(version) == ["earlyoom-late"]


@pytest.mark.parametrize("version", ["1.7-2", ""])
def test_that_of_dgx_os_7_is_none_and_an_unknown_one(version: str) -> None:
    assert codes(version) == []


def test_one_that_nobody_asks_for_is_none() -> None:
    assert codes("1.8.2-1", packages=("git", "jq")) == []
