"""Fetched files of a repository are those that its engine's loader picks, without a second copy."""

import pytest

from lockstep.checkpoints.weight_files import as_text, needed_files, sizes_left_out
from lockstep.onhost.engines.sglang import ENGINE as SGLANG
from lockstep.onhost.engines.vllm import ENGINE as VLLM

SHARDS = {f"model-0000{number}-of-00002.safetensors": 7 for number in (1, 2)}
BESIDE = dict.fromkeys(("config.json", "tokenizer.model", "modeling_x.py", "figures/a.png"), 1)
BESIDE |= {"model.safetensors.index.json": 1, "additional_chat_templates/tool.jinja": 1}
LISTED = ("listed.safetensors", "mtp.safetensors")
NATIVE = {"consolidated.safetensors": 14}
FOR_MISTRAL = {"params.json": 1, "tekken.json": 1}
BGE = {"pytorch_model.bin": 5, "sparse_linear.pt": 1, "1_Pooling/config.json": 1}
#: What a repository may hold beside one whole set: other formats, other engines, training.
COPIES = {
    **dict.fromkeys(("pytorch_model.bin", "tf_model.h5", "flax_model.msgpack", "a.ot"), 5),
    **{"m-Q4_K_M.gguf": 3, "onnx/model.onnx": 3, "onnx/model.onnx_data": 3, "optimizer.pt": 3},
    **{"openvino/openvino_model.bin": 1, "openvino/m.xml": 1, "checkpoint-9/model.safetensors": 5},
}
# openai/gpt-oss-20b and meta-llama/Llama-3.1-8B as they are published.
ORIGINALS = {"original/model.safetensors": 13, "original/config.json": 1, "metal/model.bin": 13}
ORIGINALS |= {"original/tokenizer.model": 2, "original/c.pth": 9}
DENSE = "2_Dense/model.safetensors"


@pytest.mark.parametrize(
    ("engine", "argv", "loaded_files", "copies"),
    [
        (VLLM, "", SHARDS, ORIGINALS),
        (VLLM, "", {"model.safetensors": 5}, COPIES),
        (VLLM, "", BGE, {"onnx/model.onnx": 5, "training_args.bin": 1}),
        (VLLM, "", {"a.safetensors": 1, DENSE: 1}, {"2_Dense/pytorch_model.bin": 1}),
        # Mistral's own format wins in vLLM, Hugging Face's in SGLang, and a flag over both.
        (VLLM, "", NATIVE | FOR_MISTRAL, SHARDS),
        (VLLM, "--load-format hf", SHARDS | FOR_MISTRAL, NATIVE),
        (VLLM, "--load-format mistral", NATIVE | FOR_MISTRAL, SHARDS),
        (SGLANG, "", SHARDS | FOR_MISTRAL, NATIVE),
        (SGLANG, "", NATIVE, {"x.safetensors": 5}),
        (SGLANG, "", SHARDS | {"mtp.safetensors": 1}, {"x.safetensors": 5}),
        (SGLANG, "--load-format mistral", NATIVE | FOR_MISTRAL, SHARDS),
        (SGLANG, "", {"model.safetensors": 5}, NATIVE),
        # The index names the files of one set.
        (VLLM, "--load-format hf", dict.fromkeys(LISTED, 5), {"x.safetensors": 5}),
    ],
)
def test_what_the_loader_takes_is_needed_and_no_copy(engine, argv, loaded_files, copies) -> None:
    files = BESIDE | loaded_files | copies
    form = " or ".join(engine.weight_patterns(argv.split(), "org/name"))
    listed_files = {*LISTED, *SHARDS}
    wanted_files = needed_files(
        files, [form], lambda name: listed_files if name.startswith("model") else None
    )
    assert wanted_files == {*BESIDE, *loaded_files}
    assert sum(sizes_left_out(files, wanted_files).values()) == sum(copies.values())


def test_two_engines_have_both_formats_and_what_is_left_out_is_said_by_folder() -> None:
    files = SHARDS | NATIVE | {"pytorch_model.bin": 1}
    forms = [" or ".join(engine.weight_patterns((), "org/name")) for engine in (VLLM, SGLANG)]
    assert needed_files(files, forms, lambda _: None) == {*SHARDS, *NATIVE}
    files = {"model.onnx": 1, "a/b.pth": 1}
    assert needed_files(files, ["*.safetensors"], lambda _: None) == set(files)
    files = {"original/a": 10**9, "original/b": 10**9, "x.bin": 3 * 10**9, "config.json": 1}
    assert as_text(sizes_left_out(files, {"config.json"})) == "x.bin 3.0 GB, original/ 2.0 GB"
