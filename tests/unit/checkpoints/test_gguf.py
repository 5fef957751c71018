"""The files of a repository that are one GGUF model."""

from typing import Any

from lab.hub.gguf import write_gguf
from lab.hub.safetensors import Tensor
from lockstep.checkpoints.architecture import Architecture
from lockstep.checkpoints.configuration import from_config
from lockstep.checkpoints.gguf import (
    chosen_files,
    configuration,
    files_of,
    missing_parts,
    mmproj,
    quantisations,
)

PARTS = [f"UD-IQ2_M/big-UD-IQ2_M-0000{number}-of-00002.gguf" for number in (1, 2)]
NAMES = [
    *("README.md", "big-BF16.gguf", "mmproj-BF16.gguf", "big-UD-Q4_K_M.gguf", "big-Q4_K_M.gguf"),
    *reversed(PARTS),
]


FOLDERS = [
    *("Q4_K_M/m-00001-of-00002.gguf", "Q4_K_M/m-00002-of-00002.gguf", "UD-Q4_K_M/m.gguf"),
    *("Q4_K_M/mmproj-F32.gguf", "mmproj-BF16.gguf", "mmproj-F16.gguf", "BF16/m-Q8_0.gguf"),
    *("imatrix.gguf", "mtp-m-Q4_K_M.gguf", "mmproj-F32.gguf"),
]


def test_every_quantisation_of_a_repository_is_named_also_by_its_folder_alone() -> None:
    assert quantisations(FOLDERS) == {
        "Q4_K_M": tuple(FOLDERS[:2]),
        "UD-Q4_K_M": (FOLDERS[2],),
        "Q8_0": (FOLDERS[6],),
    }
    assert quantisations([*NAMES, "odd.gguf"]) == {
        "BF16": ("big-BF16.gguf",),
        "Q4_K_M": ("big-Q4_K_M.gguf",),
        "UD-IQ2_M": tuple(PARTS),
        "UD-Q4_K_M": ("big-UD-Q4_K_M.gguf",),
        "odd": ("odd.gguf",),
    }
    assert quantisations(["model.safetensors"]) == {}
    assert (list(files_of(NAMES, "K_M")), list(files_of(NAMES, "ud-iq2_m"))) == ([], PARTS)
    # Files are named as they are, and a quantisation with its mark.
    assert chosen_files(NAMES, ["README.md", ":UD-IQ2_M", "gone.json"]) == {
        "README.md": ("README.md",),
        ":UD-IQ2_M": tuple(PARTS),
        "gone.json": (),
    }


def test_what_sees_is_in_the_nearest_folder_and_a_missing_part_is_named() -> None:
    for model, sees in (
        (FOLDERS[0], FOLDERS[3]),
        (FOLDERS[2], FOLDERS[4]),
        ("m-F32.gguf", FOLDERS[-1]),
    ):
        assert mmproj(FOLDERS, model) == sees
        assert mmproj(["x/mmproj.gguf", model], model) is None
    assert missing_parts(FOLDERS[1:2]) == (FOLDERS[0],)
    assert missing_parts(FOLDERS[:2]) == missing_parts(FOLDERS[2:3]) == missing_parts([]) == ()


def start(architecture: str = "zebra", **more: Any) -> bytes:
    own = {"block_count": 32, "attention.head_count": 32, "attention.head_count_kv": 8, **more}
    metadata = {"general.architecture": architecture, "general.name": "Zebra"}
    values = {**metadata, **{f"{architecture}.{key}": value for key, value in own.items()}}
    values["tokenizer.ggml.tokens"] = ["a"]
    return write_gguf(values, {"x": Tensor("F32", (1,), bytes(4))})[0]


