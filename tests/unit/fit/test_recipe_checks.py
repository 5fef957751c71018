"""One test for each claim of the articles that a recipe can break."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from group_data import all as all_hosts
from lockstep.core.findings import Finding, in_order, split_waived
from lockstep.fit import catalogue as catalogues
from lockstep.fit.fit import fit
from lockstep.fit.recipe_checks import check
from lockstep.recipes import recipe_file
from lockstep.recipes.block import Draft
from lockstep.recipes.recipe_file import Recipe
from lockstep.recipes.sizing import serving

KNOWN = catalogues.load()
GGUF = KNOWN.recipes["glm-5.1-ud-iq2-m"]
PRODUCTION = KNOWN.recipes["qwen3.6-35b-a3b-prismaquant-dflash-k3"]


def findings_of(recipe: Recipe, code: str, **more: Any) -> list[Finding]:
    return [item for item in check(recipe, KNOWN, **more) if item.code == code]


def codes(recipe: Recipe, severity: str | None = None, **more: Any) -> set[str]:
    findings = check(recipe, KNOWN, **more)
    return {item.code for item in findings if severity in (None, item.severity)}


def changed_recipe(recipe: Recipe, **defaults: object) -> Recipe:
    return replace(recipe, defaults={**recipe.defaults, **defaults})


def edited_recipe(recipe: Recipe, old: str, new: str) -> Recipe:
    assert old in recipe.command
    return replace(recipe, command=recipe.command.replace(old, new))


def parse(text: str) -> Recipe:
    return recipe_file.parse(text, Path("x.yaml"))


REFUSED = {
    "glm-5.1-awq-int4": {"fit-none"},
    "glm-5.1-fp8": {"fit-none"},
    "glm-5.1-ud-iq2-m": {"fit-none"},
    "nemotron-3-super-120b-nvfp4": {"licence-refused"},
    "qwen3.6-35b-a3b-prismaquant-dflash-k6": {"known-bad"},
}


@pytest.mark.parametrize("name", sorted(KNOWN.recipes))
def test_every_row_of_the_catalogue_is_accepted_or_refused_as_the_articles_say(name: str) -> None:
    assert codes(KNOWN.recipes[name], "error") == REFUSED.get(name, set())


def test_no_image_of_the_catalogue_moves_before_a_lock_asks_for_it() -> None:
    images = {recipe.container for recipe in KNOWN.recipes.values() if recipe.in_container}
    assert not [image for image in images if image.endswith((":latest", ":nightly", "/"))]
    assert not [image for image in images if ":" not in image.rpartition("/")[2]]


def test_a_recipe_of_its_family_that_cannot_run_hides_no_finding() -> None:
    glm = KNOWN.recipes["glm-5.1-awq-int4"]
    foreign = replace(GGUF, name="foreign", runtime="trtllm")
    catalogue = replace(KNOWN, recipes={glm.name: glm, foreign.name: foreign})
    [finding] = [item for item in check(glm, catalogue) if item.code == "fit-none"]
    assert finding.remedy.startswith("4 Sparks hold it")


def test_nemotron_is_refused_with_its_licence_and_how_to_accept_it() -> None:
    recipe = KNOWN.recipes["nemotron-3-super-120b-nvfp4"]
    finding = check(recipe, KNOWN)[0]
    licence = "LicenseRef-NVIDIA-Nemotron-Open-Model-License"
    assert licence in finding.message
    assert f"{licence!r} to `accept_licences`" in finding.remedy
    accepting = replace(KNOWN, accepted_licences=KNOWN.accepted_licences | {licence})
    assert not [item for item in check(recipe, accepting) if item.severity == "error"]


def test_what_the_catalogue_knows_of_a_checkpoint_holds_for_a_strangers_recipe() -> None:
    """As Spark Arena's registry has Nemotron 3 Super: it states neither licence nor experts."""
    model = KNOWN.recipes["nemotron-3-super-120b-nvfp4"].model
    finding_codes = codes(parse(f"model: {model}\ncommand: vllm serve {{model}}"))
    assert "licence-refused" in finding_codes
    assert not {"licence-unknown", "guard-unknown"} & finding_codes


NGRAM = """--speculative-config '{"method":"ngram"}'"""
POOLING = """
model: {model}
runtime: vllm
container: an/image:1
defaults: {{port: 8000, host: 127.0.0.1, gpu_memory_utilization: 0.3, max_model_len: 32768}}
command: vllm serve {{model}} --port {{port}} --host {{host}} {words}
lockstep: {{licence: Apache-2.0, {block}}}
"""


