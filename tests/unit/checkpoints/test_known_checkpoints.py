"""The catalogue's checkpoints and machines; a wrong entry is named with its line."""

from __future__ import annotations

from pathlib import Path

import pytest

from lockstep.checkpoints.known_checkpoints import GIB, load_knowledge
from lockstep.core.errors import CatalogueError
from lockstep.fit.catalogue import FOLDER

SHAPES = "architectures:\n  shapes: {source: s, date: 2026-11-21, layers: [%s]}\n"
LAYERS = "{kind: mla, count: 2, latent: 320}"
WEIGHTS = "{value: 71, source: s, date: 2026-11-21, kind: quoted}"


def write_catalogue(folder: Path, models: str, hardware: str = "") -> Path:
    """A catalogue with these two files; the machines are the real ones unless others are given."""
    (folder / "checkpoints.yaml").write_text(models)
    real = (FOLDER / "hardware.yaml").read_text()
    (folder / "hardware.yaml").write_text(hardware or real)
    return folder


def test_a_model_has_its_shapes_and_sizes_with_their_sources(tmp_path: Path) -> None:
    text = (
        SHAPES % LAYERS + f"checkpoints:\n  a/b: {{architecture: shapes, weights_gb: {WEIGHTS}}}\n"
    )
    knowledge = load_knowledge(write_catalogue(tmp_path, text))
    model = knowledge.checkpoint("a/b")
    assert (model.id, model.weights_gib()) == ("a/b", 71e9 / GIB)
    assert model.weights_gb is not None and model.weights_gb.unit == "GB"
    assert model.architecture is not None
    assert model.architecture.layers[0].latent == 320
    assert knowledge.checkpoint("c/d").weights_gb is None
    assert knowledge.hardware["dgx-spark"].gib("reserve_gib") == 8.0


def test_a_wrong_entry_and_a_machine_without_a_figure_are_named(tmp_path: Path) -> None:
    for text, message in (
        ("chekpoints: {}\n", r"checkpoints.yaml:1: unknown key 'chekpoints'.*'checkpoints'"),
        ("checkpoints:\n  a: 7\n", r"checkpoints.yaml: checkpoints.a must be a mapping; found 7"),
        (
            "checkpoints:\n  a:\n    architecture: shapes\n",
            r"checkpoints.yaml:3: a refers to an architecture that is not there; found 'shapes'",
        ),
        (
            "checkpoints:\n  a:\n    token_gb: {value: 7, kind: quoted}\n",
            r"yaml:3: checkpoints.a.token_gb.source, checkpoints.a.token_gb.date are missing",
        ),
        (
            f"checkpoints:\n  a:\n    weights_gb: {WEIGHTS.replace('71', 'much')}\n",
            r"yaml:3: checkpoints.a.weights_gb must be a positive number of GB; found 'much'",
        ),
        (
            f"checkpoints:\n  a:\n    weights_gb: {WEIGHTS.replace('quoted', 'told')}\n",
            r"weights_gb.kind is not known; found 'told'; allowed: measured, quoted, computed",
        ),
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
