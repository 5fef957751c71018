"""What pyinfra itself reads from a host's data: a closed list, so that a wrong name is refused.

Kept as names, because importing pyinfra takes 0.5 s of each `lockstep` command (two cores of an
x86 machine, 2026-11-26); a test holds them against the pyinfra that is installed (3.10.0).
"""

from __future__ import annotations

import difflib
from collections.abc import Collection

#: How they begin; ours may not collide with them.
PREFIXES = ("_", "ssh_", "local_", "docker_", "chroot_")
_SSH = (
    *("hostname", "port", "user", "password", "key", "key_password", "allow_agent"),
    *("look_for_keys", "forward_agent", "config_file", "known_hosts_file"),
    *("strict_host_key_checking", "paramiko_connect_kwargs", "connect_retries"),
    *("connect_retry_min_delay", "connect_retry_max_delay", "file_transfer_protocol"),
)
# Of each operation, settable for all of a host's.
_ARGUMENTS = (
    *("chdir", "continue_on_error", "doas", "doas_user", "dzdo", "dzdo_user", "env", "get_pty"),
    *("if", "ignore_errors", "parallel", "preserve_su_env", "preserve_sudo_env", "retries"),
    *("retry_delay", "retry_until", "run_once", "serial", "shell_executable", "stdin"),
    *("su_password", "su_shell", "su_user", "success_exit_codes", "sudo", "sudo_password"),
    *("sudo_user", "temp_dir", "timeout", "use_su_login", "use_sudo_login"),
)
KEYS = frozenset(
    (
        *(f"ssh_{name}" for name in _SSH),
        *(f"_{name}" for name in _ARGUMENTS),
        *("docker_identifier", "docker_platform", "docker_architecture"),
        # Two connectors set these for themselves.
        *("docker_image", "chroot_directory"),
    )
)


def alike(key: str, ours: Collection[str]) -> set[str]:
    """What may be meant by a key that nobody reads: names of pyinfra's only where it begins so."""
    start = next((prefix for prefix in PREFIXES if key.startswith(prefix)), None)
    if start is None:
        return set(ours)
    return {name for name in (*KEYS, *ours) if name.startswith(start)}


def is_private(name: str) -> bool:
    """Whether a name of a file of group data is the file's own: no key, and near to none."""
    if not name.startswith("_") or name in KEYS:
        return False
    # "_sduo" is as near to "_sudo".
    return name.startswith("__") or not difflib.get_close_matches(name, KEYS, n=1, cutoff=0.8)
