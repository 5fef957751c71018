"""Files that a deploy leaves out of a repository are files that the engine's loader does not take.

Needs no lab and no GPU: `lab.parsers` installs both engines.
"""

import json
import os
import random
import subprocess
from pathlib import Path

import pytest

from lab import parsers
from lab.core.state import open_lab
from lockstep.checkpoints import weight_files
from lockstep.onhost.engines import ENGINES

REAL = Path(__file__).with_name("real_loaders.py")
FORMATS = ("auto", "auto", "auto", "safetensors", "mistral", "pt")
INDEX, OWN_INDEX = "model.safetensors.index.json", "consolidated.safetensors.index.json"
POOL = (
    *("model.safetensors", "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"),
    *("consolidated.safetensors", "consolidated-00001-of-00001.safetensors", "mtp.safetensors"),
    *("pytorch_model.bin", "training_args.bin", "optimizer.pt", "model.pt", "a.pth", "x.gguf"),
    *("original/model.safetensors", "original/consolidated.00.pth", "metal/model.bin"),
    *("onnx/model.onnx", "tf_model.h5", "openvino/m.bin", "params.json", "config.json"),
)


class Layout:
    """A repository with some files of the pool, and perhaps an index of some of them."""

    def __init__(self, chance: random.Random) -> None:
        self.form = chance.choice(FORMATS)
        files = [name for name in POOL if chance.random() < chance.choice((0.2, 0.4))]
        top = [name for name in files if name.endswith(".safetensors") and "/" not in name]
        self.own = {name for name in top if name.startswith("consolidated")}
        self.other_files = set(top) - self.own
        self.index_entries: dict[str, set[str]] = {}
        for index, some in ((INDEX, sorted(self.other_files)), (OWN_INDEX, sorted(self.own))):
            if some and chance.random() < 0.6:
                self.index_entries[index] = set(chance.sample(some, chance.randint(1, len(some))))
        self.names = [*files, *self.index_entries]

    def kept_files(self, engine: str) -> set[str]:
        argv = ("serve", "--load-format", self.form)
        form = weight_files.OR.join(ENGINES[engine].weight_patterns(argv, "org/name"))
        return weight_files.needed_files(self.names, [form], lambda name: self.index_entries[name])

    def write(self, folder: Path, names: set[str]) -> str:
        for name in names:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            content = {
                "weight_map": {file: file for file in sorted(self.index_entries.get(name, ()))}
            }
            (folder / name).write_text(json.dumps(content))
        folder.mkdir(exist_ok=True)
        return str(folder)


def ask(python: Path, engine: str, questions: list[tuple[str, str]]) -> list[list[str] | None]:
    result = subprocess.run(
        [python, REAL, engine],
        input=json.dumps(questions),
        env={**os.environ, "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert result.returncode == 0, result.stderr[-3000:]
    return json.loads(result.stdout.splitlines()[-1])


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_an_engine_loads_the_same_without_what_is_left_out(engine, tmp_path):
    python = parsers.interpreters(open_lab().cache, print)[engine]
    layouts = [Layout(random.Random(seed)) for seed in range(400)]
    whole = [
        (layout.write(tmp_path / f"whole-{n}", set(layout.names)), layout.form)
        for n, layout in enumerate(layouts)
    ]
    kept_questions = [
        (layout.write(tmp_path / f"kept-{n}", layout.kept_files(engine)), layout.form)
        for n, layout in enumerate(layouts)
    ]
    answers = ask(python, engine, [*whole, *kept_questions])
    comparisons = 0
    for layout, whole_files, kept_files in zip(
        layouts, answers[: len(whole)], answers[len(whole) :], strict=True
    ):
        # It refuses a folder without weights, or without one that its index names. Two copies at
        # once break it, and of these one is left.
        if whole_files is None or (
            layout.own
            and layout.other_files
            and layout.own | layout.other_files <= set(whole_files)
        ):
            continue
        assert kept_files == whole_files, (layout.form, layout.names, layout.index_entries)
        comparisons += 1
    assert comparisons > len(layouts) / 2
