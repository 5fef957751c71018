"""Checkpoint facts come from the small files, through a hub or a folder, never from weights."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from local_server import Reply, SeenRequest, as_json, serving

from lockstep.checkpoints.chat_template import refused_shapes
from lockstep.checkpoints.checkpoint import CheckpointError
from lockstep.checkpoints.quantisation import scheme_of
from lockstep.cli.main import main
from lockstep.lock.resolve.repository import inspect

COMMIT = "e347d86b2a6cba4b54ea6f87ca247f60439eed07"
TEXT: dict[str, Any] = {
    **{"dtype": "bfloat16", "num_hidden_layers": 40, "full_attention_interval": 4},
    **{"num_key_value_heads": 2, "head_dim": 256, "max_position_embeddings": 262144},
    **{"linear_num_value_heads": 32, "linear_value_head_dim": 128},
    **{"linear_num_key_heads": 16, "linear_key_head_dim": 128},
}
CONFIG = {
    "architectures": ["Qwen3_5MoeForConditionalGeneration"],
    "vision_config": {"depth": 27},
    "quantization_config": {"quant_method": "compressed-tensors", "format": "nvfp4-pack-quantized"},
    "text_config": TEXT,
}
BLIND = ["model.layers.0.mlp.experts.0.up_proj.weight", "mtp.fc.weight", "mtp.layers.0.norm.weight"]
SEEING = [*BLIND, "model.visual.patch_embed.proj.weight", "model.visual.blocks.0.attn.qkv.weight"]


def files(tensors: list[str]) -> dict[str, bytes]:
    places = dict.fromkeys(tensors, "model-00001.safetensors")
    index = {"weight_map": {**places, tensors[0]: "model-00002.safetensors"}}
    return {
        "config.json": json.dumps(CONFIG).encode(),
        "model.safetensors.index.json": json.dumps(index).encode(),
        "model-00001.safetensors": b"w" * 1000,
        "model-00002.safetensors": b"w" * 500,
        "README.md": b"---\nlicense: apache-2.0\n---\n# card\n",
    }


def folder(path: Path, content: dict[str, bytes]) -> str:
    for name, data in content.items():
        (path / name).write_bytes(data)
    return str(path)


def hub_of(content: dict[str, bytes]) -> dict[str, Any]:
    """The part of the hub's protocol that `model inspect` speaks."""

    def part(request: SeenRequest) -> Reply:
        data = content[request.path.rpartition("/")[2]]
        end = request.headers.get("Range", "").rpartition("-")[2]
        return Reply(data[: int(end) + 1], 206) if end else Reply(data)

    siblings = [{"rfilename": n, "size": len(d), "blobId": "0"} for n, d in content.items()]
    return {
        "/api/models/org/model/revision/main": as_json({"sha": COMMIT, "siblings": siblings}),
        **{f"/org/model/resolve/{COMMIT}/{name}": part for name in content},
    }


def test_a_vision_config_without_vision_tensors_does_not_see(tmp_path: Path) -> None:
    # The same weights in two formats count once.
    copies = {"consolidated.safetensors": b"w" * 1500, "pytorch_model.bin": b"w"}
    checkpoint = inspect(folder(tmp_path, files(BLIND) | copies))
    vision = (checkpoint.vision_config, checkpoint.vision_tensors, checkpoint.sees)
    assert vision == (True, 0, False)
    assert checkpoint.mtp_tensors == 2
    assert checkpoint.weight_bytes == 1500
    assert checkpoint.quantisation == "compressed-tensors nvfp4-pack-quantized"
    assert checkpoint.licence == "apache-2.0"
    assert checkpoint.missing == ("tokenizer.json",)
    assert checkpoint.architecture.kv_bytes_per_token() == 20480


