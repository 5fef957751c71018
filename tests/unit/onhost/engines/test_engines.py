"""An engine is one module of a folder: nothing else lists or names them."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import lockstep
from lockstep.onhost.engines import ENGINES
from lockstep.onhost.engines.engine_parser import ParsedCommand

TOP = Path(lockstep.__file__).parent
FOLDER = TOP / "onhost/engines"
SHARED = {"command_line_flags", "__init__", "base", "engine_counters", "engine_parser"}


def test_an_engine_is_found_by_its_module() -> None:
    assert {path.stem for path in FOLDER.glob("*.py")} - SHARED == set(ENGINES)


def test_no_runtime_stands_for_two_engines_and_one_is_the_usual_one() -> None:
    runtimes = [name for engine in ENGINES.values() for name in engine.runtimes]
    assert len(runtimes) == len(set(runtimes))
    assert [engine.name for engine in ENGINES.values() if engine.usual] == ["vllm"]


def test_no_other_code_decides_by_an_engines_name() -> None:
    """vLLM's is also that of the package that the venv engine is built from."""
    names = {name for name, engine in ENGINES.items() if not engine.in_venv}
    texts = {
        path: path.read_text(encoding="utf-8")
        for path in TOP.rglob("*.py")
        if path.parent != FOLDER
    }
    findings = [
        f"{path.relative_to(TOP)}:{node.lineno}"
        for path, text in texts.items()
        # A tree of each file would take seconds.
        if any(name in text for name in names)
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Constant) and node.value in names
    ]
    assert findings == []


def test_a_phase_is_told_in_the_words_that_its_line_has() -> None:
    for engine in ENGINES.values():
        for pattern, text in engine.phases:
            assert text.format(**dict.fromkeys(pattern.groupindex, "1"))


@pytest.mark.parametrize(
    ("engine", "words", "kind"),
    [
        ("vllm", "--port 1", None),
        ("vllm", "--runner pooling", "embedding"),
        ("vllm", "--runner=pooling --convert=embed", "embedding"),
        ("vllm", "--runner generate", None),
        ("vllm", "--convert classify", "rerank"),
        ("vllm", "--task score", "rerank"),
        ("vllm", "--task embed", "embedding"),
        ("vllm", "--task generate", None),
        (
            "vllm",
            '--runner pooling --hf-overrides {"architectures":["Qwen3ForSequenceClassification"]}',
            "rerank",
        ),
        ("sglang", "--port 1", None),
        ("sglang", "--is-embedding", "embedding"),
        ("llamacpp", "--port 1", None),
        ("llamacpp", "--embedding", "embedding"),
        ("llamacpp", "--embeddings", "embedding"),
        ("llamacpp", "--embedding --pooling rank", "rerank"),
        ("llamacpp", "--embeddings --pooling last", "embedding"),
        ("llamacpp", "--reranking", "rerank"),
        ("llamacpp", "--embedding --rerank", "rerank"),
    ],
)
def test_the_kind_of_model_is_read_off_the_command_line(engine, words, kind):
    assert ENGINES[engine].request_kind(words.split()) == kind


@pytest.mark.parametrize(
    ("parser_value", "own_value", "message"),
    [
        (32768, 32768.0, None),
        (32000, 32768.0, "reads length as 32000, where Lockstep reads 32768.0"),
        ("fp8", "fp8", None),
        ("fp8", None, "reads length as 'fp8', where Lockstep reads nothing"),
        ("usual", None, None),
        (-1, None, None),
        ({"a": 1}, {"a": 1}, None),
        ({"a": 1}, {"a": 2}, "reads length as {'a': 1}, where Lockstep reads {'a': 2}"),
    ],
)
def test_a_value_that_the_parser_reads_in_another_way_is_named_with_both(
    parser_value: object, own_value: object, message: str | None
) -> None:
    reading = ParsedCommand({"length": parser_value}, {"length": "usual"})
    finding = reading.misread_option({"length": own_value, "an-option-of-another-release": 1})
    assert finding == (message and f"{message}. Remedy: write the flag in full, once")


def test_a_key_that_the_parser_alone_has_seen_is_not_shown() -> None:
    finding = ParsedCommand({"api_key": ["s3cret"]}, {"api_key": None}).misread_option(
        {"api_key": None}
    )
    assert finding and "reads api_key as a secret" in finding
    assert "s3cret" not in finding
