"""For every unit test: no server outside this machine, whatever its environment says."""

import pytest


@pytest.fixture(autouse=True)
def _no_proxy_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
