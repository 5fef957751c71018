"""Names in inventory data: units, accounts, packages, kernel settings, volumes."""

from __future__ import annotations

import re
from collections.abc import Mapping

from lockstep.errors import InventoryError
from lockstep.managed import OPERATORS_GROUP
from lockstep.settings import Settings

_UNIT = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_ACCOUNT = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,31}")
# Debian Policy 5.6.1, "Source"; a "-" at the end is apt's word for removing the package.
_PACKAGE = re.compile(r"[a-z0-9][a-z0-9+.-]*[a-z0-9+.]")
# Upper case is in names of interfaces ("net.ipv4.conf.enP7s7.forwarding").
_SYSCTL = re.compile(r"[a-z0-9][A-Za-z0-9_./-]*")
# A value with a "/" or "|" names a program that the kernel runs as root (kernel.core_pattern,
# kernel.modprobe: core(5), proc(5)).
_SYSCTL_VALUE = re.compile(r"[A-Za-z0-9_.,:+-]+(?: [A-Za-z0-9_.,:+-]+)*")
# Kernel setting → the most that leaves room for an engine: what the kernel keeps from processes.
# More than the memory there is, and the host dies at every boot.
_SYSCTL_MOST = {"vm.min_free_kbytes": 8 * 2**20}
_VOLUME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{1,63}")
_EMAIL = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]*@[A-Za-z0-9][A-Za-z0-9.-]*")

# What Ubuntu 24.04's server and desktop and DGX OS 7 have as units (their packages' own names,
# 2026-11). A host's other units are seen there, before anything is touched.
_UNITS = frozenset(
    (
        *("accounts-daemon", "acpid", "anacron", "apparmor", "apport", "atd", "auditd"),
        *("avahi-daemon", "blk-availability", "bluetooth", "bolt", "chrony", "chronyd", "colord"),
        *("containerd", "cron", "cups", "cups-browsed", "dcgm", "debug-shell", "display-manager"),
        *("dmesg", "dnsmasq", "docker", "earlyoom", "emergency", "fail2ban", "finalrd"),
        *("firewalld", "fstrim", "fwupd", "gdm", "gdm3", "geoclue", "getty", "gpu-manager"),
        *("irqbalance", "kdump-tools", "kerneloops", "keyboard-setup", "kmod", "kubelet"),
        *("ldconfig", "lightdm", "logrotate", "lvm2-monitor", "man-db", "mdmonitor"),
        *("ModemManager", "motd-news", "multipathd", "networking", "nftables", "nginx", "ntp"),
        *("nvidia-persistenced", "nvsm", "ollama", "openibd", "opensm", "openvpn", "packagekit"),
        *("pollinate", "polkit", "podman", "power-profiles-daemon", "procps", "rc-local"),
        *("rescue", "rpcbind", "rsync", "rsyslog", "rtkit-daemon", "secureboot-db", "setvtrgb"),
        *("smartd", "smartmontools", "srp_daemon", "ssh", "sshd", "sssd", "sudo"),
        *("switcheroo-control", "sysstat", "tailscaled", "thermald", "udev", "udisks2", "ufw"),
        *("unattended-upgrades", "upower", "usbmuxd", "user", "uuidd", "vgauth", "whoopsie"),
        *("wpa_supplicant", "x11-common", "xrdp"),
    )
)
_UNIT_FAMILIES = (
    *("alsa-", "apport-", "apt-", "cloud-", "console-", "cups-", "dbus", "dgx-", "dpkg-"),
    *("e2scrub", "fwupd-", "getty-", "gnome-", "grub-", "initrd-", "lvm2-", "mlnx", "modprobe"),
    *("netplan", "NetworkManager", "nfs", "nv-", "nvidia-", "packagekit-", "plymouth", "polkit"),
    *("rpc-", "serial-getty", "snap", "ssh-", "sssd-", "sysstat-", "system-", "systemd-", "tpm"),
    *("ua-", "ubuntu-", "udev-", "update-", "user-"),
)
# Accounts of Debian's base-passwd (users and groups, 2024), of Ubuntu's desktop and of DGX OS.
_ACCOUNTS = frozenset(
    (
        *("root", "daemon", "bin", "sys", "sync", "games", "man", "lp", "mail", "news", "uucp"),
        *("proxy", "www-data", "backup", "list", "irc", "gnats", "nobody", "nogroup", "adm"),
        *("sudo", "wheel", "docker", "sshd", "ssh", "messagebus", "syslog", "tss", "uuidd"),
        *("usbmux", "rtkit", "dnsmasq", "dhcpcd", "avahi", "cups-pk-helper", "saned", "colord"),
        *("gdm", "geoclue", "hplip", "kernoops", "lightdm", "ntp", "polkitd", "pulse"),
        *("speech-dispatcher", "whoopsie", "tcpdump", "landscape", "fwupd-refresh", "pollinate"),
        *("nm-openvpn", "nvidia-persistenced", "chrony", "statd", "sssd", "postfix", "mysql"),
        *("postgres", "redis", "nginx", "ollama", "users", "staff", "shadow", "kvm", "render"),
        *("video", "disk", "lxd", OPERATORS_GROUP),
    )
)
_ACCOUNT_FAMILIES = ("_", "systemd-", "avahi-", "gnome-", "dgx-", "nvidia-")


