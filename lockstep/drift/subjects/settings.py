"""Drift of the system's settings, files such as /etc/docker/daemon.json, between hosts."""

from __future__ import annotations

from typing import Any

from lockstep.files.managed_file import SYSTEMD, TOOLS_VENV, UV_VENV
from lockstep.files.remote_exec import Reader
from lockstep.host.desired_state import DesiredState
from lockstep.host.specs import UV
from lockstep.onhost.facts import files
from lockstep.resources.fact_comparison import Kind
from lockstep.system.base_files import absent_files, system_units

# Without the files that differ by nature: names, addresses, keys and identities of hosts.
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
KINDS = {
    "setting": Kind(files.foreign_setting_files, is_sealed=True),
    "setting mode": Kind(files.foreign_setting_files, part=True),
}


def questions(desired_state: DesiredState) -> dict[Reader, dict[str, Any]]:
    """See `subjects.questions`."""
    names = [*desired_state.unit_files, *system_units(desired_state.plan.settings)]
    return {
        files.foreign_setting_files: {
            "places": _PLACES,
            "known": [
                *desired_state.paths,
                *absent_files(desired_state.plan.settings),
                *(UV, UV_VENV, TOOLS_VENV),
            ],
            # Drop-ins of these are another kind.
            "theirs": [f"{SYSTEMD}/{name}.d/" for name in names],
        },
    }
