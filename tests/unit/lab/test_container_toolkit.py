"""A stand-in Spark whose container toolkit is in CDI mode answers as a real one, and is mended."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from a_spark import healthy, pins_for, spark

from lockstep import preflight
from lockstep.onhost.facts import docker

GUEST = Path(__file__).parents[3] / "lab/guest/root/usr/bin"
FOLDER = "/etc/nvidia-container-runtime"
PLAN = spark()


class Toolkit:
    """The programs of the stand-in, with its configuration in another folder."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.config = folder, folder / "config.toml"
        for name in ("nvidia-container-runtime-hook", "nvidia-ctk"):
            text = (GUEST / name).read_text().replace(FOLDER, str(folder))
            (folder / name).write_text(text)

    def run(self, name: str, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["sh", str(self.folder / name), *words], input="{}", capture_output=True, text=True
        )

    def findings(self) -> list[Any]:
        facts = healthy(PLAN, 0.0)
        facts["docker"] |= {"version": "28.5.2", "mode": docker._mode()}
        found = preflight.findings(PLAN, pins_for(PLAN), facts, now=0.0)
        return [each for each in found if each.code == "docker-gpu"]


@pytest.fixture
def toolkit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Toolkit:
    made = Toolkit(tmp_path)
    monkeypatch.setattr(docker, "_TOOLKIT", made.config)
    return made


def test_the_hook_refuses_in_cdi_mode_and_the_remedy_of_preflight_ends_that(
    toolkit: Toolkit,
) -> None:
    toolkit.config.write_text('[nvidia-container-runtime]\nmode = "cdi"\n')
    assert toolkit.run("nvidia-container-runtime-hook").returncode == 1
    (finding,) = toolkit.findings()
    command = re.search(r"`sudo (nvidia-ctk [^`]+)`", finding.remedy)
    assert command is not None
    assert toolkit.run(*command[1].split()).returncode == 0
    assert toolkit.run("nvidia-container-runtime-hook").returncode == 0
    assert toolkit.findings() == []


@pytest.mark.parametrize("mode", [None, "auto", "legacy"])
def test_as_shipped_the_hook_gives_the_gpu(toolkit: Toolkit, mode: str | None) -> None:
    if mode:
        toolkit.config.write_text(f'[nvidia-container-runtime]\nmode = "{mode}"\n')
    assert toolkit.run("nvidia-container-runtime-hook").returncode == 0
    assert toolkit.findings() == []
