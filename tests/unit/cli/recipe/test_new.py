"""`lockstep recipe new`: what it writes is a recipe without errors, or nothing is written."""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from local_server import LocalServer, Reply, SeenRequest, as_json, serving

from lab.hub.gguf import write_gguf
from lab.hub.safetensors import Tensor
from lockstep.cli.main import main
from lockstep.cli.recipe import bind
from lockstep.fit import catalogue
from lockstep.inventory.inventory_file import load as load_inventory
from lockstep.recipes.command import serve_command
from lockstep.recipes.recipe_file import Recipe, load

GB = 10**9
#: What the layers of the Qwen3.6 family have in common.
TEXT: dict[str, Any] = {
    **{"vocab_size": 248320, "max_position_embeddings": 262144, "full_attention_interval": 4},
    **{"head_dim": 256, "linear_num_value_heads": 32, "linear_num_key_heads": 16},
    **{"linear_value_head_dim": 128, "linear_key_head_dim": 128},
}
#: Qwen3.6-35B-A3B as its configuration has it, which the catalogue knows as qwen3_5_moe.
MOE: dict[str, Any] = {
    "model_type": "qwen3_5_moe",
    "quantization_config": {"quant_method": "compressed-tensors", "format": "nvfp4-pack-quantized"},
    "text_config": {
        **{**TEXT, "model_type": "qwen3_5_moe_text", "num_experts": 256, "num_experts_per_tok": 8},
        **{"hidden_size": 2048, "num_hidden_layers": 40},
        **{"num_key_value_heads": 2, "num_attention_heads": 16},
    },
}
#: A dense model of the other type of that family, not quantised.
DENSE: dict[str, Any] = {
    "model_type": "qwen3_5",
    "torch_dtype": "float16",
    "text_config": {
        **{**TEXT, "model_type": "qwen3_5_text", "hidden_size": 5120, "num_hidden_layers": 64},
        **{"num_key_value_heads": 4, "num_attention_heads": 24},
    },
}
STRANGE: dict[str, Any] = {
    **{"model_type": "zebra", "num_hidden_layers": 12, "hidden_size": 512, "vocab_size": 1000},
    **{"num_attention_heads": 8, "num_key_value_heads": 8, "max_position_embeddings": 32768},
}
GGUF = {
    "x-Q4_K_M.gguf": 5 * GB,
    "x-Q8_0.gguf": 9 * GB,
    "UD-IQ2_M/x-UD-IQ2_M-00001-of-00002.gguf": GB,
    "UD-IQ2_M/x-UD-IQ2_M-00002-of-00002.gguf": GB,
    "mmproj-F16.gguf": GB,
}
INVENTORY = """
_models = {
    "qwen": {"recipe": "qwen3.6-35b-a3b-bf16", "unit": "vllm-qwen36", "port": 30004},
}
_data = {"recipe_folders": (%r, %r), "accept_licences": ("CC-BY-NC-4.0",)}
sparks = [("spark-1", {**_data, "models": _models})]
"""
CARD = "---\nlicense: apache-2.0\n---\n"


