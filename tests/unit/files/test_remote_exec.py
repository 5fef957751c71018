"""A program that a host runs from standard input brings all that it imports, and nothing else."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from lockstep.files import remote_exec
from lockstep.files.managed_file import PROGRAMS
from lockstep.files.programs import modules_with_imports


def test_a_module_comes_with_all_that_it_imports_and_its_packages() -> None:
    modules = modules_with_imports("facts.deploy_records", "facts.weights")
    folder = "lockstep/onhost"
    assert {f"{folder}/records/ownership.py", f"{folder}/weights/weights_spec.py"} <= set(modules)
    assert {"lockstep/__init__.py", f"{folder}/__init__.py", f"{folder}/facts/__init__.py"} < set(
        modules
    )
    assert not [path for path in modules if not path.startswith((folder, "lockstep/__init__"))]
    # A package that finds its modules by their folder finds them on a host, too.
    code = remote_exec.COMMAND[-1].replace('program.answer_request(sent["asked"])', "list(ENGINES)")
    code = code.replace("program =", "from lockstep.onhost.engines import ENGINES\nprogram =")
    answer = host_answer(remote_exec.program_input("facts", {}, "engines"), code)
    assert {"vllm", "sglang", "llamacpp"} <= set(answer)


def host_answer(document: str, code: str = remote_exec.COMMAND[-1]) -> Any:
    """The answer of a host that has no module of ours."""
    argv = [sys.executable, *remote_exec.COMMAND[1:-1], code]
    result = subprocess.run(
        argv, input=document, cwd="/", env={}, capture_output=True, text=True, check=True
    )
    return json.loads(result.stdout)


MODULE = "lockstep/onhost/facts/deploy_records.py"


@pytest.mark.parametrize(
    ("text", "is_imported"), [("", True), ("# another version\n", False), (None, False)]
)
def test_a_host_imports_what_it_has_installed_where_that_is_what_is_sent(
    tmp_path: Path, text: str | None, is_imported: bool
) -> None:
    for path, source in modules_with_imports("facts", "facts.deploy_records").items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        if text is not None or path != MODULE:
            (tmp_path / path).write_text(source + (text or "" if path == MODULE else ""))
    code = remote_exec.COMMAND[-1].replace(PROGRAMS, str(tmp_path))
    code = code.replace('program.answer_request(sent["asked"])', "program.__file__")
    answer = host_answer(remote_exec.readers_input({"deploy_records.generation": None}), code)
    assert answer.startswith(f"{tmp_path}/") is is_imported
