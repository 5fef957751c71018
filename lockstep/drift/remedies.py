"""Commands that repair a difference on a host: argument lists from (item, expected, found).

`expected` and `found` are None for something that is not there. () where no one line does it.
"""

from __future__ import annotations

Words = tuple[str, ...]
_SUDO = ("sudo",)
_SYSTEMCTL = (*_SUDO, "systemctl")


def nothing(item: str, expected: str | None, found: str | None) -> Words:
    """No single command; the difference itself says what to look at."""
    return ()


def remove(item: str, expected: str | None, found: str | None) -> Words:
    """Take a file away."""
    return (*_SUDO, "rm", "-r", item)


def remove_found(item: str, expected: str | None, found: str | None) -> Words:
    """Take the file away that stands in the place of another one."""
    return (*_SUDO, "rm", found) if found else ()


def remove_drop_in(item: str, expected: str | None, found: str | None) -> Words:
    """Take a drop-in away and let systemd read its units again."""
    unit, _, path = item.partition(" ")
    if path.startswith(("/etc/systemd/system.control/", "/run/systemd/system.control/")):
        return (*_SYSTEMCTL, "revert", unit)
    return (*_SUDO, "sh", "-c", 'rm "$0" && systemctl daemon-reload', path)


def unmask(item: str, expected: str | None, found: str | None) -> Words:
    """Let a masked unit start again; a missing one is the deploy's to write."""
    return (*_SYSTEMCTL, "unmask", item) if found == "masked" else ()


def start(item: str, expected: str | None, found: str | None) -> Words:
    """Start what must run."""
    return (*_SYSTEMCTL, "start", item)


def reload(item: str, expected: str | None, found: str | None) -> Words:
    """Let systemd read its units again."""
    return (*_SYSTEMCTL, "daemon-reload")


def restart(item: str, expected: str | None, found: str | None) -> Words:
    """Start a unit again, so that it reads its files."""
    return (*_SYSTEMCTL, "restart", item.partition(" ")[0])


def restart_docker(item: str, expected: str | None, found: str | None) -> Words:
    """Daemon settings are in a file; Docker reads it when it starts."""
    return (*_SYSTEMCTL, "restart", "docker") if item != "version" else ()


def look(item: str, expected: str | None, found: str | None) -> Words:
    """Read why a unit failed."""
    return (*_SUDO, "journalctl", "-b", "-n", "50", "-u", item)


def remake_secret(item: str, expected: str | None, found: str | None) -> Words:
    """Take the file of secrets away; the next deploy makes new ones."""
    return (*_SUDO, "rm", item.partition(" ")[0])


def token_mode(item: str, expected: str | None, found: str | None) -> Words:
    """Let the service account read the token, and nobody else."""
    mode, _, owner = (expected or "").partition(" ")
    return (*_SUDO, "sh", "-c", 'chown "$1" "$0" && chmod "$2" "$0"', item, owner, mode)


def checkout(item: str, expected: str | None, found: str | None) -> Words:
    """Put aside what was changed in a checkout, new files too, as its owner."""
    git = 'exec sudo -u "$(stat -c %U "$0")" git -C "$0" "$@"'
    author = ("-c", "user.name=lockstep", "-c", "user.email=lockstep@localhost")
    return (*_SUDO, "sh", "-c", git, item, *author, "stash", "--include-untracked")


def rebuild(item: str, expected: str | None, found: str | None) -> Words:
    """Take the environment away that holds the file; the next deploy builds it again.

    uv's cache goes too: its files are the same files, under another name.
    """
    venv = item.partition("/lib/python")[0]
    engine = venv.removesuffix("/venv")
    cache = "/root/.cache/uv" if engine == venv else f"{engine.rpartition('/')[0]}/uv-cache"
    return (*_SUDO, "rm", "-rf", venv, cache)


def weights(item: str, expected: str | None, found: str | None) -> Words:
    """Forget that the files were verified; the next deploy reads and repairs them.

    What was verified is noted beside the hub's cache, in which the file is.
    """
    cache, _, path = item.partition("/models--")
    stamps = f"{cache.rpartition('/')[0]}/lockstep-verified"
    return (*_SUDO, "find", stamps, "-name", f"{path.partition('/')[0]}@*", "-delete")


def weights_owner(item: str, expected: str | None, found: str | None) -> Words:
    """Give a repository of the cache to whom the cache belongs."""
    owner = f"--reference={item.rpartition('/')[0]}"
    return (*_SUDO, "chown", "--recursive", "--no-dereference", owner, item)


def image(item: str, expected: str | None, found: str | None) -> Words:
    """Take an image away that the others do not have, or fetch the one that they have."""
    return (*_SUDO, "docker", "pull" if found is None else "rmi", item)


def no_restart(item: str, expected: str | None, found: str | None) -> Words:
    """systemd alone starts containers of ours."""
    return (*_SUDO, "docker", "update", "--restart=no", item)


def container(item: str, expected: str | None, found: str | None) -> Words:
    """Take a container away that the others do not have."""
    return (*_SUDO, "docker", "rm", "-f", item) if expected is None else ()


def kernel(item: str, expected: str | None, found: str | None) -> Words:
    """Boot what is installed."""
    return (*_SYSTEMCTL, "reboot") if item in ("release", "build", "reboot pending") else ()


