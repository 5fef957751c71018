"""A git address that holds a user name and a password, without them on any command line.

Everybody on a machine may read command lines, and logs repeat them. Git gets both from variables,
by a credential helper of its own kind, and only for that server.
"""

from __future__ import annotations

from urllib.parse import unquote, urlsplit

_HELPER = (
    '!f() { printf "username=%s\\npassword=%s\\n" "$LOCKSTEP_GIT_USER" "$LOCKSTEP_GIT_PASSWORD"; }'
    "; f"
)


def apart(address: str) -> tuple[str, dict[str, str]]:
    """The address as it may be shown, and the variables by which git logs in.

    Only HTTP has passwords in addresses; any other address stays as it is, with no variables.
    """
    parts = urlsplit(address)
    login, at, server = parts.netloc.rpartition("@")
    if parts.scheme not in ("http", "https") or not at:
        return address, {}
    user, _, password = login.partition(":")
    return parts._replace(netloc=server).geturl(), {
        # What answers for other servers stays; an empty one forgets helpers that would keep this.
        "GIT_CONFIG_COUNT": "2",
        "GIT_CONFIG_KEY_0": f"credential.{parts.scheme}://{server}.helper",
        "GIT_CONFIG_VALUE_0": "",
        "GIT_CONFIG_KEY_1": f"credential.{parts.scheme}://{server}.helper",
        "GIT_CONFIG_VALUE_1": _HELPER,
        "LOCKSTEP_GIT_USER": unquote(user),
        "LOCKSTEP_GIT_PASSWORD": unquote(password),
    }
