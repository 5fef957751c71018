"""Logins of mirrors and proxies. What apt makes of them: tests/render/test_apt_by_apt.py."""

import re
from dataclasses import replace

import pytest

from lockstep.core.errors import InventoryError
from lockstep.inventory.settings import Proxy, Settings, Sources
from lockstep.system.apt_login import UnwritableLogin, logins, without_logins
from lockstep.system.base_files import (
    APT_LOGIN,
    APT_PROXY,
    APT_SOURCES,
    DOCKER_PROXY,
    absent_files,
    docker_restart_key,
    host_files,
)

BARE = Settings(name="spark", models={})


@pytest.mark.parametrize(
    ("text", "expected_text"),
    [
        ("deb https://me:w@a.example/ubuntu noble main", "deb https://a.example/ubuntu noble main"),
        ("deb [signed-by=/k@y] https://a.example ./", "deb [signed-by=/k@y] https://a.example ./"),
        ("http://me:w@rd@proxy.example:3128", "http://proxy.example:3128"),
        ("deb HTTPS://me:p#?w@a.example ./", "deb HTTPS://a.example ./"),
        ("deb https://a.example/with@sign ./", "deb https://a.example/with@sign ./"),
    ],
)
def test_everybody_may_read_what_is_left(text: str, expected_text: str) -> None:
    assert without_logins(text) == expected_text


@pytest.mark.parametrize("login", ["me:two%20words", "me:", ":word", "me:a%0Ab"])
def test_what_auth_conf_cannot_hold_is_refused_without_showing_it(login: str) -> None:
    line = f"deb https://{login}@a.example/x ./"
    with pytest.raises(UnwritableLogin):
        logins([line], [])
    with pytest.raises(InventoryError, match="another password") as error:
        host_files(replace(BARE, sources=Sources(apt=(line,))))
    assert "word" not in re.sub("(another|name or) password", "", str(error.value))


def test_only_the_login_is_private_and_goes_with_the_last_one() -> None:
    site = replace(
        BARE,
        sources=Sources(apt=("deb https://me:s3cret@a.example/x noble main",)),
        proxy=Proxy(http="http://via:hidd3n@proxy.example:3128"),
    )
    files = {file.path: file for file in host_files(site)}
    modes = [files[path].mode for path in (APT_SOURCES, APT_PROXY, APT_LOGIN)]
    assert modes == ["0644", "0644", "0600"]
    open_to_all = [file.text for file in files.values() if not file.private]
    assert [text for text in open_to_all if "s3cret" in text or "hidd3n" in text] == []
    assert APT_LOGIN in absent_files(BARE) and APT_LOGIN not in absent_files(site)


def docker_drop_in(proxy: str) -> str:
    settings = replace(BARE, proxy=Proxy(http=proxy))
    text = next(file.text for file in host_files(settings) if file.path == DOCKER_PROXY)
    assert docker_restart_key(settings) in text
    return text


def test_the_drop_in_of_docker_tells_proxies_apart_and_no_passwords() -> None:
    """Everybody may read it, and could try passwords until one has the same hash."""
    assert docker_drop_in("http://proxy.lan:3128") != docker_drop_in("http://proxy.lan:3129")
    first, second = (f"http://anna:{word}@proxy.lan:3128" for word in ("one", "two"))
    assert docker_drop_in(first) == docker_drop_in(second)