def cdi(item: str, expected: str | None, found: str | None) -> Words:
    """Let NVIDIA's toolkit write the file for the driver that is there."""
    if not item.startswith("/etc/"):
        return (*_SYSTEMCTL, "restart", "nvidia-cdi-refresh")
    return (*_SUDO, "nvidia-ctk", "cdi", "generate", f"--output={item}")


def apt(item: str, expected: str | None, found: str | None) -> Words:
    """Install the version that the others have, or remove what they do not have."""
    if expected is None:
        return (*_SUDO, "apt-get", "remove", item)
    exact = item if expected == "present" else f"{item}={expected}"
    return (*_SUDO, "apt-get", "install", "--allow-downgrades", exact)


def dpkg(item: str, expected: str | None, found: str | None) -> Words:
    """Finish what was cut off."""
    return (*_SUDO, "dpkg", "--configure", "-a")


def hold(item: str, expected: str | None, found: str | None) -> Words:
    """Hold a package, or hold it no longer."""
    return (*_SUDO, "apt-mark", "unhold" if expected is None else "hold", item)


def alternative(item: str, expected: str | None, found: str | None) -> Words:
    """Let a common name stand for the same program."""
    return (*_SUDO, "update-alternatives", "--set", item, expected) if expected else ()


def sysctl(item: str, expected: str | None, found: str | None) -> Words:
    """Set a kernel setting until the next boot."""
    return (*_SUDO, "sysctl", "-w", f"{item}={expected}") if expected else ()


def memory(item: str, expected: str | None, found: str | None) -> Words:
    """Turn a swap device off or on."""
    if not item.startswith("swap "):
        return ()
    return (*_SUDO, "swapoff" if expected is None else "swapon", item.removeprefix("swap "))


def setting(item: str, expected: str | None, found: str | None) -> Words:
    """A file that the others do not have is looked at first."""
    return (*_SUDO, "rm", item) if expected is None else ()


def mode(item: str, expected: str | None, found: str | None) -> Words:
    """Mode and owner as elsewhere."""
    if not (expected and found):
        return ()
    octal, _, owner = expected.partition(" ")
    if found.startswith(octal):
        return (*_SUDO, "chown", owner, item)
    return (*_SUDO, "chmod", octal, item)


def service(item: str, expected: str | None, found: str | None) -> Words:
    """Let a unit start at boot, or not, or not at all, as elsewhere."""
    name, _, _ = item.partition(" for ")
    if found == "masked":
        return (*_SYSTEMCTL, "unmask", name)
    verbs = {"masked": "mask", "on": "enable", None: "disable"}
    return (*_SYSTEMCTL, verbs[expected], name) if expected in verbs else ()


def account(item: str, expected: str | None, found: str | None) -> Words:
    """Remove an account that the others do not have."""
    return (*_SUDO, "userdel", item) if expected is None else ()


def home(item: str, expected: str | None, found: str | None) -> Words:
    """Another home folder."""
    return (*_SUDO, "usermod", "--home", expected, item) if expected and found else ()


def shell(item: str, expected: str | None, found: str | None) -> Words:
    """Another login shell."""
    return (*_SUDO, "usermod", "--shell", expected, item) if expected and found else ()


def group(item: str, expected: str | None, found: str | None) -> Words:
    """Remove a group that the others do not have."""
    return (*_SUDO, "groupdel", item) if expected is None else ()


def member(item: str, expected: str | None, found: str | None) -> Words:
    """Put an account into a group, or take it out."""
    name, _, of = item.partition(" in ")
    return (*_SUDO, "gpasswd", "--delete" if expected is None else "--add", name, of)


def password(item: str, expected: str | None, found: str | None) -> Words:
    """Lock an account that is locked elsewhere, or ask for its password."""
    return (*_SUDO, "passwd", *(["--lock"] if expected == "locked" else []), item)


def login_key(item: str, expected: str | None, found: str | None) -> Words:
    """Look at the keys with which one may log in."""
    return (*_SUDO, "-u", item.partition(":")[0], "sh", "-c", 'cat "$HOME"/.ssh/authorized_keys')


def socket(item: str, expected: str | None, found: str | None) -> Words:
    """See who listens there."""
    protocol, address, _ = item.split(" ", 2)
    port = address.rpartition(":")[2]
    if expected is not None or port == "*":
        return ()
    return (*_SUDO, "ss", "-lnp", f"--{protocol}", f"sport = :{port}")


def port(item: str, expected: str | None, found: str | None) -> Words:
    """See who opened a port of ours to others."""
    return (*_SUDO, "ss", "-ltnp", f"sport = :{item.rpartition(':')[2]}")


def network(item: str, expected: str | None, found: str | None) -> Words:
    """The size of packets as elsewhere, until the next boot."""
    name, _, key = item.partition(" ")
    if key != "mtu" or expected is None or found is None:
        return ()
    return (*_SUDO, "ip", "link", "set", name, "mtu", expected)


def clock(item: str, expected: str | None, found: str | None) -> Words:
    """The zone as elsewhere, or a time server."""
    if item == "zone" and expected:
        return (*_SUDO, "timedatectl", "set-timezone", expected)
    return (*_SUDO, "timedatectl", "set-ntp", "true")