def test_an_unknown_licence_is_a_finding_not_a_pass() -> None:
    recipe = stated_recipe(SEES, licence=None, draft=Draft(model="a/b"))
    findings = check(recipe, KNOWN)
    remedies = {item.code: item.remedy for item in findings}
    for code in ("licence-unknown", "draft-licence-unknown"):
        assert f"{code!r} into `waive`" in remedies[code]


@pytest.mark.parametrize(
    ("container", "entry", "command", "wrong"),
    [
        # Without a lock, of images that everybody knows.
        (f"docker.io/vllm/vllm-openai:v1@sha256:{'0' * 64}", None, "vllm serve {model}", True),
        ("ghcr.io/ggml-org/llama.cpp:server-cuda", None, "llama-server -m {model}", True),
        ("a/b:1", None, "vllm serve {model}", False),
        # By the lock.
        ("vllm/vllm-openai:v0.28.0", [], "vllm serve {model}", False),
        ("a/b:1", ["/usr/bin/vllm"], "vllm serve {model}", True),
        ("a/b:1", ["/bin/bash"], "vllm serve {model}", True),
        ("a/b:1", ["tini", "--", "vllm", "serve"], "vllm serve {model}", True),
        ("a/b:1", ["python3", "-m", "sglang.launch_server"], "sglang serve --model {model}", True),
        ("a/b:1", ["/bin/sh", "-c", "vllm serve"], "vllm serve {model}", True),
        # A wrapper starts what it is given.
        ("a/b:1", ["/opt/nvidia/nvidia_entrypoint.sh"], "vllm serve {model}", False),
        ("a/b:1", ["/bin/bash", "-c", '. /env; exec "$0" "$@"'], "vllm serve {model}", False),
    ],
)
def test_an_entry_point_that_would_double_the_command_is_refused_with_the_mend(
    container: str, entry: list[str] | None, command: str, wrong: bool
) -> None:
    text = f"model: a/b:Q8\ncontainer: {container}\ncommand: {command}\n"
    for mend, is_refused in (("", wrong), ('executor_config: {entrypoint: ""}', False)):
        errors = findings_of(parse(f"{text}{mend}"), "entry-point", entrypoint=entry)
        assert bool(errors) is is_refused
        assert all('`entrypoint: ""`' in item.remedy for item in errors)


BARE = "model: a/b\ncommand: vllm serve {model}"
ALONE = "model: a/b\nruntime: vllm\nmetadata: {quantization: NVFP4}\n"
SEES = KNOWN.recipes["qwen3.6-35b-a3b-autoround-dflash-k3-vision"]
K_6 = str(SEES.defaults["speculative_config"]).replace(":3}", ":6}")
BLIND = edited_recipe(
    SEES, "--mm-processor-cache-type {mm_processor_cache_type}", "--language-model-only"
)
EAGLE = KNOWN.recipes["mistral-small-4-119b-nvfp4-sglang-eagle"]
SHA, NEWEST = "sha256:" + "0" * 64, "lmsysorg/sglang:latest"
DIGEST, RELEASE = f"lmsysorg/sglang@{SHA}", f"docker.io/lmsysorg/sglang:v0.5.16-cu130@{SHA}"
FORK = KNOWN.recipes["mistral-small-4-119b-nvfp4-vllm-fork"]
NOT_QUANTISED = KNOWN.recipes["qwen3.6-35b-a3b-bf16"]
THROUGHPUT = replace(PRODUCTION, env={"VLLM_FLASHINFER_MOE_BACKEND": "throughput"})


def stated_recipe(recipe: Recipe, **facts: Any) -> Recipe:
    return replace(recipe, lockstep=replace(recipe.lockstep, **facts))


def tensorizer(recipe: Recipe) -> Recipe:
    return edited_recipe(recipe, "--host", "--load-format tensorizer --host")


def pooling(model: str, words: str = "", block: str = "moe: false") -> Recipe:
    return parse(POOLING.format(model=model, words=words, block=block))


def served_recipe(recipe: Recipe, *words: str, quantization: str = "nvfp4") -> Recipe:
    """An unknown model, so that the recipe says how its weights are stored."""
    return replace(
        recipe,
        model="some/model",
        metadata={**recipe.metadata, "quantization": quantization},
        command=recipe.command.rstrip() + "".join(f" \\\n  {word}" for word in words),
    )


