"""`lockstep engine describe` asks whatever interpreter it is given, and writes whole files."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from lockstep.commands.engine import engine
from lockstep.described import load_descriptions, parse
from lockstep.errors import CatalogueError

SAID = {
    "engine": "vllm",
    "version": "9.9.9",
    "flags": {"--port": None},
    "environment": ["VLLM_X"],
    "registries": {},
}


def interpreter(path: Path, answer: str, code: int = 0) -> str:
    """A stand-in for an engine's interpreter, which says ``answer``."""
    program = path / "python"
    program.write_text(
        f"#!{sys.executable}\nimport sys\nprint({answer!r})\n"
        f"print('no vllm here', file=sys.stderr)\nsys.exit({code})\n"
    )
    program.chmod(0o755)
    return str(program)


def test_the_answer_becomes_a_description_of_that_version(tmp_path: Path) -> None:
    python = interpreter(tmp_path, json.dumps(SAID))
    into = tmp_path / "engines"
    result = CliRunner().invoke(engine, ["describe", "--python", python, "--into", str(into)])
    assert result.exit_code == 0, result.output
    (description,) = load_descriptions(into)
    assert (description.engine, str(description.version)) == ("vllm", "9.9.9")
    assert [item.name for item in description.unknown(["--prot", "1"], {})] == ["--prot"]


def test_the_start_of_a_flag_is_known_where_only_one_flag_starts_so() -> None:
    said = {**SAID, "flags": {"--tp-size": None, "--graph-max": None, "--graph-min": ["1"]}}
    known = parse(json.dumps(said), "here")
    argv = ["vllm", "serve", "m", "--tp", "1", "--graph-m", "2", "--graph-mi", "2"]
    found = [(item.kind, item.name, item.value) for item in known.unknown(argv, {})]
    assert found == [("flag", "--graph-m", ""), ("value", "--graph-min", "2")]


def test_an_interpreter_without_the_engine_is_one_sentence(tmp_path: Path) -> None:
    python = interpreter(tmp_path, "", code=1)
    result = CliRunner().invoke(engine, ["describe", "--python", python, "--into", str(tmp_path)])
    assert result.exit_code == 2
    assert "no vllm here" in result.output and "Traceback" not in result.output


def test_an_answer_that_is_none_is_one_sentence(tmp_path: Path) -> None:
    python = interpreter(tmp_path, "hello")
    result = CliRunner().invoke(engine, ["describe", "--python", python, "--into", str(tmp_path)])
    assert result.exit_code == 2
    assert "not an engine's description" in result.output


def test_a_broken_description_names_its_file(tmp_path: Path) -> None:
    (tmp_path / "vllm-1.json").write_text("{}")
    with pytest.raises(CatalogueError, match=r"vllm-1\.json"):
        load_descriptions(tmp_path)
