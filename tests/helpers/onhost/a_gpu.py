"""The lab's nvidia-smi on PATH, with its files in a folder of the test."""

import json
import os
import shutil
import sys
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import IO, Any
from unittest import mock

import pytest
from onhost_fakes import InlineProcess

from lockstep.onhost.core import runner

PROGRAM = Path(__file__).resolve().parents[3] / "lab/guest/root/usr/bin/nvidia-smi"


class AGpu:
    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        programs = folder / "bin"
        programs.mkdir(parents=True)
        text = PROGRAM.read_text(encoding="utf-8").replace("os.geteuid()", "0")
        text = text.replace("/dev/nvidia-standin-cap", f"{folder}/cap")
        text = text.replace("/dev/nvidiactl", str(folder))
        text = text.replace("/run/unified-memory", str(folder))
        self.program = programs / "nvidia-smi"
        self.program.write_text(text.replace("/usr/bin/python3 -ISE", f"{sys.executable} -IS"))
        self.program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
        usual, start, code = self.program.read_text(), runner.start, compile(text, PROGRAM, "exec")

        def answer(words: list[str], out: IO[str], err: IO[str]) -> int:
            with (
                redirect_stdout(out),
                redirect_stderr(err),
                mock.patch("sys.argv", ["nvidia-smi", *words]),
                pytest.raises(SystemExit) as end,
            ):
                exec(code, {"__name__": "__main__"})
            return int(end.value.code or 0)

        def start_process(argv: Sequence[str], *more: Any, **how: Any) -> Any:
            """Run the lab's `nvidia-smi` within this process, unless a test has replaced it."""
            is_own_program = argv[0] == "nvidia-smi" and shutil.which(argv[0]) == str(self.program)
            if is_own_program and self.program.read_text() == usual:
                return InlineProcess(argv, answer)
            return start(argv, *more, **how)

        monkeypatch.setattr(runner, "start", start_process)

    def shows(self, **figures: object) -> None:
        """Set the figures to show beside the usual ones; without figures, the usual ones only."""
        (self.folder / "gpu.json").write_text(json.dumps(figures))

    @property
    def cap(self) -> str | None:
        path = self.folder / "cap"
        return path.read_text() if path.exists() else None