def test_the_start_of_a_file_tells_of_its_layers_but_where_they_differ() -> None:
    assert configuration(start(expert_count=64, context_length=4096)) == {
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "num_experts": 64,
        "max_position_embeddings": 4096,
    }
    assert configuration(start(feed_forward_length=[1, 2]))["num_hidden_layers"] == 32
    assert configuration(start(**{"attention.head_count_kv": [8, 4]})) == {}
    # A start that is none or breaks off is no fault.
    for data in (DEEP, b"", b"GGUF", b"no such thing", start()[:200], bytes(4096)):
        assert configuration(data) == {}


# Lists in lists without an end.
DEEP = start()[:24] + b"\1" + bytes(7) + b"a" + b"\t\0\0\0" + (b"\t\0\0\0\1" + bytes(7)) * 9999


def shapes_of(architecture: str, **more: Any) -> Architecture:
    """The layers of a file by its start."""
    config = configuration(start(architecture, **more))
    return from_config({"vocab_size": 9, "head_dim": 64, **config}, "a file")


WINDOW = {"attention.sliding_window": 1024}
STATES = {"ssm.conv_kernel": 4, "ssm.state_size": 128, "ssm.group_count": 16}
STATES |= {"ssm.time_step_rank": 32, "ssm.inner_size": 4096}


def test_windows_and_states_are_read_from_the_header() -> None:
    pattern = {"attention.sliding_window_pattern": [True] * 24 + [False] * 8}
    for architecture, more, layers in (
        ("gemma3", WINDOW, {"sliding": 27, "full": 5}),
        ("gpt-oss", WINDOW, {"sliding": 16, "full": 16}),
        ("zebra", {**WINDOW, **pattern}, {"sliding": 24, "full": 8}),
        ("zebra", {"attention.sliding_window": 0}, {"full": 32}),
        ("qwen35moe", STATES, {"recurrent": 24, "full": 8}),
        ("qwen3next", {**STATES, "full_attention_interval": 8}, {"recurrent": 28, "full": 4}),
    ):
        groups = {group.kind: group for group in shapes_of(architecture, **more).layers}
        assert {kind: group.count for kind, group in groups.items()} == layers
        if state := groups.get("recurrent"):
            sizes = (state.state, state.state_bytes, state.conv)
            assert sizes == (128 * 4096, 4, 2 * 16 * 128 + 4096)


RANK = {"attention.kv_lora_rank": 512}
LATENT = {
    **{**RANK, "attention.key_length": 576, "attention.value_length": 512},
    **{"attention.key_length_mla": 192, "attention.value_length_mla": 128},
    "attention.head_count_kv": 1,
}
HEADS = {**RANK, "attention.key_length": 192, "attention.value_length": 128}
HEADS |= {"attention.head_count_kv": 128}


def test_a_latent_is_one_head_of_k_and_older_files_have_k_and_v() -> None:
    for keys, elements in ((LATENT, 576), (HEADS, 128 * (192 + 128))):
        assert shapes_of("deepseek2", **keys).kv_bytes_per_token() == 32 * elements * 2


def test_layers_of_other_kinds_or_sizes_are_not_guessed() -> None:
    for architecture, keys in (
        # A latent of sizes that no model has.
        ("deepseek2", {**LATENT, "attention.key_length": 512}),
        ("deepseek2", {**LATENT, "attention.kv_lora_rank": "x"}),
        # Layers of other kinds.
        ("zebra", {"attention.indexer.head_count": 64}),
        ("zebra", {**WINDOW, "attention.key_length_swa": 256}),
        ("zebra", {"attention.shared_kv_layers": 18}),
        ("zebra", {"attention.sliding_window": 128}),
        ("zebra", STATES),
        # States and windows of sizes that no model has.
        ("qwen35moe", {"ssm.state_size": 128}),
        ("qwen35moe", {**STATES, "ssm.time_step_rank": 0}),
        ("qwen35moe", {**STATES, "ssm.inner_size": [1, 2]}),
        ("qwen35moe", {**WINDOW, "attention.sliding_window_pattern": "x"}),
        ("x", {"attention.sliding_window": [1, 2], "attention.sliding_window_pattern": 2}),
    ):
        assert configuration(start(architecture, **keys)) == {}
