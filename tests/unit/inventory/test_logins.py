"""Logins that come into addresses where a run needs them."""

from __future__ import annotations

from pathlib import Path

import pytest
from a_spark import spark

from lockstep.core.errors import InventoryError
from lockstep.inventory import secret
from lockstep.inventory.logins import logged_in

SERVER = "https://mirror.lan:8443"


@pytest.fixture
def login(tmp_path: Path) -> dict[str, str]:
    secret._text.cache_clear()
    (tmp_path / "login").write_text("anna:p@ss/wörd\\1".encode("ascii", "replace").decode() + "\n")
    return {"file": str(tmp_path / "login")}


def test_every_address_at_the_server_gets_it_and_no_other(login: dict[str, str]) -> None:
    plan = spark(
        sources={
            "python_index": f"{SERVER}/simple",
            "torch_index": "https://mirror.lan:84431/whl",
            "hub": "https://huggingface.co",
            "git": {"https://github.com/": f"{SERVER}/git/", "https://x.org/": "git@host:p"},
            "apt": (f"deb {SERVER}/apt stable main", "deb http://mirror.lan/apt stable main"),
        },
        proxy={"https": SERVER},
        logins={SERVER: login},
    )
    settings = logged_in(plan).settings
    address = "https://anna:p%40ss%2Fw%3Frd%5C1@mirror.lan:8443"
    assert settings.sources.python_index == f"{address}/simple"
    assert settings.sources.torch_index == "https://mirror.lan:84431/whl"
    assert dict(settings.sources.git) == {
        **{"https://github.com/": f"{address}/git/", "https://x.org/": "git@host:p"}
    }
    assert settings.sources.apt == (
        *(f"deb {address}/apt stable main", "deb http://mirror.lan/apt stable main"),
    )
    assert (settings.proxy.https, settings.proxy.http) == (address, None)
    assert settings.sources.hub == "https://huggingface.co"
    # What only looks sees the inventory's own.
    assert plan.settings.sources.python_index == f"{SERVER}/simple"


def test_an_inventory_without_logins_stays_as_it_is() -> None:
    plan = spark()
    assert logged_in(plan) is plan


@pytest.mark.parametrize("server", [f"{SERVER}/", "mirror.lan", "https://anna@mirror.lan"])
def test_a_login_is_for_a_server(server: str) -> None:
    with pytest.raises(InventoryError, match="is not a server"):
        spark(proxy={"http": SERVER}, logins={server: {"file": "/x"}})


def test_one_that_nothing_uses_is_refused() -> None:
    with pytest.raises(InventoryError, match=r"logins names a server.*https://mirror\.lan\."):
        spark(proxy={"http": SERVER}, logins={"https://mirror.lan": {"file": "/x"}})
