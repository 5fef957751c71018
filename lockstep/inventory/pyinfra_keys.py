"""The keys that pyinfra itself reads from a host's data: a closed list, to refuse wrong names.

They are kept as names, because importing pyinfra takes 0.5 s of each `lockstep` command (two cores
of an x86 machine, 2026-11-26). A test holds them against the installed pyinfra (3.10.0).
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping
from typing import Any

from lockstep.inventory.values import AnyPort

#: Prefixes of pyinfra's keys; ours may not collide with them.
PREFIXES = ("_", "ssh_", "local_", "docker_", "chroot_")
_TEXTS = (
    *("hostname", "user", "password", "key", "key_password", "config_file", "known_hosts_file"),
    *("strict_host_key_checking", "file_transfer_protocol"),
)
_SWITCHES = ("allow_agent", "look_for_keys", "forward_agent")
#: Keys of a host's login → the type of the value, which pyinfra does not check.
LOGIN: Mapping[str, Any] = {
    **{f"ssh_{name}": str for name in _TEXTS},
    **{f"ssh_{name}": bool for name in _SWITCHES},
    **{f"ssh_connect_retry_{name}_delay": float for name in ("min", "max")},
    "ssh_port": AnyPort,
    "ssh_connect_retries": int,
    "ssh_paramiko_connect_kwargs": dict[str, Any],
}
# Arguments of each operation, which can be set for all operations of a host.
_ARGUMENTS = (
    *("chdir", "continue_on_error", "doas", "doas_user", "dzdo", "dzdo_user", "env", "get_pty"),
    *("if", "ignore_errors", "parallel", "preserve_su_env", "preserve_sudo_env", "retries"),
    *("retry_delay", "retry_until", "run_once", "serial", "shell_executable", "stdin"),
    *("su_password", "su_shell", "su_user", "success_exit_codes", "sudo", "sudo_password"),
    *("sudo_user", "temp_dir", "timeout", "use_su_login", "use_sudo_login"),
)
KEYS = frozenset(
    (
        *LOGIN,
        *(f"_{name}" for name in _ARGUMENTS),
        *("docker_identifier", "docker_platform", "docker_architecture"),
        # Two connectors set these for themselves.
        *("docker_image", "chroot_directory"),
    )
)


def alike(key: str, own_keys: Collection[str]) -> set[str]:
    """Return what an unknown key may mean; pyinfra's names only for a key with their prefix."""
    start = next((prefix for prefix in PREFIXES if key.startswith(prefix)), None)
    if start is None:
        return set(own_keys)
    return {name for name in (*KEYS, *own_keys) if name.startswith(start)}


def is_private(name: str) -> bool:
    """Tell whether a name of group data is private to its file: no key, nor near to a key."""
    if not name.startswith("_") or name in KEYS:
        return False
    # "_sduo" is near to "_sudo".
    return name.startswith("__") or not difflib.get_close_matches(name, KEYS, n=1, cutoff=0.8)
