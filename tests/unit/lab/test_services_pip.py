"""Fetching packages says why it failed."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.core.errors import LabError
from lab.packages.pip_download import download


def test_a_package_that_does_not_exist_is_named_with_a_remedy(tmp_path: Path) -> None:
    lines: list[str] = []
    options = ("--no-index", "--find-links", str(tmp_path))
    with pytest.raises(LabError) as error:
        download(["no-such-package==1.0"], tmp_path, *options, report=lines.append)
    assert "no-such-package==1.0" in error.value.message
    assert "internet access" in error.value.remedy
