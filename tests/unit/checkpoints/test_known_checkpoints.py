"""The catalogue's checkpoints and machines; a wrong entry is named with its line."""

from pathlib import Path

import pytest

from lockstep.checkpoints.known_checkpoints import load_knowledge
from lockstep.core.errors import CatalogueError
from lockstep.fit.catalogue import FOLDER

SHAPES = "architectures:\n  shapes: {source: s, date: 2026-11-21, layers: [%s]}\n"
WEIGHTS = "{value: 71, source: s, date: 2026-11-21, kind: quoted}"
A = "checkpoints:\n  a:\n    "


def write_catalogue(folder: Path, models: str, hardware: str = "") -> Path:
    """A catalogue with these two files; the machines are the real ones unless others are given."""
    (folder / "checkpoints.yaml").write_text(models)
    real = (FOLDER / "hardware.yaml").read_text()
    (folder / "hardware.yaml").write_text(hardware or real)
    return folder


def test_a_wrong_entry_and_a_machine_without_a_figure_are_named(tmp_path: Path) -> None:
    for text, message in (
        ("chekpoints: {}\n", r"checkpoints.yaml:1: unknown key 'chekpoints'.*'checkpoints'"),
        ("checkpoints:\n  a: 7\n", r"checkpoints.yaml: checkpoints.a must be a mapping; found 7"),
        (f"{A}architecture: shapes\n", r"yaml:3: a refers to an architecture that is not there"),
        (f"{A}token_gb: {{value: 7, kind: quoted}}\n", r"token_gb.source, .*_gb.date are missing"),
        (f"{A}weights_gb: {WEIGHTS.replace('71', 'much')}\n", r"must be a positive number of GB"),
        (f"{A}weights_gb: {WEIGHTS.replace('quoted', 'told')}\n", r"weights_gb.kind is not known"),
        (SHAPES % "{kind: mla, count: 2}", r"architectures.shapes.layers\[0\] lacks a size"),
        (SHAPES % "{kind: moe, count: 2}", r"layers\[0\].kind is not known; found 'moe'"),
        (SHAPES % "", r"architectures.shapes.layers names no layers"),
    ):
        with pytest.raises(CatalogueError, match=message):
            load_knowledge(write_catalogue(tmp_path, text))
    text = (FOLDER / "hardware.yaml").read_text().replace("reserve_gib:", "reserves_gib:")
    with pytest.raises(CatalogueError, match=r"'reserves_gib' in dgx-spark.*'reserve_gib'"):
        load_knowledge(write_catalogue(tmp_path, "checkpoints: {}\n", text))
    text = 'dgx-spark: {compute_capability: "12.1"}\n'
    with pytest.raises(CatalogueError, match=r"dgx-spark.memory_total_gib, .* are missing"):
        load_knowledge(write_catalogue(tmp_path, "checkpoints: {}\n", text))
