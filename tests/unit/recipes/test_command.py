"""Whole command lines and environments, as engines receive them; and those of others, read.

Those of the default models stand in `tests/render/golden`.
"""

import itertools
import json
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lockstep.core.errors import RecipeError
from lockstep.fit import catalogue
from lockstep.fit.recipe_checks import check
from lockstep.onhost.engines import ENGINES
from lockstep.recipes import adopted_recipe, recipe_file
from lockstep.recipes.block import Draft
from lockstep.recipes.command import environment, serve_command
from lockstep.recipes.draft import draft_of
from lockstep.recipes.recipe_file import parse
from lockstep.recipes.spelling import in_full_spelling, size
from lockstep.units import docker_run

CATALOGUE = recipe_file.load_catalogue(Path(__file__).parents[3] / "catalogue" / "recipes")

# Article 003's ExecStart, word for word, less the path of its venv.
ARTICLE_003 = """
vllm serve mistralai/Mistral-Small-4-119B-2603-NVFP4 --max-model-len 262144 \
--tensor-parallel-size 1 --attention-backend TRITON_MLA --tool-call-parser mistral \
--enable-auto-tool-choice --reasoning-parser mistral --max-num-batched-tokens 16384 \
--max-num-seqs 128 --gpu-memory-utilization 0.8 --no-enable-flashinfer-autotune \
--cudagraph-capture-sizes 1 2 4 8 16 32 64 128 256 --max-cudagraph-capture-size 256
"""


def line(recipe: recipe_file.Recipe, **keywords: object) -> str:
    return shlex.join(serve_command(recipe, **keywords))  # type: ignore[arg-type]


def recipe_of(body: str) -> recipe_file.Recipe:
    return recipe_file.parse(f"model: org/model\n{body}", Path("some.yaml"))


def test_the_vllm_fork_gets_article_003_flag_for_flag_and_the_freeze_guard() -> None:
    recipe = CATALOGUE["mistral-small-4-119b-nvfp4-vllm-fork"]
    argv = list(serve_command(recipe))
    assert argv[3:7] == ["--host", "127.0.0.1", "--port", "8000"]
    del argv[3:7]
    at = argv.index("--moe-backend")
    assert argv[at + 1] == "marlin"
    del argv[at : at + 2]
    assert argv == shlex.split(ARTICLE_003)


@pytest.mark.parametrize(
    ("body", "overrides", "times"),
    [
        ("command: sglang serve --model-path {model} --sleep-on-idle --port 1", {}, 1),
        ("runtime: sglang\ndefaults: {sleep_on_idle: false}", {}, 0),
        ("command: sglang serve --model-path {model}", {"sleep_on_idle": False}, 0),
    ],
)
def test_sglang_sleeps_on_idle_unless_it_is_told_not_to(body: str, overrides, times):
    assert line(recipe_of(body), overrides=overrides).split().count("--sleep-on-idle") == times


def test_overrides_win_over_defaults_and_over_flags_written_out() -> None:
    command = "defaults: {port: 1}\ncommand: vllm serve {model} --port {port} --host 0.0.0.0 -tp 1"
    ranks = {"port": 2, "host": "127.0.0.1", "tensor_parallel": 2, "node_rank": 1}
    expected = "--port 2 --host 127.0.0.1 --tensor-parallel-size 2 --node-rank 1"
    assert line(recipe_of(command), overrides=ranks) == f"vllm serve org/model {expected}"
    # Of a flag given twice the last one counts.
    recipe = recipe_of("command: vllm serve {model} --port 1 --host a --port 2")
    assert line(recipe, overrides={"port": 3}) == "vllm serve org/model --port 1 --host a --port 3"


def test_a_positional_model_behind_its_flags_is_not_swallowed() -> None:
    recipe = recipe_of("command: vllm serve --port 1 {model}")
    assert line(recipe, overrides={"port": 2}) == "vllm serve org/model --port 2"


def test_a_local_model_keeps_its_name_in_the_api() -> None:
    recipe = recipe_of("model_revision: abc\ncommand: vllm serve {model} --port 1")
    assert line(recipe) == "vllm serve org/model --port 1 --revision abc"
    local = "vllm serve /data/m --port 1 --served-model-name org/model"
    assert line(recipe, overrides={"model": "/data/m"}) == local


