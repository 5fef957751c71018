"""The engines to start: recipes of the catalogue and two dense models, with meaningless weights."""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from benchmarks.cuda.card import Card
from benchmarks.cuda.server import MODEL, PORT
from lockstep.checkpoints.configuration import from_config
from lockstep.checkpoints.known_checkpoints import Knowledge, KnownCheckpoint
from lockstep.core.figures import Figure
from lockstep.fit import catalogue
from lockstep.fit.fit import Fit, fit
from lockstep.recipes.command import environment, serve_command
from lockstep.recipes.recipe_file import Recipe, parse
from lockstep.recipes.sizing import read_back

MACHINE = "this machine"
_DENSE = """
recipe_version: "2"
model: {model}
runtime: vllm
min_nodes: 1
max_nodes: 1
defaults: {{host: 127.0.0.1, port: 8000, gpu_memory_utilization: 0.5, max_model_len: 32768}}
command: >
  vllm serve {{model}} --host {{host}} --port {{port}} --max-model-len {{max_model_len}}
  --gpu-memory-utilization {{gpu_memory_utilization}}
lockstep: {{engine: vllm}}
"""


@dataclass(frozen=True)
class Case:
    """One engine to start.

    Attributes:
        name: Name of its log and of its rows.
        recipe: Recipe of the catalogue; for a dense model its id on the hub.
        checkpoint: Kind of checkpoint (`checkpoints.KINDS`).
        overrides: Recipe key → value.
        flags: More words of the command line.
        weights_gb: Size of the real checkpoint (decimal GB) where the catalogue has none.
        draft: Kind of checkpoint of the draft that `flags` name as "{draft}", or None.
        draft_gb: Size of that draft (decimal GB) where the catalogue has none.
        own_variables: Whether the recipe's variables hold here; those of a fork for SM 12.1 do not.
        text_alone: Whether the checkpoint is the part that writes text, and has none for pictures.
        longest: Serve the longest context that the fit promises, instead of the recipe's own.
    """

    name: str
    recipe: str
    checkpoint: str
    overrides: Mapping[str, object] = field(default_factory=dict)
    flags: tuple[str, ...] = ()
    weights_gb: float | None = None
    draft: str | None = None
    draft_gb: float | None = None
    own_variables: bool = True
    text_alone: bool = False
    longest: bool = False


_QWEN = "qwen3.6-35b-a3b"
_BF16 = f"{_QWEN}-bf16"
# The recipe that gives its draft to the case with a draft.
_DRAFTED = f"{_QWEN}-prismaquant-dflash-k3"
# vLLM uses FlashInfer for these layers on a Hopper without checking that it is installed.
_GDN = ("--gdn-prefill-backend", "triton")


def _mtp(tokens: int, **more: str) -> tuple[str, ...]:
    config = {"method": "mtp", "num_speculative_tokens": tokens, **more}
    return ("--speculative-config", json.dumps(config))


def _draft(method: str, tokens: int) -> tuple[str, ...]:
    config = {"method": method, "num_speculative_tokens": tokens, "model": "{draft}"}
    return ("--speculative-config", json.dumps(config))


# Parsers need marks of the model's own tokenizer, which is absent here.
_NO_PARSERS = {
    "tool_call_parser": None,
    "reasoning_parser": None,
    "enable_auto_tool_choice": None,
}
_FP8_CACHE = {"kv_cache_dtype": "fp8", "max_num_seqs": 4}
CASES = {
    case.name: case
    for case in (
        Case("qwen3-0.6b", "Qwen/Qwen3-0.6B", "qwen3-0.6b", weights_gb=1.192,
             overrides={"gpu_memory_utilization": 0.3}),
        Case("qwen3-8b", "Qwen/Qwen3-8B", "qwen3-8b", weights_gb=16.381),
        Case("qwen3-8b-longest", "Qwen/Qwen3-8B", "qwen3-8b", weights_gb=16.381, longest=True,
             overrides={"gpu_memory_utilization": 0.15}),
        # The draft has 0.27e9 weights. It shares the model's embeddings and, without a file of its
        # own, the model's last layer too; a published draft brings 0.13e9 more for that.
        Case("qwen3-8b-eagle3", "Qwen/Qwen3-8B", "qwen3-8b", weights_gb=16.381,
             flags=_draft("eagle3", 3), draft="qwen3-8b-eagle3", draft_gb=0.537),
        Case("qwen3.6-bf16", _BF16, _QWEN, flags=_GDN),
        Case("qwen3.6-bf16-long", _BF16, _QWEN, flags=_GDN,
             overrides={"max_model_len": 262144, "gpu_memory_utilization": 0.9}),
        Case("qwen3.6-bf16-mtp2-fp8kv", _BF16, _QWEN, flags=(*_GDN, *_mtp(2)),
             overrides={**_FP8_CACHE, "max_model_len": 262144, "gpu_memory_utilization": 0.7}),
        Case("qwen3.6-bf16-dflash3", _BF16, _QWEN, flags=(*_GDN, *_draft("dflash", 3)),
             draft=f"{_QWEN}-dflash"),
        # By default vLLM 0.26.0 caches no prefixes of a hybrid model; newer versions do.
        Case("qwen3.6-fp8-mtp3", f"{_QWEN}-fp8", f"{_QWEN}-fp8",
             flags=(*_GDN, *_mtp(3), "--no-enable-prefix-caching"),
             overrides={**_FP8_CACHE, "max_model_len": 131072, "gpu_memory_utilization": 0.9}),
        # The checkpoint's head is in BF16, which the freeze guard's backend refuses.
        Case("qwen3.6-nvfp4-mtp2", f"{_QWEN}-nvfp4-mtp-k2", f"{_QWEN}-nvfp4", flags=_GDN,
             overrides={"speculative_config": _mtp(2, moe_backend="triton")[1]}),
        Case("gemma4-fp8", "gemma4-26b-a4b-fp8", "gemma-4-26b-a4b-fp8", overrides=_NO_PARSERS,
             text_alone=True),
        Case("mistral4-nvfp4", "mistral-small-4-119b-nvfp4-vllm-fork", "mistral-small-4-119b-nvfp4",
             overrides={**_NO_PARSERS, "gpu_memory_utilization": 0.9}, own_variables=False,
             text_alone=True),
    )
}  # fmt: skip


