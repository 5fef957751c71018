"""What the catalogue knows of checkpoints and machines; a wrong entry is named with its line."""

from __future__ import annotations

from pathlib import Path

import pytest

from lockstep.core.errors import CatalogueError
from lockstep.fit.catalogue import FOLDER
from lockstep.models.known_models import GIB, load_knowledge

SHAPES = "architectures:\n  shapes: {source: s, date: 2026-11-21, layers: [%s]}\n"
LAYERS = "{kind: mla, count: 2, latent: 320}"
WEIGHTS = "{value: 71, source: s, date: 2026-11-21, kind: quoted}"


def written(folder: Path, models: str, hardware: str = "") -> Path:
    """A catalogue with these two files; the machines are the real ones unless others are given."""
    (folder / "models.yaml").write_text(models)
    real = (FOLDER / "hardware.yaml").read_text()
    (folder / "hardware.yaml").write_text(hardware or real)
    return folder


def test_a_model_has_its_shapes_and_sizes_with_their_sources(tmp_path: Path) -> None:
    text = SHAPES % LAYERS + f"models:\n  a/b: {{architecture: shapes, weights_gb: {WEIGHTS}}}\n"
    known = load_knowledge(written(tmp_path, text))
    model = known.model("a/b")
    assert (model.id, model.weights_gib()) == ("a/b", 71e9 / GIB)
    assert model.weights_gb is not None and model.weights_gb.unit == "GB"
    assert model.architecture is not None
    assert model.architecture.layers[0].latent == 320
    assert known.model("c/d").weights_gb is None
    assert known.hardware["dgx-spark"].gib("reserve_gib") == 8.0


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("modles: {}\n", r"models.yaml:1: unknown key 'modles'.*'models'"),
        ("models:\n  a: 7\n", r"models.yaml: models.a must be a mapping; found 7"),
        (
            "models:\n  a:\n    architecture: shapes\n",
            r"models.yaml:3: a refers to an architecture that is not there; found 'shapes'",
        ),
        (
            "models:\n  a:\n    token_gb: {value: 7, kind: quoted}\n",
            r"yaml:3: models.a.token_gb.source, models.a.token_gb.date are missing",
        ),
        (
            f"models:\n  a:\n    weights_gb: {WEIGHTS.replace('71', 'much')}\n",
            r"yaml:3: models.a.weights_gb must be a positive number of GB; found 'much'",
        ),
        (
            f"models:\n  a:\n    weights_gb: {WEIGHTS.replace('quoted', 'told')}\n",
            r"weights_gb.kind is not known; found 'told'; allowed: measured, quoted, computed",
        ),
        (SHAPES % "{kind: mla, count: 2}", r"architectures.shapes.layers\[0\] lacks a size"),
        (SHAPES % "{kind: moe, count: 2}", r"layers\[0\].kind is not known; found 'moe'"),
        (SHAPES % "", r"architectures.shapes.layers names no layers"),
    ],
)
def test_a_wrong_entry_is_named(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(CatalogueError, match=said):
        load_knowledge(written(tmp_path, text))


def test_a_machine_without_a_figure_is_named(tmp_path: Path) -> None:
    text = (FOLDER / "hardware.yaml").read_text().replace("reserve_gib:", "reserves_gib:")
    with pytest.raises(CatalogueError, match=r"'reserves_gib' in dgx-spark.*'reserve_gib'"):
        load_knowledge(written(tmp_path, "models: {}\n", text))
    text = 'dgx-spark: {compute_capability: "12.1"}\n'
    with pytest.raises(CatalogueError, match=r"dgx-spark.memory_total_gib, .* are missing"):
        load_knowledge(written(tmp_path, "models: {}\n", text))
