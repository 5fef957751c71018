"""The models that the lab's hub serves: as unkind in layout and template as the real ones.

That the tiny model is whole, as safetensors and as GGUF, the real engines show in `tests/lab`.
"""

from __future__ import annotations

import json
import struct

import jinja2
import pytest

from lab.hub import stand_in_models as models
from lab.hub.tiny_model import TEMPLATES

BY_NAME = {model.name: model.revisions[-1] for model in models.stand_in_models()}


def header(data: bytes) -> dict[str, dict[str, object]]:
    (length,) = struct.unpack("<Q", data[:8])
    tensors: dict[str, dict[str, object]] = json.loads(data[8 : 8 + length])
    tensors.pop("__metadata__")
    return tensors


def test_the_quantized_mistral_has_mistrals_own_layout() -> None:
    """As the hub showed it on 2026-06-12 (sgl-project/sglang#28020)."""
    quantized_files, base = BY_NAME[models.MISTRAL], BY_NAME[models.MISTRAL_BASE]
    assert {"params.json", "tokenizer.json", "tokenizer_config.json"} <= set(quantized_files)
    assert "config.json" not in quantized_files and "config.json" in base


def test_the_newest_revision_of_qwen_is_the_one_of_the_catalogue_and_sees() -> None:
    qwen = next(model for model in models.stand_in_models() if model.name == models.QWEN)
    assert qwen.commit == "e347d86b2a6cba4b54ea6f87ca247f60439eed07"
    shard = qwen.revisions[-1]["model-00001-of-00002.safetensors"]
    assert any(".visual." in name for name in header(shard))


def render(template: str, *messages: dict[str, object]) -> str:
    def refuse(message: str) -> None:
        raise ValueError(message)

    compiled_template = jinja2.Environment().from_string((TEMPLATES / template).read_text())
    return compiled_template.render(
        messages=messages, add_generation_prompt=True, raise_exception=refuse
    )


def test_only_the_strict_template_refuses_two_user_messages_in_a_row() -> None:
    user, reply = ({"role": role, "content": "x"} for role in ("user", "assistant"))
    call = {**reply, "content": None, "tool_calls": [{"function": {"name": "f"}}]}
    render("chatml.jinja", user, user)
    with pytest.raises(ValueError, match="roles must alternate"):
        render("alternating.jinja", user, user)
    messages = (user, call, {**reply, "role": "tool"}, reply, user)
    assert render("alternating.jinja", *messages).count("<|im_end|>") == 5
