"""The classes that load a checkpoint are imported before anything uses an environment."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.unit.onhost.environment.test_engine_check import RECIPE, Venv, venv

# Each starts Python, as a host does.
pytestmark = pytest.mark.slow

__all__ = ["venv"]
RENAMED = {"transformers/pixtral.py": "VisionRotary = object\n"}


def recipe(*parts: tuple[Path, list[str]], **changes: Any) -> dict[str, Any]:
    """A recipe whose checkpoint has these files."""
    checkpoint = [{"folder": str(folder), "files": files} for folder, files in parts]
    return {**RECIPE, "checkpoint": checkpoint, **changes}


def configured(folder: Path, name: str, **said: str) -> Path:
    """A snapshot of which the configuration alone is on the host."""
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(json.dumps(said))
    return folder


def test_a_class_that_lacks_a_name_is_told_with_both_versions(venv: Venv, tmp_path: Path) -> None:
    """The fork's class of Mistral Small 4 with transformers 5.17, where a name is gone."""
    folder = configured(tmp_path / "snapshot", "config.json", **{"class": "Sees"})
    venv.files |= RENAMED
    venv.asked["recipes"] = [recipe((folder, ["config.json", "model.safetensors"]))]
    code, record, said = venv.ask()
    fault = (
        "recipe mistral: vLLM 0.19.2 cannot import its class Sees with transformers 5.17.0: "
        "cannot import name 'Rotary' from 'transformers.pixtral'. Remedy: name another "
        "transformers (engine.transformers) or another vLLM"
    )
    assert (code, record["faults"], said) == (1, [fault], f"engine check: {fault}\n")


@pytest.mark.parametrize(
    ("said", "broken", "named"),
    [
        ({"class": "Sees", "text": "Writes"}, "writes", "Writes"),
        ({"class": "Sees", "text": "Unknown"}, "", ""),
        # vLLM runs what it has no class for by that of transformers.
        ({"class": "Unknown"}, "", ""),
    ],
)
def test_the_part_that_writes_text_is_imported_too(
    venv: Venv, tmp_path: Path, said: dict[str, str], broken: str, named: str
) -> None:
    folder = configured(tmp_path / "snapshot", "config.json", **said)
    if broken:
        venv.files[f"vllm/models/{broken}.py"] = "raise RuntimeError('no kernel\\nof that name')\n"
    venv.asked["recipes"] = [recipe((folder, ["config.json"]))]
    faults = venv.ask()[1]["faults"]
    assert bool(faults) == bool(named)
    for fault in faults:
        assert f"cannot import its class {named}: no kernel. " in fault
        assert "another transformers" not in fault


def test_a_missing_part_of_the_engine_is_not_blamed_on_transformers(
    venv: Venv, tmp_path: Path
) -> None:
    """vLLM 0.26.0 without FlashAttention: no other transformers helps."""
    folder = configured(tmp_path / "snapshot", "config.json", **{"class": "Writes"})
    said = "vllm.vllm_flash_attn requires the CUDA flash attention extensions (_vllm_fa2_C)"
    venv.files["vllm/models/writes.py"] = f"raise ImportError('{said}')\n"
    venv.asked["recipes"] = [recipe((folder, ["config.json"]))]
    assert venv.ask()[1]["faults"] == [
        f"recipe mistral: vLLM 0.19.2 cannot import its class Writes: {said}. Remedy: build the "
        "environment anew, or name another vLLM"
    ]


def test_what_fails_within_transformers_is_its_fault(venv: Venv, tmp_path: Path) -> None:
    folder = configured(tmp_path / "snapshot", "config.json", **{"class": "Sees"})
    venv.files["transformers/pixtral.py"] = "raise AttributeError('ambiguous head_dim')\n"
    venv.asked["recipes"] = [recipe((folder, ["config.json"]))]
    (fault,) = venv.ask()[1]["faults"]
    assert "with transformers 5.17.0: ambiguous head_dim. Remedy: name another transf" in fault


def test_files_that_are_not_here_yet_decide_by_their_names(venv: Venv, tmp_path: Path) -> None:
    """With weights of Mistral's own names, params.json is read and not config.json."""
    folder = configured(tmp_path / "snapshot", "config.json", **{"class": "Sees"})
    configured(folder, "params.json", **{"class": "Writes"})
    names = ["config.json", "params.json", "consolidated-00001-of-00002.safetensors"]
    venv.files |= RENAMED
    venv.asked["recipes"] = [recipe((folder, names))]
    assert venv.ask()[1]["faults"] == []


def test_a_flag_decides_before_the_names_do(venv: Venv, tmp_path: Path) -> None:
    folder = configured(tmp_path / "snapshot", "config.json", **{"class": "Sees"})
    configured(folder, "params.json", **{"class": "Writes"})
    entry = "vllm/entrypoints/cli/serve.py"
    venv.files |= RENAMED
    venv.files[entry] = venv.files[entry].replace(
        '        serve.add_argument("model")\n',
        '        serve.add_argument("model")\n        serve.add_argument("--config-format")\n',
    )
    argv = [*RECIPE["argv"], "--config-format", "mistral"]
    venv.asked["recipes"] = [recipe((folder, ["config.json", "params.json"]), argv=argv)]
    assert venv.ask()[1]["faults"] == []


def test_a_borrowed_configuration_is_read_from_where_it_is(venv: Venv, tmp_path: Path) -> None:
    own = configured(tmp_path / "own", "README.md")
    base = configured(tmp_path / "base", "config.json", **{"class": "Sees"})
    venv.files |= RENAMED
    venv.asked["recipes"] = [recipe((own, ["README.md", "w.safetensors"]), (base, ["config.json"]))]
    [fault] = venv.ask()[1]["faults"]
    assert "cannot import its class Sees" in fault


def test_a_folder_of_the_owner_s_is_read_as_it_is(venv: Venv, tmp_path: Path) -> None:
    folder = configured(tmp_path / "mine", "config.json", **{"class": "Writes"})
    venv.asked["recipes"] = [recipe((folder, []))]
    assert venv.ask()[1]["faults"] == []


def test_a_configuration_that_vllm_cannot_read_is_a_fault(venv: Venv, tmp_path: Path) -> None:
    venv.asked["recipes"] = [recipe((tmp_path, ["model.safetensors"]))]
    [fault] = venv.ask()[1]["faults"]
    assert fault.startswith(
        "recipe mistral: vLLM 0.19.2 cannot read the configuration of its checkpoint: "
    )
