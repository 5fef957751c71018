"""An engine is one module of a folder: nothing else lists or names them."""

import ast
from pathlib import Path

import pytest

import lockstep
from lockstep.onhost.engines import ENGINES
from lockstep.onhost.engines.engine_parser import ParsedCommand, refusal

TOP = Path(lockstep.__file__).parent
FOLDER = TOP / "onhost/engines"
SHARED = {"command_line_flags", "__init__", "base", "engine_counters", "engine_parser"}


def test_an_engine_is_found_by_its_module_and_one_is_the_usual_one():
    assert {path.stem for path in FOLDER.glob("*.py")} - SHARED == set(ENGINES)
    runtimes = [name for engine in ENGINES.values() for name in engine.runtimes]
    assert len(runtimes) == len(set(runtimes))
    assert [engine.name for engine in ENGINES.values() if engine.usual] == ["vllm"]
    for engine in ENGINES.values():
        for pattern, text in engine.phases:
            assert text.format(**dict.fromkeys(pattern.groupindex, "1"))


def test_no_other_code_decides_by_an_engines_name() -> None:
    """vLLM's is also that of the package that the venv engine is built from."""
    names = {name for name, engine in ENGINES.items() if not engine.in_venv}
    paths = [path for path in TOP.rglob("*.py") if path.parent != FOLDER]
    texts = {path: path.read_text(encoding="utf-8") for path in paths}
    findings = [
        f"{path.relative_to(TOP)}:{node.lineno}"
        for path, text in texts.items()
        # A tree of each file would take seconds.
        if any(name in text for name in names)
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Constant) and node.value in names
    ]
    assert findings == []


def test_of_equal_flags_the_last_one_counts_and_a_flag_alone_has_no_value() -> None:
    vllm, argv = ENGINES["vllm"], ("--port", "1", "-tp", "2", "--port=3", "--enforce-eager", "-O3")
    assert [vllm.value(argv, key) for key in ("port", "tensor_parallel")] == ["3", "2"]
    assert vllm.value(argv, "enforce_eager") == "" and vllm.value(argv, "seed") is None


QWEN = '{"architectures":["Qwen3ForSequenceClassification"]}'


@pytest.mark.parametrize(
    ("engine", "words", "kind"),
    [
        ("vllm", "--runner pooling", "embedding"),
        ("vllm", "--runner=pooling --convert=embed", "embedding"),
        ("vllm", "--runner generate", None),
        ("vllm", "--convert classify", "rerank"),
        ("vllm", "--task score", "rerank"),
        ("vllm", f"--runner pooling --hf-overrides {QWEN}", "rerank"),
        ("sglang", "--port 1", None),
        ("sglang", "--is-embedding", "embedding"),
        ("llamacpp", "--port 1", None),
        ("llamacpp", "--embedding", "embedding"),
        ("llamacpp", "--embedding --pooling rank", "rerank"),
        ("llamacpp", "--reranking", "rerank"),
    ],
)
def test_the_kind_of_model_is_read_off_the_command_line(engine, words, kind):
    assert ENGINES[engine].request_kind(words.split()) == kind


@pytest.mark.parametrize(
    ("parser_value", "own_value", "message"),
    [
        (32768, 32768.0, None),
        (32000, 32768.0, "reads length as 32000, where Lockstep reads 32768.0"),
        ("fp8", None, "reads length as 'fp8', where Lockstep reads nothing"),
        ("usual", None, None),
        (-1, None, None),
        ({"a": 1}, {"a": 1}, None),
    ],
)
def test_a_value_that_the_parser_reads_otherwise_is_named(parser_value, own_value, message):
    reading = ParsedCommand({"length": parser_value}, {"length": "usual"})
    finding = reading.misread_option({"length": own_value, "an-option-of-another-release": 1})
    assert finding == (message and f"{message}. Remedy: write the flag in full, once")


def test_a_key_that_the_parser_alone_has_seen_is_not_shown() -> None:
    reading = ParsedCommand({"api_key": ["s3cret"]}, {"api_key": None})
    finding = reading.misread_option({"api_key": None})
    assert "reads api_key as a secret" in finding and "s3cret" not in finding


@pytest.mark.parametrize(
    ("output", "why"),
    [
        # As vLLM 0.32.0 wrote it.
        (
            "usage: vllm serve [model_tag] [options]\n"
            "vllm serve: error: argument --structured-outputs-config: 1 validation error\n"
            "  Value error, disable_any_whitespace is only supported for xgrammar. "
            "[type=value_error, input_value={'disable_any_whitespace': True}, input_type=dict]\n"
            "    For further information visit https://x\n",
            "vllm serve: error: argument --structured-outputs-config: 1 validation error "
            "Value error, disable_any_whitespace is only supported for xgrammar.",
        ),
        ("something\n\nelse\n", "else"),
        ("", "no reason given"),
    ],
)
def test_a_refusal_of_an_engines_parser_is_one_line_with_its_reason(output, why):
    assert refusal(output) == why
