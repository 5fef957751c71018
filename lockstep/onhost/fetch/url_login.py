"""A user name and a password in an HTTP address, as a header.

urllib takes them for a part of the host's name, requests leaves them aside when it is given any
other login, and both repeat the address in errors.
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
