"""Files for a host before any engine: memory protection, proxies, kernel settings, logs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath
from urllib.parse import urlsplit

from lockstep.core.digest import digest
from lockstep.core.errors import InventoryError
from lockstep.files.managed_file import (
    DOCKER_CONFIG,
    PROXY_ENVIRONMENT,
    SYSTEMD,
    TOOLS_ENVIRONMENT,
    ManagedFile,
)
from lockstep.files.templating import render_template
from lockstep.inventory.settings import Settings
from lockstep.onhost.docker import container_processes
from lockstep.system import apt_login
from lockstep.system.firewall import KEPT, RULES

_EARLYOOM_UNIT = "earlyoom.service"
#: Services that a Spark cannot do without, where it has them.
SYSTEM_SERVICES = ("ssh.service", "docker.service", "containerd.service", _EARLYOOM_UNIT)
APT_SOURCES = "/etc/apt/sources.list.d/lockstep.list"
APT_PROXY = "/etc/apt/apt.conf.d/60lockstep-proxy"
APT_LOGIN = "/etc/apt/auth.conf.d/60lockstep.conf"
DOCKER_PROXY = f"{SYSTEMD}/docker.service.d/60-lockstep-proxy.conf"
SYSCTL = "/etc/sysctl.d/60-lockstep.conf"
EARLYOOM = "/etc/default/earlyoom"
NEEDRESTART = "/etc/needrestart/conf.d/lockstep.conf"
_OWN = "lockstep-"
# A restart of these ends every container.
_UNDER_CONTAINERS = ("docker.service", "containerd.service")


def host_files(settings: Settings) -> tuple[ManagedFile, ...]:
    """Return files that depend only on inventory data, so that they come first in a deploy.

    Raises:
        InventoryError: a proxy, an index, a sysctl or an apt line that would break its file.
    """
    return (
        *_apt_sources(settings),
        *_proxy_files(settings),
        *_apt_login(settings),
        *_tools_files(settings),
        *_kernel_files(settings),
        ManagedFile("/etc/logrotate.d/lockstep", render_template("system/logrotate.j2")),
        ManagedFile(f"{DOCKER_CONFIG}/config.json", "{}\n", check="json"),
    )


def needrestart_file(files: Iterable[ManagedFile]) -> ManagedFile:
    """Return the file that keeps needrestart from the services in `files` and under containers."""
    names = [PurePosixPath(file.path).name for file in files if file.check == "unit"]
    other_packages = sorted({name for name in names if not name.startswith(_OWN)})
    services = [name for name in (*other_packages, *_UNDER_CONTAINERS) if name.endswith(".service")]
    patterns = [f"^{_OWN}", *(f"^{re.escape(name)}$" for name in services)]
    return ManagedFile(
        NEEDRESTART, render_template("system/needrestart.conf.j2", patterns=patterns)
    )


def absent_files(settings: Settings) -> tuple[str, ...]:
    """Return paths of files that an earlier deploy may have written and this data does not want."""
    wanted_paths = {file.path for file in host_files(settings)}
    possible = (
        *(APT_SOURCES, APT_PROXY, APT_LOGIN),
        *(PROXY_ENVIRONMENT, TOOLS_ENVIRONMENT, DOCKER_PROXY, SYSCTL),
    )
    rules = () if settings.firewall.enabled else (RULES, KEPT)
    return (*(path for path in possible if path not in wanted_paths), *rules)


def system_units(settings: Settings) -> list[str]:
    """Return the system's services that a Spark needs: on, and on again after a boot."""
    without = () if "earlyoom" in settings.packages else (_EARLYOOM_UNIT,)
    return [name for name in SYSTEM_SERVICES if name not in without]


def tools_environment(settings: Settings) -> str | None:
    """Return the file of variables for installing our own tools; None without any."""
    if settings.sources.python_index:
        return TOOLS_ENVIRONMENT
    return PROXY_ENVIRONMENT if settings.proxy.environment() else None


def docker_restart_key(settings: Settings) -> str:
    """Return a key of the environment of Docker's daemon: new with the proxy, "" without one.

    Everybody may read the key, so a password is not in it; a new password shows in the file's time.
    """
    values = settings.proxy.environment()
    public_values = {name: apt_login.without_logins(value) for name, value in values.items()}
    return digest(public_values, 16) if values else ""


def _apt_sources(settings: Settings) -> Iterator[ManagedFile]:
    for line in settings.sources.apt:
        _require_one_line("sources.apt", line, settings)
    if settings.sources.apt:
        lines = [apt_login.without_logins(line) for line in settings.sources.apt]
        yield ManagedFile(APT_SOURCES, render_template("system/apt-sources.j2", lines=lines))


