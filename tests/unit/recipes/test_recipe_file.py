"""Recipes are read with all surprises of the format, and every fault names file, line and key."""

import json
import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lockstep.cli.main import main
from lockstep.core.errors import LockstepError, RecipeError
from lockstep.fit import catalogue as catalogues
from lockstep.fit.recipe_checks import check
from lockstep.onhost.engines import ENGINES
from lockstep.recipes import command, recipe_file

CATALOGUE = Path(__file__).parents[3] / "catalogue" / "recipes"
FILE = Path("some.yaml")
KNOWN = catalogues.load()
MINIMAL = "model: Qwen/Qwen3-1.7B\nruntime: vllm\ncontainer: an/image:1\n"


def read(text: str) -> recipe_file.Recipe:
    return recipe_file.parse(text, FILE)


def refusal(text: str) -> RecipeError:
    with pytest.raises(RecipeError) as error:
        read(text)
    return error.value


def test_a_minimal_recipe_gets_the_formats_defaults() -> None:
    recipe = read(MINIMAL)
    assert (recipe.name, recipe.model, recipe.model_revision) == ("some", "Qwen/Qwen3-1.7B", None)
    assert (recipe.runtime, recipe.engine) == ("vllm-distributed", ENGINES["vllm"])
    assert (recipe.min_nodes, recipe.max_nodes) == (1, None)
    assert recipe.in_container


@pytest.mark.parametrize(
    ("lines", "runtime"),
    [
        ("command: vllm serve {model}", "vllm-distributed"),
        ("command: python3 -m sglang.launch_server --model-path {model}", "sglang"),
        ("command: trtllm-serve {model}", "trtllm"),
        ("command: vllm serve {model} --distributed-executor-backend ray", "vllm-ray"),
        ("defaults: {distributed_executor_backend: ray}", "vllm-ray"),
        ("runtime: sglang\ncommand: vllm serve {model}", "sglang"),
        ("", "vllm-distributed"),
    ],
)
def test_the_runtime_is_guessed_as_sparkrun_guesses_it(lines: str, runtime: str) -> None:
    assert read(f"model: a/b\n{lines}\n").runtime == runtime


@pytest.mark.parametrize(
    ("lines", "nodes"),
    [("mode: solo", (1, 1)), ("cluster_only: true", (2, None)), ('min_nodes: "4"', (4, None))],
)
def test_deprecated_spellings_of_the_node_count_still_count(lines: str, nodes: tuple[int, Any]):
    recipe = read(MINIMAL + lines + "\n")
    assert (recipe.min_nodes, recipe.max_nodes) == nodes


def test_unknown_keys_are_no_faults_and_values_of_the_environment_become_text() -> None:
    recipe = read(f"{MINIMAL}mods: [mods/fix]\nour_note: 1\nenv: {{A: 1, C: 12.1a}}\n")
    assert recipe.hooks == ("mods",)
    assert recipe.env == {"A": "1", "C": "12.1a"}


def test_an_unknown_lockstep_key_names_file_line_key_and_what_is_allowed() -> None:
    error = refusal(MINIMAL + "lockstep:\n  licence: MIT\n  licnce: MIT\n")
    assert error.where == "some.yaml:6"
    assert "'licnce'" in str(error)
    assert "engine_versions" in error.allowed and "licence" in error.allowed


def test_version_1_is_refused_and_says_what_to_change() -> None:
    error = refusal('recipe_version: "1"\nmodel: a/b\nmods: [x]\n')
    assert error.where == "some.yaml:1"
    assert "mods" in error.remedy and "container" in error.remedy


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("", "found nothing"),
        ("- a\n", "found a list"),
        ("runtime: vllm\n", "names no model"),
        ("model: a/b\ndefaults: 3\n", "defaults must be a mapping"),
        ("model: a/b\nmin_nodes: 0\n", "whole number of Sparks"),
        ("model: a/b\nmin_nodes: true\n", "min_nodes must be a whole number"),
        ("model: a/b\nmin_nodes: 3\nmax_nodes: 2\n", "larger than max_nodes"),
        ("model: a/b\nruntime: vlm\n", "Did you mean 'vllm'? Allowed: llama-cpp, sglang"),
        ("model: org/..\n", "Hugging Face id"),
        ("model: /models/../x\n", "Hugging Face id"),
        ("model: a/b\nlockstep: {draft: {model: ../../../etc}}\n", "Hugging Face id"),
        ("model: a/b\nlockstep: {borrow: [{model: '-x', files: [a]}]}\n", "Hugging Face id"),
        ("model: a/b\ncontainer: --privileged\n", "one word"),
        ("model: a/b\nenv: {A-B: 1}\n", "not a variable name"),
        ("model: a/b\nenv: {A: [1]}\n", "one text or number"),
        ("model: a/b\ndefaults: {model: c/d}\n", "would not be what is served"),
        ("model: a/b\nlockstep: {borrow: [{model: c/d, files: [../x]}]}\n", "file inside"),
        ("model: a/b\nlockstep: {engine: trt}\n", "found 'trt'; allowed: llamacpp, sglang, vllm"),
        ("model: a/b\nlockstep: {memory: {value: 67}}\n", "lockstep.memory.kind are missing"),
        ("model: a/b\nlockstep: {engine_versions: '>>1'}\n", "version specifier"),
        ("? [a]\n: b\n", "plain word"),
    ],
)
def test_wrong_input_gives_one_clear_sentence(text: str, part: str) -> None:
    error = refusal(text)
    assert part in str(error)
    assert str(error).startswith("some.yaml")