def drafting(words: str) -> Recipe:
    return served_recipe(SGLANG, "--speculative-algorithm DSPARK", words)


SLIP = "defaults: {max_modle_len: 4096}"
MARLIN = "--moe-runner-backend marlin"
SGLANG = KNOWN.recipes["mistral-small-4-119b-nvfp4-sglang"]
NEW_SGLANG = replace(SGLANG, container=NEWEST)
OLDER_SGLANG = replace(SGLANG, container="lmsysorg/sglang:v0.5.15.post1-cu130")
RESTARTING = {"restart_policy": "always"}
SEEING_GGUF = stated_recipe(GGUF, vision=True)
#: Finding, severity (None: there is no such finding), and the recipe.
CLAIMS: list[tuple[str, str | None, Recipe]] = [
    ("utilization-too-high", "error", changed_recipe(PRODUCTION, gpu_memory_utilization=0.9)),
    ("utilization-high", "warning", changed_recipe(PRODUCTION, gpu_memory_utilization=0.87)),
    ("utilization-unset", "warning", parse(BARE)),
    # k=6 on another quantisation.
    ("draft-too-long", "warning", changed_recipe(SEES, speculative_config=K_6)),
    ("eagle-on-moving-tag", "warning", replace(EAGLE, container="lmsysorg/sglang:latest")),
    ("eagle-on-moving-tag", None, replace(EAGLE, container=DIGEST)),
    ("restart-policy", "warning", replace(PRODUCTION, executor_config=RESTARTING)),
    ("public-address", "warning", changed_recipe(PRODUCTION, host="0.0.0.0")),
    ("public-address", "warning", edited_recipe(PRODUCTION, "--host {host}", "")),
    ("public-address", None, PRODUCTION),
    # Vision is held against the weights.
    ("vision-contradiction", "error", BLIND),
    ("vision-contradiction", "error", stated_recipe(PRODUCTION, vision=True)),
    ("vision-contradiction", "error", edited_recipe(SEEING_GGUF, "-hf", "--no-mmproj -hf")),
    ("vision-contradiction", "error", replace(SEEING_GGUF, model="/srv/m.gguf")),
    ("vision-unused", "warning", stated_recipe(BLIND, vision=False)),
    ("tensorizer-quantised", "error", tensorizer(FORK)),
    ("tensorizer-quantised", None, tensorizer(NOT_QUANTISED)),
    # Only the recipe says how these weights are stored.
    ("tensorizer-quantised", "error", parse(ALONE + "defaults: {load_format: tensorizer}")),
    # The backend that froze the desktop; others of the catalogue's model would state the experts.
    ("freezing-backend", "error", stated_recipe(replace(THROUGHPUT, model="org/model"), moe=None)),
    # Beside the flag it means nothing.
    ("freezing-backend", None, THROUGHPUT),
    # What undoes the guard.
    ("freezing-backend", "warning", edited_recipe(FORK, "{moe_backend}", "auto")),
    ("freezing-backend", "warning", changed_recipe(PRODUCTION, moe_backend=False)),
    ("mtp-inherits-backend", "warning", KNOWN.recipes["qwen3.6-35b-a3b-prismaquant-mtp-n3"]),
    # Nobody runs them.
    ("key-unknown", "warning", parse(f"{BARE}\noverrides: [{{when: {{nodes: 2}}}}]")),
    ("hooks-not-run", "error", parse(f"{BARE}\nmods: [mods/fix-template]")),
    ("entry-point", "error", parse(f"{BARE}\nexecutor_config: {{entrypoint: vllm}}")),
    ("sparkrun-newer", "error", parse(f'{BARE}\nmin_sparkrun_version: "0.5.0"')),
    ("sparkrun-newer", None, parse(f'{BARE}\nmin_sparkrun_version: "0.4.1"')),
    ("cannot-run", "error", parse(f"{BARE}\nenv: {{P: '{{config.port}}'}}")),
    # This engine runs from an image, and none is named.
    ("cannot-run", "error", parse("model: a/b\nruntime: sglang")),
    ("guard-unknown", "warning", parse(BARE)),
    # Nobody reads the configuration of a folder that is on a Spark.
    ("guard-unknown", "error", parse(BARE.replace("a/b", "/data/mine"))),
    # Something takes this key of the defaults, so it is no slip.
    ("key-unknown", None, parse(f"{BARE} --max-model-len {{config.max_modle_len}}\n{SLIP}")),
    ("key-unknown", None, parse(f"{BARE}\nenv: {{LENGTH: '{{config.max_modle_len}}'}}\n{SLIP}")),
    # As Spark Arena's official recipes have it (2026-11): vLLM makes vectors of both.
    ("kind-unsure", None, pooling("Qwen/Qwen3-VL-Embedding-8B", "--runner pooling")),
    ("kind-unsure", "warning", pooling("Qwen/Qwen3-VL-Reranker-8B", "--runner pooling")),
    ("kind-unsure", None, pooling("Qwen/Qwen3-Reranker-8B", "--convert classify")),
    ("kind-unsure", "warning", pooling("Qwen/Qwen3-Embedding-8B")),
    ("kind-unsure", None, pooling("BAAI/bge-m3", "", "kind: embedding")),
    ("kind-unused", "warning", pooling("BAAI/bge-m3", "--runner pooling --reasoning-parser qwen3")),
    ("kind-unused", "warning", pooling("BAAI/bge-m3", f"--runner pooling {NGRAM}")),
    ("kind-unused", None, pooling("BAAI/bge-m3", "--reasoning-parser qwen3")),
    # The depth of a draft that corrupts: six, which is also the usual one.
    ("draft-corrupts", "warning", drafting("--speculative-num-draft-tokens 6")),
    ("draft-corrupts", None, drafting("--speculative-num-draft-tokens 5")),
    ("draft-corrupts", None, drafting("--speculative-num-draft-tokens 7")),
    ("draft-corrupts", "warning", drafting("--speculative-dspark-block-size 5")),
    ("draft-corrupts", None, drafting("--speculative-dspark-block-size 4")),
    # Marlin with weights of four bits.
    ("kernels-corrupt", "warning", served_recipe(SGLANG, MARLIN, quantization="W4A16")),
    ("kernels-corrupt", None, served_recipe(SGLANG, MARLIN)),
    # What a tag says that is no release is not known, and what is newest has the other kernels.
    ("kernels-corrupt", "warning", replace(SGLANG, container=DIGEST)),
    ("kernels-corrupt", "warning", replace(SGLANG, container=RELEASE)),
    ("kernels-corrupt", None, OLDER_SGLANG),
    ("kernels-corrupt", None, stated_recipe(NEW_SGLANG, moe=False)),
    ("kernels-corrupt", None, served_recipe(NEW_SGLANG, quantization="bf16")),
    # ModelOpt's class chooses its kernels by a flag.
    ("kernels-corrupt", None, served_recipe(NEW_SGLANG, "--quantization modelopt_fp4")),
]


