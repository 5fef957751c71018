"""A key or a value that had another name once is refused with the name that it has now."""

from __future__ import annotations

from pathlib import Path

import pytest
from a_spark import spark

from lockstep.checkpoints.known_checkpoints import load_knowledge
from lockstep.core.errors import CatalogueError, InventoryError
from lockstep.inventory.inventory_file import load


@pytest.mark.parametrize(
    ("former_name", "present_name"), [("floor", "minimum"), ("memory_floor", "memory_minimum")]
)
def test_a_key_of_a_former_name_is_refused_with_the_present_one(
    former_name: str, present_name: str
) -> None:
    with pytest.raises(InventoryError) as refusal:
        spark(models={"q": {"recipe": "qwen", "unit": "vllm", former_name: {}}})
    assert str(refusal.value) == (
        f"spark1: models.q.{former_name} is called `{present_name}` now. Rename the key."
    )


def test_at_another_place_it_is_a_key_like_any_other() -> None:
    with pytest.raises(InventoryError) as refusal:
        spark(paths={"targets": "/data"})
    assert "unknown key 'targets' in paths; allowed: engines, models, scripts" in str(refusal.value)


@pytest.mark.parametrize("module", ["lockstep.defaults", "group_data.all"])
def test_who_imports_the_models_by_their_former_name_is_told_the_present_one(
    tmp_path: Path, module: str
) -> None:
    inventory = tmp_path / "site.py"
    inventory.write_text(f"from {module} import targets as _targets\nsite = []\n")
    end = "It is called 'models' now. Import that, and rename the key."
    with pytest.raises(InventoryError, match=f":1: the file fails when it is read.*{end}"):
        load(inventory)


def test_a_catalogue_of_before_is_told_the_key_of_its_checkpoints(tmp_path: Path) -> None:
    (tmp_path / "checkpoints.yaml").write_text("models: {}\n")
    with pytest.raises(CatalogueError, match="yaml:1: `models` is called `checkpoints` now"):
        load_knowledge(tmp_path)


def test_a_backup_to_the_twin_is_refused_with_the_peer() -> None:
    with pytest.raises(InventoryError, match="is no place for a backup") as refusal:
        spark(backup={"to": ("twin",)})
    assert 'The next Spark of the inventory is "peer" (it was "twin").' in str(refusal.value)


def test_a_judge_by_its_own_record_is_refused_with_what_to_write() -> None:
    models = {"s": {"recipe": "r", "unit": "s", "sense": "record"}}
    with pytest.raises(InventoryError, match=r"sense has no record of answers any more") as refusal:
        spark(models=models)
    assert 'Write "off" for a model that talks nonsense by nature.' in str(refusal.value)