def test_a_local_draft_reaches_both_engines() -> None:
    vllm = recipe_of('command: |\n  vllm serve {model} --speculative-config \'{"model":"d/d"}\'')
    assert line(vllm, overrides={"draft_model": "/d"}) == (
        'vllm serve org/model --speculative-config \'{"model":"/d"}\''
    )
    sglang = recipe_of(
        "command: sglang serve --model-path {model} --speculative-draft-model-path d/d"
    )
    assert line(sglang, overrides={"draft_model": "/d", "draft_revision": "abc"}) == (
        "sglang serve --model-path org/model --speculative-draft-model-path /d "
        "--speculative-draft-model-revision abc --sleep-on-idle"
    )


def test_without_a_command_the_defaults_become_flags() -> None:
    body = (
        "runtime: {}\ndefaults: {{port: 1, tensor_parallel: 2, max_model_len: 9, "
        "gpu_memory_utilization: 0.5, trust_remote_code: true, enforce_eager: false, "
        "speculative_config: {{method: mtp, num_speculative_tokens: 2}}}}"
    )
    assert line(recipe_of(body.format("vllm"))) == (
        "vllm serve org/model --port 1 --tensor-parallel-size 2 --max-model-len 9 "
        "--gpu-memory-utilization 0.5 --trust-remote-code --speculative-config "
        '\'{"method":"mtp","num_speculative_tokens":2}\''
    )
    assert line(recipe_of(body.format("sglang")), overrides={"speculative_config": None}) == (
        "sglang serve --model-path org/model --port 1 --tp-size 2 --context-length 9 "
        "--mem-fraction-static 0.5 --trust-remote-code --sleep-on-idle"
    )


def test_placeholders_are_iterative_and_json_braces_stay() -> None:
    recipe = recipe_of(
        "defaults: {url: 'http://localhost:{port}', port: 8, spec: '{\"n\": {n}}', n: 3}\n"
        "command: |\n  vllm serve {model} \\  \n    --url {url} \\\n    --more '{spec}' \\\n"
    )
    words = ("--url", "http://localhost:8", "--more", '{"n": 3}')
    assert serve_command(recipe) == ("vllm", "serve", "org/model", *words)


@pytest.mark.parametrize(
    ("body", "part"),
    [
        ("command: vllm serve {model} --port {port}", "{port}"),
        ("defaults: {a: '{b}', b: '{a}'}\ncommand: vllm serve {a}", "circle"),
        ("defaults: {a: '{a}{a}'}\ncommand: vllm serve {a}", "circle"),
        ("command: vllm serve {model} --x 'y", "quotes do not balance"),
        ("command: vllm serve {model} && rm -rf x", "needs a shell"),
        ("command: vllm serve {model} --port $PORT", "needs a shell"),
        ("command: vllm serve {model} --x `id`", "needs a shell"),
        ("runtime: vllm\ncommand: bash -c 'vllm serve'", "must start the engine"),
        ("command: trtllm-serve {model}", "does not run this engine"),
        ("command: vllm serve --config /data/a.yaml", "flags from a file"),
        ("command: >-\n  vllm serve {model} \\\n  --port 1", "glues the next word"),
    ],
)
def test_commands_that_cannot_run_without_a_shell_are_refused(body: str, part: str) -> None:
    with pytest.raises(RecipeError) as error:
        serve_command(recipe_of(body))
    assert part in str(error.value) and "some.yaml" in str(error.value)


def test_a_broken_speculative_config_is_named_when_the_draft_is_replaced() -> None:
    recipe = recipe_of("command: vllm serve {model} --speculative-config {x")
    with pytest.raises(RecipeError, match=r"some\.yaml: .*--speculative-config is not JSON; found"):
        serve_command(recipe, overrides={"draft_model": "/d"})


