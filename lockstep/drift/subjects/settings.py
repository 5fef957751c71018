"""Drift of the system's settings: files such as /etc/docker/daemon.json, and the kernel's.

The inventory asks for kernel settings alone; the files are compared between hosts. A service that
was started before its file was written still has the settings of before.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from lockstep.drift.subjects.kind import Expectation, Kind, Row, Seen
from lockstep.files.managed_file import SYSTEMD, TOOLS_VENV, UV_VENV
from lockstep.files.sent import Reader
from lockstep.host.intended import Intended
from lockstep.host.specs import UV
from lockstep.onhost.facts import files, machine, units
from lockstep.system.base_files import absent_files, system_units

# What differs by nature is not here: names, addresses, keys and identities of hosts.
_PLACES = (
    *("/etc/apt", "/etc/containerd", "/etc/cron.d", "/etc/cron.daily", "/etc/cron.hourly"),
    *("/etc/crontab", "/etc/default", "/etc/docker", "/etc/environment", "/etc/environment.d"),
    *("/etc/fstab", "/etc/gitconfig", "/etc/initramfs-tools", "/etc/ld.so.conf.d"),
    *("/etc/ld.so.preload", "/etc/logrotate.d", "/etc/modprobe.d", "/etc/modules"),
    *("/etc/modules-load.d", "/etc/nsswitch.conf", "/etc/nvidia-container-runtime"),
    *("/etc/NetworkManager/conf.d", "/etc/pam.d", "/etc/pip.conf", "/etc/profile.d"),
    *("/etc/rc.local", "/etc/security", "/etc/ssh/sshd_config", "/etc/ssh/sshd_config.d"),
    *("/etc/sudoers", "/etc/sudoers.d", "/etc/sysctl.conf", "/etc/sysctl.d", "/etc/systemd"),
    *("/etc/tmpfiles.d", "/etc/udev/rules.d", "/var/spool/cron", "/usr/local/bin"),
    *("/usr/local/sbin", "/usr/local/lib/systemd", "/usr/lib/sysctl.d"),
)
#: Settings that a service of the system reads once, when it starts.
READ_AT_START = {
    "docker.service": ["/etc/docker/daemon.json"],
    "ssh.service": ["/etc/ssh/sshd_config", "/etc/ssh/sshd_config.d"],
}


def _mode(row: Row) -> tuple[str, ...]:
    if not (row.expected and row.found):
        return ()
    octal, _, owner = row.expected.partition(" ")
    if row.found.startswith(octal):
        return ("chown", owner, row.item)
    return ("chmod", octal, row.item)


KINDS = {
    # One that the others do not have is looked at first.
    "setting": Kind(files.settings, extra="rm {item}", sealed=True),
    "setting mode": Kind(files.settings, mend=_mode, part=True),
    "older process": Kind(units.every, mend="systemctl restart {first}", scope="odd"),
    # Until the next boot.
    "sysctl": Kind(machine.settings, "warning", "deploy", "sysctl -w {item}={expected}"),
}


def questions(this: Intended) -> dict[Reader, dict[str, Any]]:
    """See `subjects.questions`."""
    names = [*this.unit_files, *system_units(this.plan.settings)]
    return {
        files.settings: {
            "places": _PLACES,
            "known": [*this.paths, *absent_files(this.plan.settings), *(UV, UV_VENV, TOOLS_VENV)],
            # Drop-ins of these are another kind.
            "theirs": [f"{SYSTEMD}/{name}.d/" for name in names],
        },
        machine.settings: {"names": list(this.plan.settings.sysctls)},
    }


def expected(this: Intended, seen: Seen) -> Iterator[Expectation]:
    """See `subjects.expected`."""
    for name, value in this.plan.settings.sysctls.items():
        yield Expectation("sysctl", name, value)
