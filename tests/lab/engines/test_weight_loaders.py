"""What a deploy leaves out of a repository changes nothing of what the engine's own loader takes.

Needs no lab and no GPU: `lab.parsers` installs both engines.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
from pathlib import Path

import pytest

from lab import parsers
from lab.core.state import open_lab
from lockstep.models import weight_files
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
        self.others = set(top) - self.own
        self.listed: dict[str, set[str]] = {}
        for index, some in ((INDEX, sorted(self.others)), (OWN_INDEX, sorted(self.own))):
            if some and chance.random() < 0.6:
                self.listed[index] = set(chance.sample(some, chance.randint(1, len(some))))
        self.names = [*files, *self.listed]

    def kept_files(self, engine: str) -> set[str]:
        argv = ("serve", "--load-format", self.form)
        form = weight_files.OR.join(ENGINES[engine].weight_patterns(argv, "org/name"))
        return weight_files.needed_files(self.names, [form], lambda name: self.listed[name])

    def write(self, folder: Path, names: set[str]) -> str:
        for name in names:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            content = {"weight_map": {file: file for file in sorted(self.listed.get(name, ()))}}
            (folder / name).write_text(json.dumps(content))
        folder.mkdir(exist_ok=True)
        return str(folder)


def ask(python: Path, engine: str, asked: list[tuple[str, str]]) -> list[list[str] | None]:
    done = subprocess.run(
        [python, REAL, engine],
        input=json.dumps(asked),
        env={**os.environ, "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found: list[list[str] | None] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_an_engine_loads_the_same_without_what_is_left_out(engine: str, tmp_path: Path) -> None:
    python = parsers.interpreters(open_lab().cache, print)[engine]
    layouts = [Layout(random.Random(seed)) for seed in range(1000)]
    whole = [
        (each.write(tmp_path / f"whole-{n}", set(each.names)), each.form)
        for n, each in enumerate(layouts)
    ]
    kept = [
        (each.write(tmp_path / f"kept-{n}", each.kept_files(engine)), each.form)
        for n, each in enumerate(layouts)
    ]
    compared = 0
    for each, before, after in zip(
        layouts, ask(python, engine, whole), ask(python, engine, kept), strict=True
    ):
        # It refuses a folder without weights, or without one that its index names. Two copies at
        # once break it, and of these one is left.
        if before is None or (each.own and each.others and each.own | each.others <= set(before)):
            continue
        assert after == before, (each.form, each.names, each.listed)
        compared += 1
    assert compared > len(layouts) / 2
