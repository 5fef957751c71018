"""An address with colons of its own stands in brackets."""

from __future__ import annotations

from lockstep.onhost.core.address_text import url
from lockstep.onhost.engines.sglang import ENGINE


def test_an_address_with_a_port_is_made_in_one_place() -> None:
    assert url("spark-1", 80) == "http://spark-1:80"
    assert url("fd00::12", 8443, "https") == url("[fd00::12]", 8443, "https")
    arguments = ENGINE.rank_recipe_keys(rank=0, size=2, master="fd00::12", port=5000, copies=1)
    assert "[fd00::12]:5000" in arguments.values()
