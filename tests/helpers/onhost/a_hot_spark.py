"""A host with one model hot on an engine of which a test writes the metrics."""

from __future__ import annotations

from pathlib import Path

import pytest
from a_target import about
from onhost_fakes import FakeEngine, FakeSystemd, host_root

from lockstep.onhost.core import config
from lockstep.onhost.operator import status

UNIT = "vllm-qwen36.service"


class HotSpark:
    """qwen is hot; `more` are keys of its target."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch, **more: object) -> None:
        self.engine = FakeEngine()
        self.target = about(unit=UNIT, url=self.engine.url, **more)
        self.paths = host_root(folder / "root", {"qwen": self.target})
        self.systemd = FakeSystemd(folder / "systemd", patch)
        self.hot(pid=7)

    def hot(self, pid: int) -> None:
        """The engine is a process of this number."""
        self.systemd.unit(UNIT, ActiveState="active", SubState="running", MainPID=str(pid))

    def said(self) -> str:
        """What `switch.sh status` shows."""
        found = status.gather(config.load_host(self.paths.targets), self.paths)
        return " ".join(line.strip() for line in status.lines(found, 60))