def _apt_login(settings: Settings) -> Iterator[ManagedFile]:
    proxies = [url for url in (settings.proxy.http, settings.proxy.https) if url]
    try:
        lines = apt_login.logins(settings.sources.apt, proxies)
    except apt_login.UnwritableLogin as reason:
        raise InventoryError(
            "sources.apt or proxy holds a login that apt cannot be given",
            where=settings.name,
            found=str(reason),
            remedy="Give the account another password; without one leave the colon out, too.",
        ) from None
    if lines:
        yield ManagedFile(
            APT_LOGIN, render_template("system/apt-login.j2", logins=lines), mode="0600"
        )


def _proxy_files(settings: Settings) -> Iterator[ManagedFile]:
    values = settings.proxy.environment()
    if not values:
        return
    for name, value in values.items():
        _require_one_line(f"proxy ({name})", value, settings)
    urls = {"http": settings.proxy.http, "https": settings.proxy.https}
    direct = [host.strip() for host in settings.proxy.no.split(",")]
    apt = render_template(
        "system/apt-proxy.j2",
        proxies={scheme: apt_login.without_logins(url) for scheme, url in urls.items() if url},
        # apt takes only hosts here, no networks and no suffixes.
        direct=[host for host in direct if host and not host.startswith(".") and "/" not in host],
    )
    yield ManagedFile(APT_PROXY, apt)
    # The URL of a proxy may hold a password.
    environment = render_template("system/environment.j2", values=values)
    yield ManagedFile(PROXY_ENVIRONMENT, environment, mode="0600")
    started_with = {"path": PROXY_ENVIRONMENT, "restart_key": docker_restart_key(settings)}
    yield ManagedFile(DOCKER_PROXY, render_template("system/docker-proxy.conf.j2", **started_with))


def _tools_files(settings: Settings) -> Iterator[ManagedFile]:
    """Yield the file of variables for pip and uv: an index's URL may hold a password."""
    index = settings.sources.python_index
    if not index:
        return
    _require_one_line("sources.python_index", index, settings)
    values = {"PIP_INDEX_URL": index, "UV_DEFAULT_INDEX": index}
    if index.startswith("http://"):
        parts = urlsplit(index)
        server = parts.netloc.rpartition("@")[2]
        values |= {"PIP_TRUSTED_HOST": parts.hostname or "", "UV_INSECURE_HOST": server}
    text = render_template(
        "system/environment.j2", values={**settings.proxy.environment(), **values}
    )
    yield ManagedFile(TOOLS_ENVIRONMENT, text, mode="0600")


def _kernel_files(settings: Settings) -> Iterator[ManagedFile]:
    """Yield protection from a lack of memory, and kernel settings."""
    yield ManagedFile(
        f"{SYSTEMD}/ssh.service.d/60-lockstep.conf", render_template("system/ssh.conf.j2")
    )
    for name, setting, why in (
        # Others protect 4 GiB (facts of the field, 2026-11). Page cache of sessions, as of a copied
        # model, is protected too, and MemAvailable counts it as free: the gate would promise an
        # engine memory that the kernel does not take back.
        (
            "user",
            "MemoryMin=512M",
            "The desktop and the operators' sessions keep this much whatever an engine takes.",
        ),
        (
            "system",
            "MemoryMin=64M",
            "What ssh.service is promised must be promised to its slice too.",
        ),
        # DGX OS has 16 GiB of swap.
        (
            container_processes.ALL,
            "MemorySwapMax=0",
            "Engines in containers are not swapped out. Those in a venv say so in their units.",
        ),
    ):
        text = render_template("system/slice.conf.j2", why=why, setting=setting)
        yield ManagedFile(f"{SYSTEMD}/{name}.slice.d/60-lockstep.conf", text)
    if "earlyoom" in settings.packages:
        yield ManagedFile(EARLYOOM, render_template("system/earlyoom.j2"))
    for name, value in settings.sysctls.items():
        _require_one_line(f"sysctls.{name}", name, settings)
        _require_one_line(f"sysctls.{name}", value, settings)
    if settings.sysctls:
        yield ManagedFile(SYSCTL, render_template("system/sysctl.j2", values=settings.sysctls))


def _require_one_line(key: str, value: str, settings: Settings) -> None:
    if any(ord(character) < 32 for character in value) or '"' in value:
        raise InventoryError(
            f"{key} must be one line without quotes",
            where=settings.name,
            # A proxy's URL may hold a password.
            found="a control character or a quote",
        )