def test_a_hub_is_asked_for_small_files_and_the_header_of_a_single_one() -> None:
    card = b"---\nlicense: other\nlicense_name: nvidia-open\n---\n"
    with serving(hub_of({**files(SEEING), "README.md": card})) as server:
        checkpoint = inspect("org/model", "main", endpoint=server.url)
    assert (checkpoint.revision, checkpoint.sees, checkpoint.vision_tensors) == (COMMIT, True, 2)
    assert checkpoint.licence == "LicenseRef-nvidia-open"
    assert checkpoint.weight_bytes == 1500
    read = {path.rpartition("/")[2] for path in server.paths[1:]}
    assert read == {"config.json", "model.safetensors.index.json", "README.md"}
    header = json.dumps({"__metadata__": {}, "mtp.fc.weight": {}, "layer.weight": {}}).encode()
    weights = len(header).to_bytes(8, "little") + header + b"w" * 5000
    with serving(hub_of({"config.json": b"{}", "model.safetensors": weights})) as server:
        checkpoint = inspect("org/model", endpoint=server.url)
    ranges = [
        request.headers.get("Range") for request in server.requests if "resolve" in request.path
    ]
    assert ranges == [None, "bytes=0-7", f"bytes=0-{7 + len(header)}"]
    assert (checkpoint.tensors, checkpoint.mtp_tensors, checkpoint.vision_tensors) == (2, 1, 0)
    assert checkpoint.architecture_unknown is not None


def test_missing_files_are_named_and_the_type_is_of_the_language_model(tmp_path: Path) -> None:
    index = {"weight_map": {"vision_encoder.ln_pre.weight": "a", "layers.0.attention.wq": "a"}}
    # Groups of a quantisation tell what its method does not.
    groups = {"FP4": {"format": "nvfp4-pack-quantized"}}
    config = {"dim": 4096, "quantization_config": {"config_groups": groups}}
    content = {
        "params.json": json.dumps(config).encode(),
        "consolidated.safetensors.index.json": json.dumps(index).encode(),
    }
    checkpoint = inspect(folder(tmp_path, content))
    assert checkpoint.missing == ("config.json", "tokenizer.json")
    assert checkpoint.quantisation == "? nvfp4-pack-quantized"
    assert checkpoint.sees is True
    config = {"model_type": "mistral3", "text_config": {"model_type": "mistral4"}, "moe": {"x": 1}}
    checkpoint = inspect(folder(tmp_path, {"config.json": json.dumps(config).encode()}))
    assert (checkpoint.types, checkpoint.experts) == (("mistral4", "mistral3"), "plain")


def test_what_cannot_be_read_is_one_sentence(tmp_path: Path) -> None:
    for name, text, message in (
        ("config.json", b"{", r"config\.json is not JSON"),
        ("config.json", b"[1]", "config.json must be a JSON mapping; found a list"),
        ("params.json", b"[1]", "params.json must be a JSON mapping; found a list"),
    ):
        with pytest.raises(CheckpointError, match=message):
            inspect(folder(tmp_path, {"config.json": b"{}", name: text}))


def inspection(*words: str, code: int = 0) -> str:
    """The output of `lockstep model inspect`."""
    result = CliRunner().invoke(main, ["model", "inspect", *words])
    assert result.exit_code == code, result.output
    return " ".join(result.output.split())


def test_the_command_tells_of_absent_weights_and_of_a_vision_boilerplate(tmp_path: Path) -> None:
    config = json.dumps({"dim": 4096, "n_layers": 4, "n_heads": 32, "n_kv_heads": 8})
    output = inspection(folder(tmp_path, {"params.json": config.encode()}), code=1)
    assert "weights none that an engine loads" in output
    output = inspection(folder(tmp_path, files(BLIND)))
    assert "vision no (0 of 3 tensors); the configuration's vision part is boilerplate" in output
    inspection("org/x", "--endpoint", "http://127.0.0.1:9", code=2)


def test_the_command_shows_what_the_layers_keep(tmp_path: Path) -> None:
    heads = {"dim": 4096, "n_layers": 4, "n_heads": 32, "n_kv_heads": 8, "vocab_size": 1}
    for name, config, text in (
        ("params.json", {**heads, "sliding_window": [None, 8, 8, 8]}, "4096 bytes per token"),
        ("config.json", {**CONFIG, "vision_config": None}, "31 MiB per sequence"),
        ("config.json", {"model_type": "bert", "type_vocab_size": 2, "vocab_size": 9}, "none"),
        ("config.json", {"text_config": {**TEXT, "swa_share": 2}}, "unknown: swa_share may change"),
    ):
        assert text in inspection(folder(tmp_path, {name: json.dumps(config).encode()}), code=1)


