"""User names and passwords in apt's addresses, moved from files for everybody to auth.conf.d.

apt's programs read sources and settings as whoever calls them, so these files must be open to all.
auth.conf.d is needed only by root's apt (apt_auth.conf(5)).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from urllib.parse import unquote

# Wider than an address may be ("#" and "?" in a password): everybody may read what is left.
_ADDRESS = re.compile(
    r"(?P<scheme>[A-Za-z][\w+.-]*)://(?P<login>[^\s/]+)@(?P<server>[^\s/]+)(?P<path>\S*)"
)


class UnwritableLogin(ValueError):
    """A login that auth.conf cannot express; the text says why, without the login."""


def without_logins(text: str) -> str:
    """Return a line of sources.list, or a proxy's URL, without its login."""
    return _ADDRESS.sub(r"\g<scheme>://\g<server>\g<path>", text)


def logins(lines: Iterable[str], proxies: Iterable[str]) -> tuple[str, ...]:
    """Return lines of auth.conf for lines of sources.list and URLs of proxies with a login.

    Raises:
        UnwritableLogin: a user name or a password with a blank in it, or an empty one.
    """
    login_files = {}
    for line in lines:
        for address in _ADDRESS.finditer(line):
            # Without the slash at its end, `/debian` would stand for `/debian-security` too.
            path = address["path"].rstrip("/") + "/"
            login_files[f"{address['scheme']}://{address['server']}{path}"] = _login_words(
                address["login"]
            )
    for proxy in proxies:
        for address in _ADDRESS.finditer(proxy):
            login_files[f"{address['scheme']}://{address['server']}"] = _login_words(
                address["login"]
            )
    # apt takes the first that fits: a proxy may be on the server of an archive.
    return tuple(
        f"machine {machine} {login_files[machine]}"
        for machine in sorted(login_files, key=lambda name: (-len(name), name))
    )


def _login_words(login: str) -> str:
    user, colon, password = (unquote(part) for part in login.partition(":"))
    for part in (user, password) if colon else (user,):
        if not part or any(character.isspace() or ord(character) < 32 for character in part):
            raise UnwritableLogin("a user name or password that is empty or has a blank")
    return f"login {user} password {password}" if colon else f"login {user}"
