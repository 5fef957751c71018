"""Files: those that the deploy owns, those that it left behind, and settings of the system."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator

from lockstep.snapshot.collected import Collected, below, listed, owner, text

# A file of ours says so in its first bytes.
_HEAD = 400
# Above this, the size stands for the content, bytes: no settings are that long.
_LONG = 4 * 2**20
# What settings of a system are made of. What differs by nature is not here: names, addresses,
# keys and identities of hosts.
_SETTINGS = (
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
_SYSTEMD = "/etc/systemd/system/"
_ID = re.compile(rb"(UUID|PARTUUID|LABEL)=\S+")


def managed(found: Collected) -> None:
    """Content, mode and owner of the deploy's files and folders."""
    for path in found.asked["files"]:
        if os.path.lexists(path):
            found.put("file", path, _content(found, path))
            found.put("file mode", path, owner(os.lstat(path)))
    for path in found.asked["folders"]:
        # A folder may be a link to another disk: where it leads is what counts.
        if os.path.isdir(path):
            found.put("folder", path, owner(os.stat(path)))


def leftovers(found: Collected) -> None:
    """Files of an earlier deploy, and files in the deploy's own folders that are not its own."""
    known = set(found.asked["files"])
    for path in found.asked["absent"]:
        if os.path.lexists(path):
            found.put("leftover", path, "present")
    mark = found.asked["mark"].encode()
    for folder in found.asked["marked"]:
        for path in below(folder):
            if path not in known and not os.path.islink(path) and mark in _head(path):
                found.put("leftover", path, "present")
            elif path not in known and folder + "/" != _SYSTEMD:
                found.put("script", path, _content(found, path))
    allowed = known | {*found.asked["secrets"], *found.asked["made"], found.asked["token"]}
    # A folder of the deploy's own may be empty.
    allowed |= {f"{folder}/" for folder in found.asked["folders"]}
    inside = tuple(found.asked["venvs"].values())
    for folder in found.asked["own"]:
        for path in _strangers(folder, allowed, inside):
            found.put("foreign file", path, "present")


def _strangers(folder: str, allowed: set[str], inside: tuple[str, ...]) -> Iterator[str]:
    """What is not the deploy's own in a folder of its own; a whole foreign folder once."""
    for path in listed(folder):
        if path in allowed or path.startswith(inside) or path.endswith("/__pycache__"):
            continue
        within = (*allowed, *inside)
        if os.path.isdir(path) and any(each.startswith(f"{path}/") for each in within):
            yield from _strangers(path, allowed, inside)
        else:
            yield path


def settings(found: Collected) -> None:
    """Everything else that sets the system up, to be compared between hosts."""
    for path in found.asked["links"]:
        if os.path.islink(path):
            found.put("link", path, os.readlink(path))
    known = {path for key in ("files", "absent", "links") for path in found.asked[key]}
    units = [*found.asked["units"], *found.asked["system_units"]]
    mark = found.asked["mark"].encode()
    # Drop-ins of these, and links there, are other readers'.
    theirs = tuple(f"{_SYSTEMD}{name}.d/" for name in units)
    for place in _SETTINGS:
        for path in below(place):
            link = path.startswith(_SYSTEMD) and os.path.islink(path)
            if path in known or link or path.startswith(theirs):
                continue
            if mark not in _head(path):
                found.put("setting", path, _content(found, path))
                found.put("setting mode", path, owner(os.lstat(path)))


def secrets(found: Collected) -> None:
    """Secrets: that they are there and for whom; of what they are, at most a keyed hash."""
    for path in found.asked["secrets"]:
        if not os.path.exists(path):
            continue
        found.put("secret", path, owner(os.stat(path)))
        if path in found.asked["shared"]:
            found.put("cluster key", path, found.seal_file(path))
        # A line of another file is a key itself, and no part of that is a name.
        lines = (text(path) or "").splitlines() if path in found.asked["entries"] else []
        for line in lines:
            name, mark, value = line.partition("=")
            if mark:
                found.put("secret entry", f"{path} {name}", "set" if value.strip() else "empty")
    token = found.asked["token"]
    if os.path.exists(token):
        found.put("hub token mode", token, owner(os.stat(token)))
        found.put("hub token", token, found.seal_file(token))


def _head(path: str) -> bytes:
    try:
        with open(path, "rb") as content:
            return content.read(_HEAD)
    except OSError:
        return b""


def _content(found: Collected, path: str) -> str:
    """The keyed hash of a file, or what else it is."""
    entry = os.lstat(path)
    if stat.S_ISLNK(entry.st_mode):
        return f"link to {os.readlink(path)}"
    if not stat.S_ISREG(entry.st_mode):
        return "no regular file"
    if entry.st_size > _LONG:
        return f"{entry.st_size} bytes"
    with open(path, "rb") as content:
        whole = content.read()
    if path == "/etc/fstab":
        whole = _ID.sub(rb"\1=(own)", whole)
    return found.seal(whole)