def test_of_gguf_each_quantisation_is_counted_and_what_sees_is_a_file(tmp_path: Path) -> None:
    sizes = {"x-Q4_K_M.gguf": 5, "x-Q8_0.gguf": 9, "mmproj-F16.gguf": 1, "README.md": 1}
    path = folder(tmp_path, {name: b"x" * size for name, size in sizes.items()})
    checkpoint = inspect(path)
    assert (checkpoint.weight_bytes, checkpoint.quantisations) == (0, {"Q4_K_M": 5, "Q8_0": 9})
    assert checkpoint.sees is True
    output = inspection(path)
    assert "of one quantisation: :Q4_K_M 0.0 GB, :Q8_0 0.0 GB" in output and "mmproj" in output
    with serving(hub_of({name: b"x" * size for name, size in sizes.items()})) as server:
        checkpoint = inspect("org/model:Q4_K_M", endpoint=server.url)
    assert (checkpoint.weight_bytes, checkpoint.left_out) == (5, {"other GGUF files": 9})


MISTRAL_COMMON = ("user_after_tool", "late_system", "developer", "tool_picture")
NAMED = b'{"chat_template": [{"name": "default", "template": "a"}]}'


@pytest.mark.parametrize(
    ("content", "template"),
    [
        ({}, (False, None)),
        ({"tekken.json": b"{}"}, (True, MISTRAL_COMMON)),
        ({"chat_template.jinja": b"{{ messages | length }}"}, (True, ())),
        ({"tokenizer_config.json": b'{"chat_template": "{{ 1 }}"}'}, (True, ())),
        ({"tokenizer_config.json": b'{"tokenizer_class": "x"}'}, (False, None)),
        ({"tokenizer_config.json": NAMED}, (True, ())),
    ],
)
def test_shapes_that_a_chat_template_refuses_are_found(tmp_path, content, template) -> None:
    checkpoint = inspect(folder(tmp_path, content))
    assert (checkpoint.template, checkpoint.refused_shapes) == template


# A template that raises on a message of which a condition holds.
EACH = "{%% for m in messages %%}{%% if %s %%}{{ WHAT }}{%% endif %%}{%% endfor %%}"
RAISING = EACH.replace("WHAT", "raise_exception('x')")
SAYING = EACH.replace("WHAT", "m.content }}{%% else %%}{{ '[IMG]'")


def test_shapes_that_a_template_refuses_are_found_by_rendering_it() -> None:
    for template, expected_shapes in (
        (RAISING % "0", ()),
        ("{% generation %}" + RAISING % "0" + "{%- endgeneration -%}", ()),
        (RAISING % "m.role == 'developer'", ("developer",)),
        (RAISING % "m.role == 'system' and not loop.first", ("late_system",)),
        (
            RAISING % "m.role == 'user' and not loop.first and messages[0].role == 'user'",
            ("same_role", "user_after_tool"),
        ),
        # A list that became text was not understood; nor was one anywhere else, there.
        (SAYING % "m.content is string or m.role == 'tool'", ("tool_picture",)),
        (SAYING % "1", ()),
        ("{{ raise_exception('never') }}", None),
        ("{% broken", None),
        ("{{ messages[0].nothing.at.all }}", None),
    ):
        assert refused_shapes(template) == expected_shapes


def test_how_weights_are_stored_is_one_word() -> None:
    for text, scheme in (
        ("modelopt NVFP4", "nvfp4"),
        ("compressed-tensors float-quantized", "fp8"),
        ("compressed-tensors pack-quantized", "int4"),
        ("AutoRound W4A16", "int4"),
        ("bfloat16", "none"),
        ("unheard of", ""),
    ):
        assert scheme_of(text) == scheme
