"""A user name and a password in an address, taken out of it: as a header, or for git.

urllib takes them for a part of the host's name, and repeats the address in errors. Everybody on a
machine may read command lines, so git gets them from variables, for that server alone.
"""

from __future__ import annotations

import base64
from urllib.parse import unquote, urlsplit


def apart(address: str) -> tuple[str, dict[str, str]]:
    """The address as it may be shown, and the header that logs in, {} where none is needed.

    Raises ValueError where the address is none.
    """
    parts = urlsplit(address)
    login, at, server = parts.netloc.rpartition("@")
    if parts.scheme not in ("http", "https") or not at:
        return address, {}
    user, _, password = login.partition(":")
    pair = f"{unquote(user)}:{unquote(password)}".encode()
    header = {"Authorization": f"Basic {base64.b64encode(pair).decode()}"} if login else {}
    return parts._replace(netloc=server).geturl(), header


def for_git(address: str) -> tuple[str, dict[str, str]]:
    """The address as it may be shown, and the variables by which git logs in.

    Only HTTP has passwords in addresses; any other address stays as it is, with no variables.
    """
    shown, header = apart(address)
    if not header:
        return shown, {}
    server = urlsplit(shown)._replace(path="/", query="").geturl()
    return shown, {
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": f"http.{server}.extraHeader",
        "GIT_CONFIG_VALUE_0": f"Authorization: {header['Authorization']}",
    }
