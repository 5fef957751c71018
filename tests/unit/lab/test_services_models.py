"""The models that the lab's hub serves: plausible files, and one that is real."""

from __future__ import annotations

import json
import math
import struct

import jinja2
import pytest

from lab.hub import stand_in_models as models
from lab.hub.safetensors import ITEM_SIZE, Tensor, bfloat16, write_safetensors
from lab.hub.tiny_model import TEMPLATES, VOCABULARY, successors, tiny_model, train_tokenizer

BY_NAME = {model.name: model.revisions[-1] for model in models.stand_in_models()}


def header(data: bytes) -> dict[str, dict[str, object]]:
    (length,) = struct.unpack("<Q", data[:8])
    described: dict[str, dict[str, object]] = json.loads(data[8 : 8 + length])
    described.pop("__metadata__")
    return described


def test_a_safetensors_file_describes_exactly_its_bytes() -> None:
    tensors = {"a": Tensor("BF16", (2, 3), bytes(12)), "b": Tensor("U8", (5,), b"12345")}
    data = write_safetensors(tensors)
    assert header(data) == {
        "a": {"dtype": "BF16", "shape": [2, 3], "data_offsets": [0, 12]},
        "b": {"dtype": "U8", "shape": [5], "data_offsets": [12, 17]},
    }
    assert data.endswith(bytes(12) + b"12345")
    assert struct.unpack("<Q", data[:8])[0] % 8 == 0


def test_a_tensor_with_too_few_bytes_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="a: expected 12 bytes, found 3"):
        write_safetensors({"a": Tensor("BF16", (2, 3), b"123")})


def test_bfloat16_keeps_the_upper_half_rounded() -> None:
    assert bfloat16([1.0, -2.0, 1.00390625]) == bytes.fromhex("803f00c0813f")


def test_the_quantized_mistral_has_mistrals_own_layout() -> None:
    """As the hub showed it on 2026-06-12 (sgl-project/sglang#28020)."""
    quantized, base = BY_NAME[models.MISTRAL], BY_NAME[models.MISTRAL_BASE]
    assert {"params.json", "tokenizer.json", "tokenizer_config.json"} <= set(quantized)
    assert "config.json" not in quantized and "config.json" in base


def test_every_weight_map_names_tensors_that_the_named_file_has() -> None:
    checked = 0
    for files in BY_NAME.values():
        for name in (name for name in files if name.endswith(".safetensors.index.json")):
            index = json.loads(files[name])
            held = {
                tensor: file
                for file in files
                if file.endswith(".safetensors")
                for tensor in header(files[file])
            }
            assert index["weight_map"] == held
            checked += 1
    assert checked == 3


def test_the_newest_revision_of_qwen_is_the_one_of_the_catalogue() -> None:
    qwen = next(model for model in models.stand_in_models() if model.name == models.QWEN)
    assert qwen.commit == "e347d86b2a6cba4b54ea6f87ca247f60439eed07"
    assert any(".visual." in name for name in header(_first_shard(qwen.revisions[-1])))


def _first_shard(files: dict[str, bytes]) -> bytes:
    return files["model-00001-of-00002.safetensors"]


def test_the_tiny_model_has_the_tensors_that_its_configuration_asks_for() -> None:
    files = tiny_model("chatml.jinja")
    config = json.loads(files["config.json"])
    tensors = header(files["model.safetensors"])
    layer = [name for name in tensors if name.startswith("model.layers.1.")]
    assert len(layer) == 11
    assert tensors["model.embed_tokens.weight"]["shape"] == [VOCABULARY, config["hidden_size"]]
    sizes = (math.prod(t["shape"]) * ITEM_SIZE[str(t["dtype"])] for t in tensors.values())  # type: ignore[arg-type]
    assert sum(sizes) < 1_000_000


def test_the_tiny_model_is_the_same_every_time() -> None:
    assert tiny_model("chatml.jinja") == tiny_model("chatml.jinja")


def test_the_tiny_model_ends_no_sentence_with_a_special_token() -> None:
    follow = successors(train_tokenizer())
    assert set(follow) == set(range(VOCABULARY))
    assert min(min(targets) for targets in follow.values()) > 2


CALL = {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "f"}}]}


def render(template: str, *roles: str | dict[str, object]) -> str:
    def refuse(message: str) -> None:
        raise ValueError(message)

    messages = [
        {"role": role, "content": f"<{role}>"} if isinstance(role, str) else role for role in roles
    ]
    compiled = jinja2.Environment().from_string((TEMPLATES / template).read_text())
    return compiled.render(messages=messages, add_generation_prompt=True, raise_exception=refuse)


@pytest.mark.parametrize("template", ["chatml.jinja", "alternating.jinja"])
def test_alternating_roles_become_turns(template: str) -> None:
    assert render(template, "system", "user") == (
        "<|im_start|>system\n<system><|im_end|>\n<|im_start|>user\n<user><|im_end|>\n"
        "<|im_start|>assistant\n"
    )


def test_only_the_strict_template_refuses_two_user_messages_in_a_row() -> None:
    render("chatml.jinja", "user", "user")
    with pytest.raises(ValueError, match="roles must alternate"):
        render("alternating.jinja", "user", "user")


def test_the_strict_template_lets_tool_calls_and_results_pass() -> None:
    rendered = render("alternating.jinja", "user", CALL, "tool", "assistant", "user")
    assert rendered.count("<|im_end|>") == 5
