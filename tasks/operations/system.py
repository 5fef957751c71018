"""Packages, accounts, kernel settings and our own tools: one fact for all of them."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence

from pyinfra import host
from pyinfra.api import StringCommand, operation

from lockstep.accounts import Account, account_commands
from tasks import remote
from tasks.facts.host import System

TOOLS = "/usr/local/lib/lockstep/tools"


@operation()
def packages(
    names: Sequence[str], proxy: str | None = None
) -> Generator[StringCommand, None, None]:
    """Install what is missing; the package index is read again only then.

    pyinfra's `apt.packages(update=True)` would report a change whenever the index is old.

    Args:
        names: Package names.
        proxy: HTTP proxy for this call; later ones find it in apt's configuration.
    """
    found = host.get_fact(System, asked={"packages": list(names)})
    missing = [name for name in names if found and name not in found["packages"]]
    if not missing:
        host.noop(f"{len(names)} packages are installed")
        return
    apt = ["apt-get", "-q", "-o", "DPkg::Lock::Timeout=300"]
    if proxy:
        apt += ["-o", f"Acquire::http::Proxy={proxy}"]
    # What a cut-off run left half configured, first.
    yield remote.words(["dpkg", "--configure", "-a"])
    yield remote.job("apt", [*apt, "update"])
    noninteractive = ["env", "DEBIAN_FRONTEND=noninteractive", *apt]
    yield remote.job("apt", [*noninteractive, "install", "-y", "--no-install-recommends", *missing])


@operation()
def accounts(
    groups: Sequence[str], users: Sequence[Account]
) -> Generator[StringCommand, None, None]:
    """Bring groups, system accounts and memberships about; memberships of others stay.

    Args:
        groups: Groups that must exist.
        users: Accounts with the groups they must be in.
    """
    asked = {"accounts": [user.name for user in users], "groups": list(groups)}
    found = host.get_fact(System, asked=asked)
    if not found:
        return
    commands = account_commands(groups, users, found)
    if not commands:
        host.noop("accounts and groups are as they should be")
    for argv in commands:
        yield remote.words(argv)


@operation()
def sysctls(values: Mapping[str, str], path: str) -> Generator[StringCommand, None, None]:
    """Apply kernel settings of a file now, where the kernel holds other values.

    Args:
        values: Key → value.
        path: The file under /etc/sysctl.d that holds them for the next boot.
    """
    found = host.get_fact(System, asked={"sysctls": list(values)})
    have = found["sysctls"] if found else {}
    if all(have.get(key) == value for key, value in values.items()):
        host.noop("kernel settings are in force")
        return
    yield remote.words(["sysctl", "-q", "-p", path])


@operation()
def tools(
    requirements: Mapping[str, str], index: str | None, proxy: Mapping[str, str]
) -> Generator[StringCommand, None, None]:
    """Our own tools (uv, huggingface_hub) in a venv of the system's Python, at exact versions.

    Args:
        requirements: Distribution → "name==version".
        index: Package index, or None for pip's own configuration.
        proxy: Proxy variables.
    """
    found = host.get_fact(System, asked={"tools": TOOLS, "links": ["/usr/local/bin/uv"]})
    if not found:
        return
    wanted = {name: text.partition("==")[2] for name, text in requirements.items()}
    linked = found["links"]["/usr/local/bin/uv"] == f"{TOOLS}/bin/uv"
    if all(found["tools"].get(name) == version for name, version in wanted.items()) and linked:
        host.noop("uv and the hub client are installed")
        return
    environment = ["env", *(f"{key}={value}" for key, value in proxy.items())]
    yield remote.words(["python3", "-m", "venv", TOOLS])
    source = []
    if index:
        source = ["--index-url", index]
        if index.startswith("http://"):
            source += ["--trusted-host", index.split("/")[2].rsplit(":", 1)[0]]
    pip = [f"{TOOLS}/bin/python", "-m", "pip", "install", "--disable-pip-version-check", *source]
    yield remote.job("tools", [*environment, *pip, *requirements.values()])
    yield remote.words(["ln", "-sfn", f"{TOOLS}/bin/uv", "/usr/local/bin/uv"])