def test_variables_in_the_environment_come_from_the_inventory_or_are_refused() -> None:
    recipe = recipe_of("env: {TOKEN: $HF_TOKEN, BOTH: 'a${X}b'}")
    assert environment(recipe, control={"HF_TOKEN": "t", "X": "x"})["BOTH"] == "axb"
    with pytest.raises(RecipeError, match=r"env.TOKEN refers to \$HF_TOKEN"):
        environment(recipe)


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("{config.port}", "9"),
        ("{config.a}-{config.model}", "x-org/model"),
        ("{launch.num_nodes}/{launch.model_path}", "2//m"),
        ('{"p":{config.port}}', '{"p":9}'),
        # sparkrun's own rules: an escape, shell's braces, and no other braces.
        ("{{config.port}} ${config.port} {port}", "{config.port} ${config.port} {port}"),
        *((text, None) for text in ("{config.gone}", "{config.port:04}", "{config.port")),
        *((text, None) for text in ("{config.many}", "{launch.cluster_id}", "{launch.node_rank}")),
    ],
)
def test_sparkruns_names_in_the_environment_have_a_value_or_are_refused(text: str, read):
    recipe = recipe_of(f"defaults: {{port: 8, a: x, many: [1]}}\nenv: {{V: {text!r}}}")
    launch = {"num_nodes": 2, "model_path": "/m"}
    if read is None:
        with pytest.raises(RecipeError, match=r"env\.V refers to"):
            environment(recipe, overrides={"port": 9}, launch=launch)
    else:
        assert environment(recipe, overrides={"port": 9}, launch=launch) == {"V": read}


def test_before_a_start_its_names_stay_and_in_a_command_they_are_refused() -> None:
    recipe = recipe_of(
        "defaults: {port: 8}\nenv: {V: '{launch.node_rank}'}\n"
        "command: 'vllm serve {model} --port {config.port} --seed {launch.node_rank}'"
    )
    assert environment(recipe) == {"V": "{launch.node_rank}"}
    with pytest.raises(RecipeError, match=r"launch\.node_rank"):
        serve_command(recipe)
    served_recipe = replace(recipe, command=recipe.command.partition(" --seed")[0])
    assert line(served_recipe) == "vllm serve org/model --port 8"


@pytest.mark.parametrize("command", ["command: llama-server -m {model} -c 9\n", ""])
def test_variables_that_stand_for_flags_are_flags_and_a_written_one_wins(command: str) -> None:
    recipe = recipe_of(
        f"runtime: llama-cpp\n{command}"
        "defaults: {port: 8}\nenv: {LLAMA_ARG_PORT: '{config.port}', LLAMA_ARG_CTX_SIZE: 4096,"
        " LLAMA_ARG_EMBEDDINGS: 'true', LLAMA_ARG_RERANKING: '0', LLAMA_ARG_JINJA: 1}"
    )
    full_command = serve_command(recipe, overrides={"max_num_seqs": 2})
    own = ("-c", "9") if command else ("--ctx-size", "4096")
    assert set(itertools.pairwise(full_command)) >= {own, ("--port", "8"), ("--parallel", "2")}
    assert "--embeddings" in full_command and "--reranking" not in full_command
    assert full_command.count("--port") == 1
    assert environment(recipe) == {"LLAMA_ARG_JINJA": "1"}


def test_a_container_gets_the_gpu_but_neither_the_host_nor_a_restart_policy() -> None:
    config = "{restart_policy: always, privileged: true, shm_size: 16gb, entrypoint: ''}"
    recipe = recipe_of(f"executor_config: {config}\nlockstep: {{ulimits: {{memlock: -1}}}}")
    assert docker_run.run_options(recipe) == (
        *("--gpus", "all", "--network", "host", "--ipc", "host", "--shm-size", "16gb"),
        *("--entrypoint", "", "--ulimit", "memlock=-1"),
    )


@pytest.mark.parametrize(
    "text",
    [
        "executor_config: {network: 'container:open-webui'}",
        "lockstep: {ulimits: {'nofile=1 --privileged': 1}}",
        "lockstep: {ulimits: {nofile: -2}}",
    ],
)
def test_a_recipe_cannot_reach_beyond_its_container(text: str) -> None:
    with pytest.raises(RecipeError):
        docker_run.run_options(recipe_of(text))


HEAD = 'recipe_version: "2"\nmodel: org/model\ncontainer: org/image:v1\n'
OF_VLLM = HEAD + "command: |\n  vllm serve {model} "
OF_SGLANG = HEAD + "runtime: sglang\ncommand: |\n  sglang serve --model-path {model} "
OF_LLAMACPP = HEAD.replace("/model", "/model:Q4") + "command: |\n  llama-server -hf {model} "
PATH, OF_REVISION = "--speculative-draft-model-path", Draft("org/d", "4")
STATED = "\nlockstep:\n  draft: {model: org/other, licence: MIT}\n"


