"""Grafana's dashboards: they ask for metrics that exist, and are files that Grafana imports."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import metric_names
import pytest

FOLDER = Path(__file__).parents[3] / "docs/dashboards"
FILES = sorted(FOLDER.glob("*.json"))


def panels(file: Path) -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = json.loads(file.read_text(encoding="utf-8"))["panels"]
    return entries


def test_there_are_dashboards() -> None:
    assert [file.stem for file in FILES] == ["models", "spark"]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_each_expression_asks_for_metrics_that_exist(file: Path, tmp_path: Path) -> None:
    published_names = metric_names.published_metrics(tmp_path)
    for panel in panels(file):
        for target in panel["targets"]:
            names = metric_names.queried_metrics(target["expr"])
            assert names and names <= published_names, (panel["title"], names - published_names)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_recorded_spark_s_figures_are_not_taken_for_this_one_s(file: Path) -> None:
    for panel in panels(file):
        for target in panel["targets"]:
            of_both = [
                name
                for name in metric_names.queried_metrics(target["expr"])
                if name.startswith(("lockstep_", "node_")) and "gateway" not in name
            ]
            assert not of_both or 'job!="peer"' in target["expr"], panel["title"]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_every_panel_has_a_place_of_its_own_and_asks_the_chosen_spark(file: Path) -> None:
    taken_cells: set[tuple[int, int]] = set()
    for panel in panels(file):
        at = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        }
        assert at["x"] + at["w"] <= 24 and not cells & taken_cells, panel["title"]
        taken_cells |= cells
        assert panel["datasource"]["uid"] == "${source}"
    ids = [panel["id"] for panel in panels(file)]
    assert len(ids) == len(set(ids))
