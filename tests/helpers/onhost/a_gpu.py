"""The lab's nvidia-smi on PATH, with its files in a folder of the test."""

import json
import os
import sys
from pathlib import Path

import pytest

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

    def shows(self, **figures: object) -> None:
        """Set the figures to show beside the usual ones; without figures, the usual ones only."""
        (self.folder / "gpu.json").write_text(json.dumps(figures))

    @property
    def cap(self) -> str | None:
        path = self.folder / "cap"
        return path.read_text() if path.exists() else None
