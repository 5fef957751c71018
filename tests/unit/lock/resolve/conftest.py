"""Common settings for questions to a source: no pause before a retry, and nobody's account."""

from pathlib import Path

import pytest

from lockstep.lock.resolve import http


@pytest.fixture(autouse=True)
def _nobodys_account(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(http, "PAUSE", 0.0)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    monkeypatch.delenv("HF_TOKEN", raising=False)
    monkeypatch.delenv("HF_TOKEN_PATH", raising=False)


@pytest.fixture
def own_uv(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """uv with a cache of the test's own and without this machine's configuration."""
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv"))
    monkeypatch.setenv("UV_NO_CONFIG", "1")
    for name in ("UV_INDEX", "UV_DEFAULT_INDEX", "UV_INDEX_URL", "UV_EXTRA_INDEX_URL"):
        monkeypatch.delenv(name, raising=False)
