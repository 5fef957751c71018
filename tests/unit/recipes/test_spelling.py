"""A command as people write it, and the same command as it is judged and run."""

import json

import pytest

from lockstep.core.errors import RecipeError
from lockstep.onhost.engines import ENGINES
from lockstep.recipes.spelling import in_full_spelling, size

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
