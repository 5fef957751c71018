"""The files of a command line before pyinfra executes them."""

import inspect
import sys
from pathlib import Path
from typing import Any

from lockstep.deploy.checked import name_modules_of_files


def test_a_frame_of_an_executed_file_has_a_module(tmp_path: Path) -> None:
    file = tmp_path / "deploy.py"
    file.write_text("import sys\nframe = sys._getframe()\n")
    name_modules_of_files(["-y", str(file)])
    try:
        values: dict[str, Any] = {}
        exec(compile(file.read_text(), file, "exec"), values)
        assert inspect.getmodule(values["frame"], str(file)) is sys.modules[str(file)]
    finally:
        del sys.modules[str(file)]