@pytest.mark.parametrize(("code", "severity", "recipe"), CLAIMS)
def test_what_a_recipe_claims_wrongly_is_found_and_only_that(code, severity, recipe) -> None:
    severities = {item.severity for item in findings_of(recipe, code)}
    assert severities == ({severity} if severity else set())


def test_an_engine_outside_the_recipes_range_is_refused() -> None:
    recipe = KNOWN.recipes["gpt-oss-120b"]
    assert "engine-version" in codes(recipe, "error", engine_version="0.32.0")
    assert "engine-version" not in codes(recipe, engine_version="0.19.1")


@pytest.mark.parametrize("key", ["max_modle_len", "dcp_size", "max_model_len", "foo"])
@pytest.mark.parametrize("command", ["command: vllm serve {model}", "container: a/image:v1"])
def test_a_slip_in_the_defaults_is_refused(key: str, command: str) -> None:
    recipe = parse(f"model: a/b\n{command}\ndefaults: {{{key}: 4096}}\n")
    near = [("error", "Did you mean 'max_model_len'?")] if key == "max_modle_len" else []
    assert [(item.severity, item.remedy) for item in findings_of(recipe, "key-unknown")] == near


@pytest.mark.parametrize(
    ("key", "value", "allowed"),
    [
        ("port", 99999, "1 to 65535"),
        ("port", 0, "1 to 65535"),
        ("tensor_parallel", 1.5, "1 or more"),
    ],
)
def test_a_number_that_no_engine_takes_is_refused(key: str, value: float, allowed: str) -> None:
    [finding] = findings_of(changed_recipe(parse("model: a/b"), **{key: value}), "cannot-run")
    assert finding.message == f"{key} must be a whole number; found {value}; allowed: {allowed}"