class Hub:
    """Repositories of a hub; `url` is where it serves them."""

    def __init__(self, server: LocalServer) -> None:
        self.url, self._answers = server.url, server.answers

    def add(
        self,
        name: str,
        config: Mapping[str, Any] | None,
        weights: Mapping[str, int],
        *,
        tensor: str = "model.layers.0.weight",
        start: bytes = b"",
        **more: str,
    ) -> str:
        """A repository with weights of these sizes, which begin so. The commit is returned."""
        files = {"README.md": CARD, "chat_template.jinja": "{{ messages | tojson }}", **more}
        if config:
            files["config.json"] = json.dumps(config)
        if any(file.endswith(".safetensors") for file in weights):
            places = {f"of.{file}": file for file in weights} | {tensor: next(iter(weights))}
            files["model.safetensors.index.json"] = json.dumps({"weight_map": places})
        content = {file: text.encode() for file, text in files.items() if text}
        sizes = {file: len(data) for file, data in content.items()} | dict(weights)
        entries = [{"rfilename": file, "size": size, "blobId": "0"} for file, size in sizes.items()]
        commit = hashlib.sha1(name.encode()).hexdigest()
        revision = as_json({"sha": commit, "siblings": entries})
        self._answers[f"/api/models/{name}/revision/main"] = revision
        for file, data in (dict.fromkeys(weights, start) | content).items():
            self._answers[f"/{name}/resolve/{commit}/{file}"] = partial(self._part, data)
        return commit

    @staticmethod
    def _part(data: bytes, request: SeenRequest) -> Reply:
        end = request.headers.get("Range", "").rpartition("-")[2]
        return Reply(data[: int(end) + 1], 206) if end else Reply(data)


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A hub, which `HF_ENDPOINT` names; no token, no inventory, and an empty folder to work in."""
    for name in ("HF_TOKEN", "LOCKSTEP_INVENTORY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "no-hf-home"))
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    with serving({}) as server:
        monkeypatch.setenv("HF_ENDPOINT", server.url)
        yield Hub(server)


def run(*words: str, code: int = 0, answer: str | None = None) -> str:
    result = CliRunner().invoke(main, ["recipe", *words], input=answer)
    assert result.exit_code == code, result.output
    return " ".join(result.output.split())


def checked_recipe(name: str) -> Recipe:
    """A recipe that was written, in which `recipe check` finds no error."""
    path = Path("recipes") / f"{name}.yaml"
    run("check", str(path))
    return load(path)


def option(recipe: Recipe, name: str) -> str:
    argv = serve_command(recipe)
    return argv[argv.index(name) + 1]


def nothing_written() -> bool:
    return not list(Path().rglob("*.yaml"))


def test_a_dense_model_of_a_known_family_gets_its_parsers(hub: Hub) -> None:
    weights = {"model-1.safetensors": 27 * GB, "model-2.safetensors": 27 * GB}
    commit = hub.add("org/Dense-27B", DENSE, weights)
    output = run("new", "org/Dense-27B")
    recipe = checked_recipe("dense-27b")
    argv = serve_command(recipe)
    assert (recipe.model, recipe.model_revision) == ("org/Dense-27B", commit)
    assert recipe.container == catalogue.load().recipes["qwen3.8-27b-nvfp4-vllm-dflash2"].container
    assert option(recipe, "--tool-call-parser") == "qwen3_xml"
    assert option(recipe, "--reasoning-parser") == "qwen3"
    assert "--enable-auto-tool-choice" in argv
    assert (recipe.lockstep.moe, "--moe-backend" in argv) == (False, False)
    assert "weights 54.0 GB, not quantised" in output
    # As much as the gate admits.
    needed_gib = int(re.search(r"(\d+)(?:\.\d+)? GiB must be available", output)[1])
    assert recipe.defaults["max_model_len"] == 262144 and needed_gib <= 112
    # What no other recipe needs is not taken along.
    assert recipe.lockstep.draft is None and "--speculative-config" not in argv
    assert recipe.metadata["model_dtype"] == "float16"
    # What its template refuses is told to the gateway.
    assert recipe.lockstep.refused_shapes == ()
    run("new", "org/Dense-27B", "--engine", "sglang", "--name", "other")
    recipe = checked_recipe("other")
    assert option(recipe, "--tool-call-parser") == "qwen3_coder"
    # Transient allocations stand beside SGLang's share: no more than the catalogue's recipes give.
    assert float(option(recipe, "--mem-fraction-static")) <= 0.72


def test_a_mixture_gets_the_freeze_guard_of_its_quantisation_and_its_own_figures(hub: Hub) -> None:
    hub.add("org/MoE", {**MOE, "quantization_config": None}, {"model.safetensors": 72 * GB})
    run("new", "org/MoE")
    assert option(checked_recipe("moe"), "--moe-backend") == "triton"
    hub.add("org/MoE-NVFP4", MOE, {"model-1.safetensors": 24 * GB})
    output = run("new", "org/MoE-NVFP4")
    recipe = checked_recipe("moe-nvfp4")
    assert option(recipe, "--moe-backend") == "marlin"
    assert option(recipe, "--tool-call-parser") == "qwen3_coder"
    assert "family as recipe qwen3.6-35b-a3b-nvfp4-nvidia " in output
    assert (recipe.lockstep.moe, recipe.lockstep.licence) == (True, "Apache-2.0")
    assert recipe.defaults["host"] == "127.0.0.1"
    own = recipe.lockstep.checkpoint
    assert (own.weights_gb.value, own.quantisation) == (24, "nvfp4")
    kinds = {group.kind: group.count for group in own.architecture.layers}
    assert kinds == {"recurrent": 30, "full": 10}
    # They decide the fit.
    text = recipe.path.read_text(encoding="utf-8").replace("value: 24,", "value: 240,")
    recipe.path.write_text(text, encoding="utf-8")
    assert "fit-none" in run("check", str(recipe.path), code=1)


def test_figures_and_vision_that_the_catalogue_knows_are_its_own(hub: Hub) -> None:
    hub.add("RedHatAI/Qwen3.6-35B-A3B-NVFP4", MOE, {"model-1.safetensors": 25 * GB})
    run("new", "RedHatAI/Qwen3.6-35B-A3B-NVFP4", "--name", "mine")
    recipe = checked_recipe("mine")
    assert recipe.lockstep.checkpoint is None
    blind = "rdtand/Qwen3.6-35B-A3B-PrismaQuant-4.75bit-vllm"
    for name, repository, tensor, sees in (
        ("blind", blind, "model.visual.blocks.0.weight", False),
        ("seeing", "org/seeing", "visual.blocks.0.w", True),
    ):
        hub.add(repository, MOE, {"model-1.safetensors": 24 * GB}, tensor=tensor)
        run("new", repository, "--name", name)
        assert checked_recipe(name).lockstep.vision is sees


def test_a_family_without_an_image_runs_in_the_venv_with_its_variables(hub: Hub) -> None:
    name = "mistralai/Mistral-Small-4-119B-2603-NVFP4"
    groups = {"FP4": {"format": "nvfp4-pack-quantized"}}
    params = {"moe": {"num_experts": 128}, "quantization_config": {"config_groups": groups}}
    hub.add(name, None, {"model-1.safetensors": 70 * GB}, **{"params.json": json.dumps(params)})
    run("new", name)
    recipe = checked_recipe("mistral-small-4-119b-2603-nvfp4")
    assert not recipe.in_container
    assert recipe.env["VLLM_USE_FLASHINFER_MOE_FP4"] == "0"
    assert option(recipe, "--attention-backend") == "TRITON_MLA"
    assert option(recipe, "--moe-backend") == "marlin"


def test_gguf_of_one_quantisation(hub: Hub) -> None:
    metadata: dict[str, Any] = {
        **{"general.architecture": "zebra", "zebra.block_count": 32, "zebra.context_length": 40960},
        **{"zebra.embedding_length": 4096, "zebra.attention.head_count": 32},
        **{"zebra.attention.head_count_kv": 8, "zebra.attention.key_length": 128},
        "tokenizer.ggml.tokens": ["a", "b"],
    }
    start = write_gguf(metadata, {"x": Tensor("F32", (1,), bytes(4))})[0]
    hub.add("org/x-GGUF", None, GGUF, start=start)
    output = run("new", "org/x-GGUF:q4_k_m")
    recipe = checked_recipe("x-gguf-q4-k-m")
    assert recipe.model == "org/x-GGUF:Q4_K_M"
    assert (recipe.runtime, recipe.lockstep.vision) == ("llama-cpp", True)
    assert serve_command(recipe)[:3] == ("llama-server", "-hf", "org/x-GGUF:Q4_K_M")
    assert option(recipe, "--ctx-size") == "40960"
    assert "weights 6.0 GB, gguf" in output and "unknown" not in output
    assert recipe.lockstep.checkpoint.architecture.layers[0].kv_heads == 8


def test_gguf_needs_one_whole_quantisation_and_unknown_layers_a_short_context(hub: Hub) -> None:
    hub.add("org/x-GGUF", None, GGUF)
    output = run("new", "org/x-GGUF", code=2)
    assert "one quantisation is needed; found 3 of them" in output
    assert "allowed: UD-IQ2_M (2.0 GB), Q4_K_M (5.0 GB), Q8_0 (9.0 GB)" in output
    assert "no such quantisation; found Q2_K" in run("new", "org/x-GGUF:Q2_K", code=2)
    assert "--engine llamacpp" in run("new", "org/x-GGUF", "--engine", "vllm", code=2)
    lost_part = "UD-IQ2_M/x-UD-IQ2_M-00001-of-00002.gguf"
    hub.add("org/y-GGUF", None, {name: size for name, size in GGUF.items() if name != lost_part})
    output = run("new", "org/y-GGUF:UD-IQ2_M", code=2)
    assert f"a part of UD-IQ2_M is not in the repository; found no {lost_part}" in output
    assert nothing_written()
    output = run("new", "org/x-GGUF:UD-IQ2_M")
    assert checked_recipe("x-gguf-ud-iq2-m").defaults["max_model_len"] == 8192
    assert "unknown: the memory of a context" in output and "weights 3.0 GB" in output


def test_nothing_is_guessed_of_an_unknown_family_with_unknown_layers(hub: Hub) -> None:
    hub.add("org/Gemma", {**STRANGE, "model_type": "gemma4"}, {"model.safetensors": 20 * GB})
    output = run("new", "org/Gemma", "--engine", "sglang")
    assert "The catalogue knows it on vLLM: --engine vllm." in output
    config = {**STRANGE, "layer_types": ["stripes"] * 12}
    hub.add("org/Strange", config, {"model.safetensors": 2 * GB}, **{"chat_template.jinja": ""})
    output = run("new", "org/Strange")
    recipe = checked_recipe("strange")
    assert not [word for word in serve_command(recipe) if "parser" in word or "tool" in word]
    assert "unknown: its family (model_type: zebra) on this engine. Add tool_call_parser" in output
    assert "unknown: how it is talked to: it has no chat template" in output
    assert "the memory of a context (unknown layer type: stripes). Set max_model_len" in output
    assert "max_model_len" not in recipe.defaults
    # As much as the memory gate admits of so little that is known.
    assert recipe.defaults["gpu_memory_utilization"] == 0.85


def test_a_model_of_several_sparks_says_how_many_and_one_of_too_many_is_refused(hub: Hub) -> None:
    hub.add("org/Huge", MOE, {"model-1.safetensors": 2000 * GB})
    assert "Eight Sparks do not hold it either." in run("new", "org/Huge", code=1)
    hub.add("org/Huge-GGUF", None, {"x-Q8_0.gguf": 300 * GB})
    assert "llama.cpp serves a model on one host alone" in run("new", "org/Huge-GGUF", code=1)
    assert nothing_written()
    hub.add("org/Big", MOE, {"model-1.safetensors": 224 * GB})
    output = run("new", "org/Big")
    recipe = checked_recipe("big")
    assert "Sparks 4, tensor parallel" in output
    assert (recipe.min_nodes, recipe.max_nodes, recipe.defaults["tensor_parallel"]) == (4, 4, 4)


def test_what_cannot_be_read_is_one_sentence(hub: Hub) -> None:
    hub.add("org/empty", STRANGE, {})
    adapter = {"adapter_model.safetensors": GB}
    hub.add("org/adapter", None, adapter, **{"adapter_config.json": "{}"})
    for name, message in (
        ("org/none", "the hub shows no such repository without a token; found HTTP 404"),
        ("org/empty", "the repository holds no weights; found 3 files"),
        ("org/adapter", "the repository is an adapter; found no config.json"),
        ("../../etc", "this is no repository of the hub"),
    ):
        assert message in run("new", name, code=2)
    assert nothing_written()
    # The address of its page means a repository, too.
    hub.add("org/x", STRANGE, {"model.safetensors": GB})
    run("new", f"{hub.url}/org/x/")
    assert checked_recipe("x").model == "org/x"


def test_a_name_that_is_taken_is_refused_and_the_file_stays(hub: Hub) -> None:
    hub.add("org/a", STRANGE, {"model.safetensors": GB})
    run("new", "org/a")
    earlier_content = Path("recipes/a.yaml").read_bytes()
    for words, path in (((), "recipes/a"), (("--name", "glm-5.1-fp8"), "recipes/glm-5.1-fp8")):
        assert f"{path}.yaml: a recipe of the name" in run("new", "org/a", *words, code=2)
    assert Path("recipes/a.yaml").read_bytes() == earlier_content
    assert "this is no name of a recipe" in run("new", "org/a", "--name", "../a", code=2)
    assert [path.name for path in Path("recipes").iterdir()] == ["a.yaml"]


def inventory(hub: Hub) -> Path:
    """An inventory that reads the folder of the recipes, with the hub of the test."""
    folder = Path("recipes").absolute()
    folder.mkdir(exist_ok=True)
    path = Path("sparks.py")
    text = INVENTORY % (str(catalogue.FOLDER / "recipes"), str(folder))
    path.write_text(text.replace("_data = {", f'_data = {{"sources": {{"hub": "{hub.url}"}}, '))
    return path


def test_a_licence_that_is_refused_stops_it_unless_the_inventory_accepts_it(hub: Hub) -> None:
    card = "---\nlicense: cc-by-nc-4.0\n---\n"
    hub.add("org/a", STRANGE, {"model.safetensors": GB}, **{"README.md": card})
    output = run("new", "org/a", code=1)
    assert "licence-refused" in output and "recipes/a.yaml was not written." in output
    assert nothing_written()
    run("new", "org/a", "-i", str(inventory(hub)))
    assert load(Path("recipes/a.yaml")).lockstep.licence == "CC-BY-NC-4.0"


def test_ports_that_are_taken_are_left_alone_and_another_folder_is_named(hub, tmp_path) -> None:
    hub.add("org/a", STRANGE, {"model.safetensors": GB})
    ports = []
    for name in ("a", "b", "c"):
        run("new", "org/a", "--name", name, "-i", str(inventory(hub)))
        ports.append(load(Path(f"recipes/{name}.yaml")).defaults["port"])
    taken_ports = {30000, 30001, 30002, 30003, 30004, 8000}
    assert len(set(ports)) == 3 and not taken_ports & set(ports)
    folder = tmp_path / "elsewhere"
    output = run("new", "org/a", "--folder", str(folder), "-i", str(inventory(hub)))
    assert f' "{folder}",),' in output


def test_a_recipe_is_bound_where_somebody_says_yes_and_the_inventory_takes_it(hub, monkeypatch):
    hub.add("org/a", STRANGE, {"model.safetensors": GB})
    monkeypatch.setattr(bind, "_can_ask", lambda: True)
    path = inventory(hub)
    earlier_text = path.read_text()
    for name, answer, message in (
        ("no", "n\n", 'To bind it, in sparks.py, at models: "no": {'),
        ("gone", "", 'To bind it, in sparks.py, at models: "gone": {'),
        ("qwen", "y\n", "is as it was, because with this line"),
    ):
        assert message in run("new", "org/a", "--name", name, "-i", str(path), answer=answer)
        assert path.read_text() == earlier_text
    assert "Bound." in run("new", "org/a", "-i", str(path), answer="y\n")
    (plan,) = load_inventory(path)
    assert [model.name for model in plan.models] == ["qwen", "a"]
    assert '    "a": {"recipe": "a", "unit": "vllm-a"},\n}' in path.read_text()


def test_without_an_inventory_that_can_be_read_the_lines_are_printed(hub: Hub) -> None:
    hub.add("org/a", STRANGE, {"model.safetensors": GB})
    output = run("new", "org/a")
    assert "recipe_folders" not in output
    assert 'in group_data/all.py, at models: "a": {"recipe": "a", "unit": "vllm-a"},' in output
    Path("inventory.py").write_text("inventory = [\n")
    output = run("new", "org/a", "--name", "b")
    assert "inventory.py is wrong, so its Sparks do not count here" in output
    assert "not valid Python" in run("new", "org/a", "-i", "inventory.py", code=2)
