"""Grafana's dashboards: they ask for metrics that exist, and are files that Grafana imports."""

from __future__ import annotations

import json
from pathlib import Path

import metric_names
import pytest

FOLDER = Path(__file__).parents[3] / "docs/dashboards"
FILES = sorted(FOLDER.glob("*.json"))


def test_there_are_dashboards() -> None:
    assert [file.stem for file in FILES] == ["models", "spark"]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_each_panel_asks_for_metrics_that_exist_of_the_chosen_spark_at_a_place_of_its_own(
    file: Path, tmp_path: Path
) -> None:
    published_names = metric_names.published_metrics(tmp_path)
    panels = json.loads(file.read_text(encoding="utf-8"))["panels"]
    taken_cells: set[tuple[int, int]] = set()
    for panel in panels:
        for target in panel["targets"]:
            names = metric_names.queried_metrics(target["expr"])
            assert names and names <= published_names, (panel["title"], names - published_names)
            # A recorded Spark's figures are not taken for this one's.
            own = [name for name in names if name.startswith(("lockstep_", "node_"))]
            of_both = [name for name in own if "gateway" not in name]
            assert not of_both or 'job!="peer"' in target["expr"], panel["title"]
        at = panel["gridPos"]
        rows = range(at["y"], at["y"] + at["h"])
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in rows}
        assert at["x"] + at["w"] <= 24 and not cells & taken_cells, panel["title"]
        taken_cells |= cells
        assert panel["datasource"]["uid"] == "${source}"
    assert len({panel["id"] for panel in panels}) == len(panels)