def test_files_that_cannot_be_read_are_recipe_errors(tmp_path: Path) -> None:
    latin = tmp_path / "latin.yaml"
    latin.write_bytes(b"model: a/b # \xe9\n")
    with pytest.raises(RecipeError, match="byte 0xe9 at offset 13"):
        recipe_file.load(latin)
    for path in (tmp_path / "none.yaml", tmp_path):
        with pytest.raises(RecipeError, match="cannot be read"):
            recipe_file.load(path)


def test_two_files_of_one_name_are_refused(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "same.yaml").write_text(MINIMAL)
    with pytest.raises(RecipeError, match="exists twice"):
        recipe_file.load_catalogue(tmp_path / "a", tmp_path / "b")


def test_qwen36_serves_agents_without_thinking() -> None:
    """Article 001: with thinking 100 to 200 s for a coding answer; off is mandatory for agents."""
    qwens = [KNOWN.recipes[name] for name in KNOWN.recipes if name.startswith("qwen3.6")]
    agents = [recipe for recipe in qwens if recipe.metadata.get("category") == "agent"]
    assert len(agents) > 2
    for recipe in agents:
        argv = command.serve_command(recipe)
        template_settings = argv[argv.index("--default-chat-template-kwargs") + 1]
        assert json.loads(template_settings) == {"enable_thinking": False}, recipe.name


# Any YAML-like tree, biased towards the format's own keys, so that deep code is reached.
WORDS = ["vllm", "sglang", "{port}", "a/b", "vllm serve {model}", "'", "{a}", "2"]
KEYS = ["model", "engine", "draft", "files", "memory", "value", "kind"]
_numbers = st.one_of(st.none(), st.booleans(), st.integers(-3, 10**6), st.floats())
_scalars = st.one_of(_numbers, st.text(max_size=20), st.sampled_from(WORDS))
_keys = st.one_of(st.text(max_size=8), st.sampled_from(KEYS))
_trees = st.recursive(
    _scalars,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(_keys, inner, max_size=4)),
    max_leaves=8,
)
_fields = [item.name for item in fields(recipe_file.Recipe)]


def _exercise(text: str) -> None:
    """Read it, build its command line, check it: a fault is one sentence, never a traceback."""
    try:
        recipe = recipe_file.parse(text, FILE)
        command.serve_command(recipe, overrides={"port": 1, "model": "/m", "draft_model": "/d"})
        command.environment(recipe)
    except LockstepError as error:
        assert str(error)
        return
    assert all(finding.code and finding.message for finding in check(recipe, KNOWN))


@pytest.mark.slow
@settings(max_examples=200, suppress_health_check=list(HealthCheck))
@given(st.sampled_from(sorted(CATALOGUE.glob("*.yaml"))), st.sampled_from(_fields), _trees)
def test_any_value_in_any_place_never_gives_a_traceback(path: Path, key: str, value: object):
    recipe = {**yaml.load(path.read_text(), yaml.CSafeLoader), key: value}
    _exercise(yaml.dump(recipe, Dumper=yaml.CSafeDumper, allow_unicode=True))


TOKEN = "hf_" + "a" * 34


@pytest.mark.parametrize(
    ("words", "env", "secret_names"),
    [
        ("--api_k=sk-1", "", ["--api-key"]),
        (f"--more-of-it {TOKEN}", "", ["--more-of-it"]),
        ('--more-config \'{"a": {"apiKey": "s3"}}\'', "", ["--more-config"]),
        ("--more-config.a.auth_token s3", "", ["--more-config"]),
        ("--env NGC_API_KEY=s3", "", ["NGC_API_KEY"]),
        ("", f"HF_TOKEN: {TOKEN}", ["HF_TOKEN"]),
        # One is inside the other.
        ("--api-key bb", "A: hf_s3bbs3bbs3bbs3bbs3bb", ["--api-key", "A"]),
        ("", "OPENAI_API_KEY: $OPENAI_API_KEY", ["OPENAI_API_KEY"]),
        ("", 'A: \'{"b": [{"password": "s3"}]}\'', ["A"]),
        ("", "PROXY: http://me:s3@proxy:3128", ["PROXY"]),
        ("--ssl-keyfile /k --allow-credentials", "TOKENIZERS_PARALLELISM: false", []),
        ("--a-per-token 8 --to-first-token=2", "HF_HUB_DISABLE_IMPLICIT_TOKEN: 1", []),
        ('--hf-overrides \'{"pad_token": "<pad>", "key": "x"}\'', "A: sk-learn", []),
    ],
)
def test_a_secret_is_refused_wherever_it_is_written_and_never_shown(
    words: str, env: str, secret_names: list[str], tmp_path: Path
):
    path = tmp_path / "secret.yaml"
    command = f"command: |\n  vllm serve {{model}} {words}\n"
    env_lines = f"env:\n  {env}\n" if env else ""
    path.write_text(f"model: a/b\ncontainer: a/b:1\n{command}{env_lines}")
    findings = [
        (item.severity, item.message.partition(":")[0])
        for item in check(recipe_file.load(path), KNOWN)
        if item.code == "secret-on-command-line"
    ]
    assert findings == ([("error", ", ".join(secret_names))] if secret_names else [])
    output = CliRunner().invoke(main, ["recipe", "show", str(path)]).output
    assert not re.search(r"sk-1|s3|hf_aa", output)


@pytest.mark.parametrize(
    "env", ["[HF_TOKEN=s3cret]", "{HF_TOKEN: [s3cret]}", '{HF_TOKEN: "s3cret\\n"}', "s3cret"]
)
def test_a_file_that_is_refused_does_not_show_it(env: str) -> None:
    with pytest.raises(RecipeError) as error:
        recipe_file.parse(f"model: a/b\nenv: {env}\n", Path("x.yaml"))
    assert "s3cret" not in str(error.value) and "env" in str(error.value)
