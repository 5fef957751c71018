"""The memory of vLLM's profile run, against its starts on one card (docs/evidence/cuda.md)."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from a_card import CARD, KNOWN, dense

from lockstep.checkpoints.architecture import Architecture, ArchitectureUnknown, Layers
from lockstep.checkpoints.configuration import from_config
from lockstep.checkpoints.known_checkpoints import GIB, Knowledge, KnownCheckpoint
from lockstep.checkpoints.step import EXPERTS, step_of
from lockstep.fit import profile
from lockstep.fit.fit import OVERHEAD, fit
from lockstep.recipes import recipe_file
from lockstep.recipes.sizing import Serving, serving

DOCUMENT = (Path(__file__).parents[3] / "docs/evidence/cuda.md").read_text()
STARTS = yaml.safe_load(Path(__file__).with_name("starts.yaml").read_text())
LAYERS = {"full": Layers("full", 1, 8, 128), "recurrent": Layers("recurrent", 1, state=1)}
PRODUCTION = KNOWN.recipes["qwen3.6-35b-a3b-prismaquant-dflash-k3"]
# Peaks that miss by more than 3 percent and 0.07 GiB: all of the smallest models or with a draft.
WIDER = {("qwen3-0.6b", "ngram"): 0.1}


def shapes_of(name: str) -> Architecture:
    """The shapes of one of these models; the cache of a token is not its own."""
    entry = STARTS["models"][name]
    config = entry["config"]
    text = config.get("text_config", config)
    return Architecture(
        tuple(replace(LAYERS[kind], count=count) for kind, count in entry["layers"].items()),
        text["max_position_embeddings"],
        dense=not any(text.get(key) for key in EXPERTS),
        vocabulary=text["vocab_size"],
        width=text["hidden_size"],
        step=step_of(config, text),
    )


def asked_of(mode: str, sequences: int, tokens: int, variant: str, **more: Any) -> Serving:
    return Serving(
        sequences=sequences,
        batched_tokens=tokens,
        eager=mode == "eager",
        kind="embed" if variant == "pooled" else "chat",
        speculative=variant if variant in ("ngram", "eagle3") else None,
        release="0.26.0",
        **more,
    )


def sees(name: str, variant: str) -> bool:
    return "vision_config" in STARTS["models"][name]["config"] and variant != "blind"


@pytest.mark.parametrize("start", STARTS["peaks"], ids=str)
def test_the_peak_of_a_start_is_the_largest_sum(start: list[Any]) -> None:
    name, sequences, tokens, mode, runner, measured_gib, *options = start
    variant = "".join(options)
    shapes, settings = shapes_of(name), asked_of(mode, sequences, tokens, variant, context=8192)
    if name != "gemma-4-26b-a4b-fp8":
        assert profile.runners(shapes, settings) == (runner,)
    # gpt-oss was started on a Hopper, whose kernels for MXFP4 keep no workspace.
    workspace = not name.startswith("gpt-oss")
    peak_gib = profile.peak(shapes, settings, runner, sees(name, variant), workspace) / GIB
    assert peak_gib == pytest.approx(measured_gib, rel=0.03, abs=WIDER.get((name, variant), 0.07))
    words = " ".join((mode, *options))
    row = f"| {name} | {words} | {sequences} | {tokens} | {runner} | {measured_gib:.3f} | "
    assert f"{row}{peak_gib:.3f} |" in DOCUMENT, row


@pytest.mark.parametrize("start", [*STARTS["unseen"], *STARTS["predicted"]], ids=str)
def test_the_room_of_a_start_that_no_rule_was_made_for(start: list[Any]) -> None:
    name, total, share, mode, sequences, tokens, context, *more = start
    weights, measured_gib, room, *options = more
    new = options and isinstance(options[0], float)
    variant = "".join(str(word) for word in options[1:])
    shapes = shapes_of(name)
    settings = asked_of(mode, sequences, tokens, variant, context=context)
    workspace = not name.startswith("gpt-oss")
    vision = sees(name, variant)
    overhead = profile.overhead_gib(shapes, settings, vision=vision, workspace=workspace)
    # The weights of the newer starts are vLLM's own figure, which has these.
    overhead -= 2 * shapes.step.loaded_elements / GIB if new else 0
    ratio = (share * total - weights - overhead) / room
    assert ratio == pytest.approx(1, abs=0.05 if new else 0.03)
    row = f"| {name} ({share:g}, {context}) | {mode}, {sequences}, {tokens} | {weights:.2f} | "
    row += f"{options[0]:.2f}, " if new else ""
    row += f"{overhead:.2f}, {measured_gib:.2f} | {room:.2f} | {ratio:.3f} |"
    assert row in DOCUMENT, row


def recipe(model: str, **lockstep: object) -> recipe_file.Recipe:
    more = f"lockstep: {lockstep}\n".replace("False", "false") if lockstep else ""
    text = f"model: {model}\ncommand: vllm serve {{model}} --max-model-len 32768\n{more}"
    return recipe_file.parse(text, Path("x.yaml"))


def test_a_configuration_whose_text_is_no_mapping_is_unknown() -> None:
    with pytest.raises(ArchitectureUnknown, match="text_config is not a mapping"):
        from_config({"text_config": [1]}, "config.json")


DENSE = dense(36, 4096)
MIXTURE, HYBRID = shapes_of("qwen3-30b-a3b-fp8"), shapes_of("nemotron-nano-9b-v2")
GRANITE = shapes_of("granite-3.1-3b-a800m")


@pytest.mark.parametrize(
    ("shapes", "settings", "runners"),
    [
        (DENSE, {}, (2,)),
        (DENSE, {"release": "0.24.0"}, (1, 2)),
        (DENSE, {"kind": "embed", "release": "0.26.0"}, (1,)),
        (DENSE, {"kind": "embed", "release": "0.29.0"}, (2,)),
        (DENSE, {"speculative": "ngram", "release": "0.33.0"}, (1,)),
        (MIXTURE, {"release": "0.29.0"}, (2,)),
        (MIXTURE, {}, (1, 2)),
        (MIXTURE, {"runner": 2, "release": "0.26.0"}, (2,)),
        (HYBRID, {"release": "0.26.0"}, (1,)),
        (HYBRID, {"release": "0.33.0"}, (2,)),
        (GRANITE, {"release": "0.26.0"}, (2,)),
    ],
)
def test_the_version_gives_the_model_runner(shapes, settings, runners) -> None:
    assert profile.runners(shapes, Serving(**settings)) == runners


def test_a_variable_of_the_recipe_asks_for_a_runner() -> None:
    gemma = serving(KNOWN.recipes["gemma4-26b-a4b-fp8"], version="0.26.0+cu130")
    assert (gemma.runner, gemma.release) == (2, "0.26.0")
    assert serving(recipe("x/y"), version="built").release is None


def test_newer_versions_see_graphs_and_pictures() -> None:
    shapes = shapes_of("qwen3-vl-8b")
    first, graphs, pictures, unsaid = (
        profile.overhead_gib(shapes, Serving(release=release), vision=True)
        for release in ("0.26.0", "0.27.0", "0.30.0", None)
    )
    assert first < graphs < pictures == unsaid


def test_what_is_not_known_is_a_range_and_says_so() -> None:
    model_serving = Serving(sequences=4, release="0.26.0")
    unknown = [
        (replace(DENSE, step=None), model_serving, False),
        (replace(DENSE, vocabulary=None), model_serving, False),
        (replace(DENSE, width=None), model_serving, False),
        (DENSE, replace(model_serving, tensor_parallel=2), False),
        (DENSE, replace(model_serving, speculative="eagle"), False),
        (DENSE, replace(model_serving, speculative="eagle3"), True),
        (DENSE, replace(model_serving, speculative="mtp"), False),
        (MIXTURE, replace(model_serving, speculative="mtp", release="0.29.0"), False),
    ]
    overheads = [profile.overhead_gib(*case, vision=vision) for *case, vision in unknown]
    assert set(overheads) == {None}
    assert profile.overhead_gib(DENSE, replace(model_serving, speculative="eagle3"), vision=False)
    sizes = {"num_layers": 32, "num_kv_heads": 8, "head_dim": 128}
    metadata = {"model_params": "8B", "quant_bits": 16, **sizes}
    stated_recipe = replace(recipe("nobody/knows"), metadata=metadata)
    prediction = fit(stated_recipe, KNOWN.knowledge, asked=Serving(utilization=0.5, context=8192))
    worse, better = prediction.room_gib
    assert better - worse == pytest.approx(17.9)
    assert "0.5 to 18.4 GiB are counted" in prediction.reasons[-1]


def test_what_is_taken_beyond_the_share() -> None:
    """Of the second runner more, of one that sees pictures still more; a recipe may say dense."""

    def beyond(vision: bool = False, release: str = "0.26.0", **options: object) -> float:
        shapes = replace(DENSE, step=None, dense=False) if options else DENSE
        size = replace(CARD.memory_total_gib, value=16, unit="GB")
        model = KnownCheckpoint("a/b", weights_gb=size, architecture=shapes, vision=vision)
        settings = Serving(utilization=0.5, context=8192, release=release)
        knowledge = Knowledge({"a/b": model}, {"h200": CARD})
        prediction = fit(recipe("a/b", **options), knowledge, machine="h200", asked=settings)
        return round(prediction.need.beside_gib - 2.7, 2)

    assert (beyond(), beyond(vision=True), beyond(release="0.30.0")) == (1.8, 2.4, 0.9)
    assert (beyond(moe=False), beyond(engine="vllm")) == (1.8, 0.9)


def test_a_spark_keeps_its_worse_case_and_the_engines_that_have_no_such_profile() -> None:
    prediction = fit(PRODUCTION, KNOWN.knowledge)
    terms = {term.name: term.gib for term in prediction.terms}
    shapes = KNOWN.knowledge.checkpoint(PRODUCTION.model).architecture
    assert terms.pop(OVERHEAD) == profile.overhead_gib(shapes, serving(PRODUCTION), vision=False)
    worst_gib = prediction.budget_gib - sum(terms.values()) - prediction.room_gib[0]
    assert worst_gib == pytest.approx(18.4)
    many = replace(serving(PRODUCTION), sequences=4096)
    worse, better = fit(PRODUCTION, KNOWN.knowledge, asked=many).room_gib
    assert worse == better
    sglang = fit(KNOWN.recipes["mistral-small-4-119b-nvfp4-sglang"], KNOWN.knowledge)
    assert next(t.gib for t in sglang.terms if t.name == OVERHEAD) == 2.7
