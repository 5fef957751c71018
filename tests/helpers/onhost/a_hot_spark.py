"""A host with one model hot on an engine of which a test writes the metrics."""

from __future__ import annotations

from pathlib import Path

import pytest
from a_model_host import UP, ModelHost

from lockstep.onhost.core import config
from lockstep.onhost.operator import status

UNIT = "vllm-qwen36.service"


class HotSpark(ModelHost):
    """qwen is hot; `more` are keys of its target."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch, **more: object) -> None:
        super().__init__(folder, patch, {"qwen": {"unit": UNIT, **more}})
        self.target = self.targets["qwen"]
        self.runs(pid=7)

    def runs(self, pid: int) -> None:
        """The engine is a process of this number."""
        self.systemd.unit(UNIT, **UP, MainPID=str(pid))

    def said(self) -> str:
        """What `switch.sh status` shows."""
        found = status.gather(config.load_host(self.paths.targets), self.paths)
        return " ".join(line.strip() for line in status.lines(found, 60))
