"""A key or a value that had another name once is refused with the name that it has now."""

from __future__ import annotations

import pytest
from a_spark import spark

from lockstep.core.errors import InventoryError
from lockstep.inventory.settings import ModelData
from lockstep.onhost.core import schema


@pytest.mark.parametrize(
    ("former_name", "present_name"), [("floor", "minimum"), ("memory_floor", "memory_minimum")]
)
def test_a_key_of_a_former_name_is_refused_with_the_present_one(
    former_name: str, present_name: str
) -> None:
    values = {"recipe": "qwen", "unit": "vllm", former_name: {}}
    with pytest.raises(InventoryError) as refusal:
        schema.build(ModelData, values, where="site.py", error=InventoryError)
    message = str(refusal.value)
    assert f"unknown key '{former_name}'" in message
    assert f"'{former_name}' is called '{present_name}' now: rename the key." in message


def test_a_backup_to_the_twin_is_refused_with_the_peer() -> None:
    with pytest.raises(InventoryError, match="is no place for a backup") as refusal:
        spark(backup={"to": ("twin",)})
    assert 'The next Spark of the inventory is "peer" (it was "twin").' in str(refusal.value)
