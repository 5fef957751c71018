"""Logins out of apt's addresses. What apt makes of them: tests/render/test_apt_by_apt.py."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lockstep.core.errors import InventoryError
from lockstep.inventory.settings import Proxy, Settings, Sources
from lockstep.system.apt_login import UnwritableLogin, logins, without_logins
from lockstep.system.base_files import APT_LOGIN, APT_PROXY, APT_SOURCES, absent_files, host_files

BARE = Settings(name="spark", models={})


@pytest.mark.parametrize(
    ("text", "expected_text"),
    [
        (
            "deb https://me:word@a.example/ubuntu noble main",
            "deb https://a.example/ubuntu noble main",
        ),
        (
            "deb [signed-by=/k@y] https://a.example/x ./",
            "deb [signed-by=/k@y] https://a.example/x ./",
        ),
        ("deb https://token@a.example ./", "deb https://a.example ./"),
        ("http://me:w@rd@proxy.example:3128", "http://proxy.example:3128"),
        ("deb HTTPS://me:p#?w@a.example ./", "deb HTTPS://a.example ./"),
        ("deb https://a.example/with@sign ./", "deb https://a.example/with@sign ./"),
    ],
)
def test_everybody_may_read_what_is_left(text: str, expected_text: str) -> None:
    assert without_logins(text) == expected_text


def test_the_nearest_address_comes_first_and_is_whole() -> None:
    login_addresses = logins(
        [
            "deb https://me:one@a.example/debian noble main",
            "deb https://me:t%25wo@a.example:8443/debian/ ./",
            "deb https://token@a.example/debian-security noble main",
            "deb https://b.example/open noble main",
        ],
        ["http://via:proxy@a.example:3128", "http://c.example:3128"],
    )
    assert login_addresses == (
        "machine https://a.example/debian-security/ login token",
        "machine https://a.example:8443/debian/ login me password t%wo",
        "machine https://a.example/debian/ login me password one",
        "machine http://a.example:3128 login via password proxy",
    )
    assert logins(["deb https://b.example/open noble main"], []) == ()


@pytest.mark.parametrize("login", ["me:two%20words", "me:", ":word", "me:a%0Ab"])
def test_what_auth_conf_cannot_hold_is_refused_without_showing_it(login: str) -> None:
    line = f"deb https://{login}@a.example/x ./"
    with pytest.raises(UnwritableLogin):
        logins([line], [])
    with pytest.raises(InventoryError, match="another password") as error:
        host_files(replace(BARE, sources=Sources(apt=(line,))))
    assert "word" not in str(error.value).replace("another password", "").replace(
        "name or password", ""
    )


def test_only_the_login_is_private_and_goes_with_the_last_one() -> None:
    site = replace(
        BARE,
        sources=Sources(apt=("deb https://me:s3cret@a.example/x noble main",)),
        proxy=Proxy(http="http://via:hidd3n@proxy.example:3128"),
    )
    files = {file.path: file for file in host_files(site)}
    assert {path: files[path].mode for path in (APT_SOURCES, APT_PROXY, APT_LOGIN)} == {
        APT_SOURCES: "0644",
        APT_PROXY: "0644",
        APT_LOGIN: "0600",
    }
    open_to_all = [file.text for file in files.values() if not file.private]
    assert [text for text in open_to_all if "s3cret" in text or "hidd3n" in text] == []
    assert APT_LOGIN in absent_files(BARE) and APT_LOGIN not in absent_files(site)