def test_a_cache_type_of_unknown_size_is_named_with_those_that_are_known() -> None:
    recipe = replace(PRODUCTION, command=f"{PRODUCTION.command} --kv-cache-dtype fp7")
    [finding] = findings_of(recipe, "fit-unknown")
    assert "type fp7 (kv_cache_dtype)" in finding.message
    assert finding.remedy.startswith("Set kv_cache_dtype to a type of known size: auto, bfloat16,")


@pytest.mark.parametrize(
    ("key", "near"),
    [
        ("comand", "command"),
        ("entrypoint", "executor_config.entrypoint"),
        ("max_model_len", "defaults.max_model_len"),
        # The format has it, or allows whatever else.
        ("containers", ""),
        ("builder", ""),
    ],
)
def test_a_key_that_is_like_a_known_one_is_warned_about(key: str, near: str) -> None:
    recipe = parse(f"model: a/b\ncommand: vllm serve {{model}}\n{key}: x\n")
    remedies = [item.remedy for item in findings_of(recipe, "key-unknown")]
    assert remedies == ([f"Did you mean {near!r}?"] if near else [])


def test_findings_are_ordered_and_waived_by_code() -> None:
    warning, error = Finding("b-code", "warning", "a", "m"), Finding("z-code", "error", "z", "m")
    assert in_order([warning, error]) == [error, warning]
    assert split_waived([warning, error], {"b-code"}) == ([error], [warning])


def test_what_corrupts_answers_on_sglang_is_named_with_its_report() -> None:
    [draft] = findings_of(drafting(""), "draft-corrupts")
    assert "sglang#33800" in draft.message
    # The lock knows what a tag does not say.
    assert not findings_of(NEW_SGLANG, "kernels-corrupt", engine_version="0.5.15.post1")
    assert findings_of(OLDER_SGLANG, "kernels-corrupt", engine_version="0.5.23")


def states_of(sequences: int, options: str = "") -> list[Finding]:
    command = f"{NOT_QUANTISED.command.rstrip()} --max-num-seqs {sequences}{options}"
    return findings_of(replace(NOT_QUANTISED, command=command), "too-many-states")


def test_more_sequences_than_states_are_refused_with_a_number_that_holds() -> None:
    """vLLM: max_num_seqs (1024) exceeds available Mamba cache blocks (252)."""
    worse, better = fit(NOT_QUANTISED, KNOWN.knowledge).states
    assert 0 < worse < better < 2048
    (finding,) = states_of(2048)
    assert finding.severity == "error"
    assert f"Set max_num_seqs to {worse} or less" in finding.remedy
    assert [item.severity for item in states_of(worse + 1)] == ["warning"]
    assert not states_of(4)
    # It is the capture of graphs that refuses.
    assert not states_of(2048, " --enforce-eager")


@pytest.mark.parametrize(
    ("version", "options", "is_kept"),
    [
        ("0.26.0", "", False),
        ("0.32.0", "", True),
        (None, "", True),
        ("a fork", "", True),
        ("0.26.0", " --enable-prefix-caching", True),
        ("0.32.0", " --no-enable-prefix-caching", False),
    ],
)
def test_earlier_prompts_are_counted_as_the_version_of_the_engine_keeps_them(
    version: str | None, options: str, is_kept: bool
) -> None:
    """0.26.0 said 50.93 sequences where 49 were predicted: 4 percent too few."""
    recipe = parse(f"model: a/b\ncommand: vllm serve {{model}}{options}\n")
    assert serving(recipe, version=version).prefix_caching is is_kept


@pytest.mark.parametrize("name", ["mistral", "mistral-vllm", "qwen"])
def test_no_default_model_runs_kernels_that_were_reported(name: str) -> None:
    data = all_hosts.models[name]
    for recipe in filter(None, (data["recipe"], data.get("fallback"))):
        finding_codes = codes(KNOWN.recipes[recipe])
        assert not finding_codes & {"kernels-corrupt", "freezing-backend", "eagle-on-moving-tag"}


def test_the_default_fallback_shares_no_kernels_with_what_it_stands_in_for() -> None:
    data = all_hosts.models["mistral"]
    main, spare = KNOWN.recipes[data["recipe"]], KNOWN.recipes[data["fallback"]]
    assert main.model == spare.model
    assert (main.lockstep.engine, spare.lockstep.engine) == ("sglang", "vllm")
    # EAGLE's regression must not take it along either.
    assert spare.lockstep.draft is None
    # 12.5 tok/s on an image that had regressed, 29 without EAGLE, 36.5 with it (article 001).
    assert 12.5 < data["minimum"]["decode_tok_s"] < 29
