"""A host on which a gateway switches."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from a_switching_spark import SwitchingSpark


@pytest.fixture
def spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SwitchingSpark]:
    spark = SwitchingSpark(tmp_path, monkeypatch)
    yield spark
    spark.close()
