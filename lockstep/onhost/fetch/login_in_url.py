"""Separation of user name and password from an address: as a header, or for git.

urllib takes them for a part of the host's name, and repeats the address in errors. Everybody on a
machine may read command lines, so git gets them from variables, for that server alone.
"""

from __future__ import annotations

import base64
from urllib.parse import unquote, urlsplit


def split_off_login(address: str) -> tuple[str, dict[str, str]]:
    """Return the address without its login, and the header that logs in ({} without a login).

    Raises ValueError if the address is not valid.
    """
    parts = urlsplit(address)
    login, at, server = parts.netloc.rpartition("@")
    if parts.scheme not in ("http", "https") or not at:
        return address, {}
    user, _, password = login.partition(":")
    pair = f"{unquote(user)}:{unquote(password)}".encode()
    header = {"Authorization": f"Basic {base64.b64encode(pair).decode()}"} if login else {}
    return parts._replace(netloc=server).geturl(), header


def without_login_for_git(address: str) -> tuple[str, dict[str, str]]:
    """Return the address without its login, and the variables by which git logs in.

    Only HTTP has passwords in addresses; any other address stays as it is, with no variables.
    """
    public_url, header = split_off_login(address)
    if not header:
        return public_url, {}
    server = urlsplit(public_url)._replace(path="/", query="").geturl()
    return public_url, {
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": f"http.{server}.extraHeader",
        "GIT_CONFIG_VALUE_0": f"Authorization: {header['Authorization']}",
    }