@pytest.mark.parametrize(
    ("text", "draft"),
    [
        (OF_VLLM + """--speculative-config '{"model":"org/d"}'""", Draft("org/d")),
        (OF_VLLM + "--speculative-config.model org/d --speculative_config.revision 4", OF_REVISION),
        (OF_SGLANG + f"{PATH}=org/d --speculative-draft-model-revision 4", OF_REVISION),
        (OF_SGLANG + f"{PATH} org/d{STATED}", Draft("org/other", None, "MIT")),
        # On the host already, the model's own head, and no repository.
        (OF_VLLM + """--speculative-config '{"model":"/data/d"}'""", None),
        (OF_VLLM + """--speculative-config '{"method":"mtp","model":"org/model"}'""", None),
        (OF_VLLM + """--speculative-config '{"model":"org/../d"}'""", None),
        # A file in a repository, which this engine does not look up.
        (OF_LLAMACPP + "--model-draft org/d.gguf", None),
        # No command can be made.
        (OF_VLLM + """--speculative-config 'not JSON'""", None),
    ],
)
def test_a_draft_that_only_the_command_names_is_found(text: str, draft: Draft | None) -> None:
    assert draft_of(parse(text, Path("some.yaml"))) == draft


@pytest.mark.parametrize(
    ("text", "is_refused"),
    [
        (OF_SGLANG + f"{PATH} org/d", False),
        (OF_LLAMACPP + "--model-draft org/d.gguf", True),
        # Another one is stated than the engine would open.
        (OF_SGLANG + f"{PATH} org/d{STATED}", True),
    ],
)
def test_a_draft_of_the_command_is_fetched_or_refused(text: str, is_refused: bool) -> None:
    codes = {finding.code for finding in check(parse(text, Path("some.yaml")), catalogue.load())}
    assert ("not-fetched" in codes) is is_refused
    assert is_refused or "draft-licence-unknown" in codes


VLLM, SGLANG, LLAMA = (ENGINES[name] for name in ("vllm", "sglang", "llamacpp"))


@pytest.mark.parametrize(
    ("given_words", "read"),
    [
        ("--max_model_len 4096", "--max-model-len 4096"),
        ("--gpu-memory 0.95", "--gpu-memory-utilization 0.95"),
        # Two options begin so, and one is no abbreviation of itself.
        ("--max-num 4", "--max-num 4"),
        ("-tp 2 --seed -1", "--tensor-parallel-size 2 --seed -1"),
        ("-dcp=2 -qfp8", "--decode-context-parallel-size=2 --quantization fp8"),
        ("-O3 -O 2", "--optimization-level 3 --optimization-level 2"),
        ("--a_flag_of_a_fork a_value", "--a-flag-of-a-fork a_value"),
    ],
)
def test_a_flag_is_read_in_full(given_words: str, read: str) -> None:
    full_words = in_full_spelling(VLLM, ("vllm", "serve", "org/a_model", *given_words.split()))
    assert full_words == ("vllm", "serve", "org/a_model", *read.split())


def test_sglang_takes_abbreviations_and_llama_cpp_takes_underscores() -> None:
    assert in_full_spelling(SGLANG, ("--mem-fraction", "0.95")) == ("--mem-fraction-static", "0.95")
    assert in_full_spelling(LLAMA, ("--ctx_size", "4096")) == ("--ctx-size", "4096")
    # Dotted flags are vLLM's.
    words = ("--model-config.a", "1")
    assert in_full_spelling(SGLANG, words) == words


def test_dotted_flags_are_one_json_value_at_the_end() -> None:
    command_line = (
        "--speculative-config.model org/draft --seed 1 --speculative_config.method=eagle3"
        " -sc.model other --speculative-config.num_speculative_tokens 3 --speculative-config.a.b 1k"
        " --speculative-config.a.c+ x,y --speculative-config.a.c+ z"
    )
    words = in_full_spelling(VLLM, tuple(command_line.split()))
    *leading_words, flag, value, last, last_value = words
    # By another name it is another flag, and of equal flags vLLM takes the last.
    assert (last, json.loads(last_value)) == (flag, {"model": "other"})
    assert [*leading_words, flag] == ["--seed", "1", "--speculative-config"]
    assert json.loads(value) == {
        "model": "org/draft",
        "method": "eagle3",
        "num_speculative_tokens": 3,
        "a": {"b": 1000, "c": ["x", "y", "z"]},
    }


