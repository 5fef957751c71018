"""The last load of each model, on disk."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from lockstep.onhost.core import layout
from lockstep.onhost.records import last_weight_loads

LOAD = last_weight_loads.LoadRecord("qwen", 1.7e9, 70, 60, 3.0, "259:2", "nvme0n1p2", 16384)


def test_each_model_keeps_its_last_load_and_everybody_may_read_it(tmp_path: Path) -> None:
    paths = layout.Paths(tmp_path)
    assert last_weight_loads.last_load_by_model(paths) == {}
    again = replace(LOAD, seconds=2.0)
    for load in (LOAD, replace(LOAD, model="mistral"), again):
        last_weight_loads.record_load(paths, load)
    records = last_weight_loads.last_load_by_model(paths)
    assert records == {"qwen": again, "mistral": replace(LOAD, model="mistral")}
    assert paths.loads.stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize("text", ["", "[]", '{"qwen": {"more": 1}}', '{"qwen": 1}'])
def test_a_record_that_cannot_be_read_is_none(tmp_path: Path, text: str) -> None:
    paths = layout.Paths(tmp_path)
    paths.loads.parent.mkdir(parents=True)
    paths.loads.write_text(text)
    assert last_weight_loads.last_load_by_model(paths) == {}
    last_weight_loads.record_load(paths, LOAD)
    assert last_weight_loads.last_load_by_model(paths) == {"qwen": LOAD}
