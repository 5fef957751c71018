"""A host's login by plain ssh: pyinfra's own data as ssh's options."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from lockstep.core.errors import InventoryError

# Exit status of ssh when there is no connection.
NO_CONNECTION = 255
# Remedy where sudo asks for a password and nobody can type one.
SUDO = "Let the account use sudo without a password: nobody is asked for one here."
# A silent host is given up within 45 s, in each phase (ssh_config(5), OpenSSH 9): 15 s to reach it,
# 10 x 3 s to log in, and from then on when the fourth question, one each 10 s, is due. Without
# these options ssh waits for ever for a host that lost its power.
ALIVE = {"ConnectTimeout": "15", "ServerAliveInterval": "10", "ServerAliveCountMax": "3"}
_OPTIONS = {
    "ssh_user": "User",
    "ssh_port": "Port",
    "ssh_key": "IdentityFile",
    "ssh_known_hosts_file": "UserKnownHostsFile",
    "ssh_strict_host_key_checking": "StrictHostKeyChecking",
}


@dataclass(frozen=True)
class Login:
    """A host, and the words before a command on it; () for this machine itself (`@local`)."""

    name: str
    words: tuple[str, ...]

    def command(self, argv: Sequence[str]) -> list[str]:
        """Return `argv` on that host, as an argument list for this machine."""
        return [*self.words, shlex.join(argv)] if self.words else list(argv)

    def with_compression(self) -> Login:
        """Return the same login with compression, for long answers."""
        if not self.words:
            return self
        ssh, *more = self.words
        return replace(self, words=(ssh, "-o", "Compression=yes", *more))


def sudo_refused(code: int, error_text: str) -> bool:
    """Tell whether sudo refused the account a command on a host, by the error text."""
    lines = error_text.splitlines()
    words = any(line.startswith("sudo: ") and "not found" not in line for line in lines)
    return code != 0 and (words or "sudoers" in error_text)


def login(name: str, data: Mapping[str, Any]) -> Login:
    """Return the login of one host, by its name in the inventory and its merged data.

    Raises:
        InventoryError: a connector that is neither ssh nor `@local`.
    """
    if name == "@local":
        return Login(name, ())
    if name.startswith("@") and not name.startswith("@ssh/"):
        raise InventoryError(
            "only hosts over ssh and @local can be reached from here",
            where=name,
            remedy="Choose others with --limit.",
        )
    options = {ssh: str(data[key]) for key, ssh in _OPTIONS.items() if data.get(key) is not None}
    if "IdentityFile" in options:
        options["IdentitiesOnly"] = "yes"
    # No command may wait for a person.
    flags = ssh_options({**options, "BatchMode": "yes", **ALIVE})
    return Login(name, ("ssh", *flags, "--", address(name, data)))


def typed_login(name: str, data: Mapping[str, Any]) -> str:
    """Return what a person types after `ssh`; an IPv6 address has no brackets there."""
    port, user = data.get("ssh_port"), data.get("ssh_user")
    option = f"-p {port} " if port else ""
    return f"{option}{user}@{address(name, data)}" if user else f"{option}{address(name, data)}"


def known_name(name: str, data: Mapping[str, Any]) -> str:
    """Return the name of a host in known_hosts (sshd(8)): with a port of its own in brackets."""
    port = int(data.get("ssh_port") or 22)
    return address(name, data) if port == 22 else f"'[{address(name, data)}]:{port}'"


def address(name: str, data: Mapping[str, Any]) -> str:
    """Return the address that other machines have for a host."""
    return str(data.get("ssh_hostname") or name.removeprefix("@ssh/"))


def ssh_options(options: Mapping[str, str]) -> list[str]:
    """Return ssh options as words of its command line."""
    return [word for key, value in options.items() for word in ("-o", f"{key}={value}")]