def recipe_of(case: Case) -> Recipe:
    """The recipe of a case."""
    if "/" not in case.recipe:
        return catalogue.load().recipes[case.recipe]
    return parse(_DENSE.format(model=case.recipe), Path(f"{case.checkpoint}.yaml"))


def command(case: Case, folders: Path) -> tuple[tuple[str, ...], dict[str, str]]:
    """The engine's words and variables, with the checkpoints of `folders`."""
    recipe = recipe_of(case)
    local_options = {"model": str(folders / case.checkpoint), "host": "127.0.0.1", "port": PORT}
    words = serve_command(
        recipe,
        overrides={
            **case.overrides,
            **local_options,
            "served_model_name": MODEL,
            "load_format": "dummy",
        },
    )
    draft = str(folders / case.draft) if case.draft else ""
    more = (word.replace("{draft}", draft) for word in case.flags)
    return (*words, *more), environment(recipe) if case.own_variables else {}


def predicted_fit(case: Case, card: Card, folders: Path, version: str) -> Fit:
    """The figures of `lockstep plan` for the case on this card, with an engine of this version.

    No reserve is held back for a system here: a card's memory is the engine's alone.
    """
    loaded_catalogue = catalogue.load()
    recipe, loaded_knowledge = recipe_of(case), loaded_catalogue.knowledge
    model = _model(case, loaded_knowledge.checkpoint(recipe.model), folders)
    spark = loaded_knowledge.hardware["dgx-spark"]
    sizes = {"memory_total_gib": _figure(card.total_gib), "reserve_gib": _figure(0.0)}
    machine = replace(spark, compute_capability=card.compute, **sizes)  # type: ignore[arg-type]
    models = {**loaded_knowledge.checkpoints, model.id: model}
    if case.draft:
        draft = loaded_catalogue.recipes[_DRAFTED].lockstep.draft
        if case.draft_gb:
            assert draft
            draft = replace(draft, model=case.draft)
            config = json.loads((folders / case.draft / "config.json").read_text())
            models[case.draft] = replace(
                model,
                id=case.draft,
                architecture=from_config(config, "its config.json"),
                weights_gb=_figure(case.draft_gb, "GB"),
            )
        recipe = replace(recipe, lockstep=replace(recipe.lockstep, draft=draft))
    knowledge = Knowledge(models, {MACHINE: machine})
    serving = read_back(recipe, command(case, folders)[0], version)
    return fit(recipe, knowledge, machine=MACHINE, asked=serving)


def _model(case: Case, catalogue_model: KnownCheckpoint, folders: Path) -> KnownCheckpoint:
    config: Mapping[str, Any] = json.loads((folders / case.checkpoint / "config.json").read_text())
    return replace(
        catalogue_model,
        architecture=catalogue_model.architecture or from_config(config, "its config.json"),
        weights_gb=catalogue_model.weights_gb or _figure(case.weights_gb, "GB"),
        vision=False if case.text_alone else catalogue_model.vision,
    )


def _figure(value: float | None, unit: str = "GiB") -> Figure:
    assert value is not None
    return Figure(
        "memory", value, unit, "this machine", datetime.date.today().isoformat(), "computed"
    )