@pytest.mark.parametrize("words", [("-O.level=3",), ("-O.level", "3")])
def test_a_key_of_a_flag_of_one_letter_is_refused(words: tuple[str, ...]) -> None:
    """The parser of 0.26 reads a level ".level=3"; Lockstep read a level {"level":3}."""
    with pytest.raises(RecipeError, match=r"found -O\.level.*--compilation-config"):
        in_full_spelling(VLLM, words)


@pytest.mark.parametrize(
    ("text", "number"), [("256k", 256_000), ("6G", 6 * 2**30), (".5", 0.5), ("1.1k", 1100)]
)
def test_a_size_is_read_as_the_engine_reads_it(text: str, number: float) -> None:
    assert size(text) == number


@pytest.mark.parametrize("text", ["6 GB", "1.5K"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"6 GB|1\.5"):
        size(text)


def foreign_engine(argv: str, engine: str = "vllm", **more: Any) -> dict[str, Any]:
    name = {"name": "My_LLM.service", "kind": "unit", "engine": engine, "argv": argv.split()}
    settings = {"environment": {}, "withheld": [], "image": "", "running": True, "mounts": {}}
    return {**name, **settings, **more}


@pytest.mark.parametrize(
    ("engine", "argv", "model"),
    [
        ("vllm", "vllm serve org/M --port 8000 --enforce-eager", "org/M"),
        ("vllm", "vllm serve --model org/M --port 8000", "org/M"),
        ("sglang", "sglang serve --model-path org/M --tp 1", "org/M"),
        ("llamacpp", "llama-server -m /m/x.gguf -c 4096", "/m/x.gguf"),
        ("llamacpp", "llama-server -hf org/M:Q4_K_M -c 4096", "org/M:Q4_K_M"),
    ],
)
def test_the_recipe_starts_the_same(engine: str, argv: str, model: str) -> None:
    engine_facts = foreign_engine(argv, engine, environment={"A": 'b "c"'}, image="ghcr.io/x/y:1")
    item = parse(adopted_recipe.recipe(engine_facts, "spark1"), Path("my-llm.yaml"))
    assert item.engine and item.engine.name == engine and item.model == model
    assert item.container == "ghcr.io/x/y:1" and item.executor_config["entrypoint"] == ""
    assert environment(item)["A"] == 'b "c"'
    flags = [word for word in argv.split() if word.startswith("--") and word != "--model"]
    assert set(flags) <= set(serve_command(item))


def test_json_stays_one_word_and_names_are_plain() -> None:
    hub = {"HF_HOME": "/home/me/.cache/huggingface"}
    engine_facts = foreign_engine(
        "vllm serve org/M --speculative-config", withheld=["HF_TOKEN"], environment=hub
    )
    engine_facts["argv"].append('{"method": "mtp"}')
    text = adopted_recipe.recipe(engine_facts, "spark1")
    assert '{"method": "mtp"}' in serve_command(parse(text, Path("my-llm.yaml")))
    assert "HF_TOKEN" in text and "unit My_LLM.service on spark1, running" in text
    # Where its weights lie is not taken over.
    assert "HF_HOME" not in text and "env:" not in text
    line = '"my-llm": {"recipe": "my-llm", "unit": "my-llm-lockstep"},'
    assert adopted_recipe.model(engine_facts) == line


def test_paths_of_a_container_become_those_of_the_host() -> None:
    engine_facts = foreign_engine(
        "vllm serve /models/a --download-dir=/models/cache/x --served-model-name /mod",
        mounts={"/models": "/srv/llm", "/models/cache": "/var/cache/llm"},
        image="x/y:1",
        environment={"CACHE": "/models/cache"},
    )
    text = adopted_recipe.recipe(engine_facts, "spark1")
    item = parse(text, Path("my-llm.yaml"))
    assert item.model == "/srv/llm/a" and environment(item)["CACHE"] == "/var/cache/llm"
    assert "--download-dir=/var/cache/llm/x" in text and "/mod" in text.split()
    assert "/srv/llm at /models" in text


def test_without_a_model_there_is_no_recipe() -> None:
    with pytest.raises(RecipeError, match="names no model"):
        adopted_recipe.recipe(foreign_engine("vllm serve --port 8000"), "spark1")