def check_names(settings: Settings, where: Mapping[str, str], login: str | None) -> None:
    """Refuse names that are none, or that belong to the system.

    Args:
        settings: One host's data.
        where: Top-level key → file that gave its value.
        login: The account that the deploy logs in as (`ssh_user`), None where it is not said.

    Raises:
        InventoryError: with file, key, what was found and what is allowed.
    """
    file = where.get("targets", settings.name)
    for name, target in settings.targets.items():
        _check_unit(f"targets.{name}.unit", target.unit, file)
    file = where.get("webui", settings.name)
    _check_unit("webui.unit", settings.webui.unit, file)
    _check_form("webui.volume", settings.webui.volume, _VOLUME, "a Docker volume", file)
    if settings.webui.volume.endswith("-cache"):
        raise InventoryError(
            "webui.volume has the name of an engine's cache",
            where=file,
            found=repr(settings.webui.volume)[:60],
            remedy="Give it another end: UNIT-cache is the volume of the engine UNIT.",
        )
    _check_form("webui.admin_email", settings.webui.admin_email, _EMAIL, "an address", file)
    _check_accounts(settings, where, login)
    file = where.get("packages", settings.name)
    for index, name in enumerate(settings.packages):
        _check_form(f"packages[{index}]", name, _PACKAGE, "a Debian package", file)
    _check_sysctls(settings.sysctls, where.get("sysctls", settings.name))


def _check_form(key: str, value: str, form: re.Pattern[str], what: str, file: str) -> None:
    if not form.fullmatch(value):
        raise InventoryError(
            f"{key} is not the name of {what}",
            where=file,
            found=repr(value)[:60],
            allowed=form.pattern,
        )


def _check_unit(key: str, unit: str, file: str) -> None:
    if not _UNIT.fullmatch(unit):
        raise InventoryError(
            f"{key} is not a unit name",
            where=file,
            found=repr(unit)[:80],
            allowed="letters, digits, '-' and '_', at most 64, without '.service'",
        )
    owner = "the system" if unit in _UNITS or unit.startswith(_UNIT_FAMILIES) else ""
    if unit == "lockstep" or unit.startswith("lockstep-"):
        owner = "Lockstep itself"
    if owner:
        raise InventoryError(
            f"{key} is a unit of {owner}",
            where=file,
            found=f"{unit!r}: the deploy would write {unit}.service",
            remedy="Give it a name of its own, for example the engine's and the model's.",
        )


def _check_accounts(settings: Settings, where: Mapping[str, str], login: str | None) -> None:
    people: dict[str, str] = {}
    for key in ("operators", "docker_users"):
        for index, name in enumerate(getattr(settings, key)):
            file = where.get(key, settings.name)
            _check_form(f"{key}[{index}]", name, _ACCOUNT, "an account", file)
            people[name] = key
    if login is not None:
        people[login] = "ssh_user"
    user, file = settings.service_user, where.get("service_user", settings.name)
    _check_form("service_user", user, _ACCOUNT, "an account", file)
    owner = f"{people[user]} has it too" if user in people else ""
    if user in _ACCOUNTS or user.startswith(_ACCOUNT_FAMILIES):
        owner = "it is an account or a group of the system"
    if owner:
        raise InventoryError(
            "service_user is not an account of its own",
            where=file,
            found=f"{user!r}: {owner}",
            allowed="a name that nobody else has; the deploy makes the account, without a login",
            remedy='Remove the key: the default is "lockstep".',
        )


def _check_sysctls(sysctls: Mapping[str, str], file: str) -> None:
    for name, value in sysctls.items():
        _check_form(f"sysctls[{name!r}]", name, _SYSCTL, "a kernel setting", file)
        if not _SYSCTL_VALUE.fullmatch(value):
            raise InventoryError(
                f"sysctls.{name} is not a value for a kernel setting",
                where=file,
                found=repr(value)[:60],
                allowed="numbers and words of letters, digits and '_.,:+-', one blank between them",
                remedy="A program that the kernel is to run has no place here.",
            )
        most = _SYSCTL_MOST.get(name.replace("/", "."))
        if most is not None and value.isdecimal() and int(value) > most:
            raise InventoryError(
                f"sysctls.{name} takes the memory that the engines need",
                where=file,
                found=value,
                allowed=f"at most {most}",
            )
