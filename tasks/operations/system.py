"""Packages, accounts, kernel settings and our own tools."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyinfra import host
from pyinfra.api import operation

from lockstep.files import sent
from lockstep.files.managed_file import TOOLS_VENV, UV_VENV, command
from lockstep.onhost.records.packages import DEAD_SOURCE, INSTALL
from lockstep.system.accounts import Account, account_commands
from lockstep.system.tools import Environment, same_version
from lockstep.tasks import remote
from lockstep.tasks.facts import host as facts
from lockstep.tasks.remote import Commands

UV = "/usr/local/bin/uv"
# The reader `environments.tools` takes a venv with this file in it for an empty one.
UNFINISHED = "unfinished"
_TOOLS = {"environments.tools", "files.links"}


@operation()
def noted() -> Commands:
    """Note what is here of what this deploy may touch, before it does: for `lockstep remove`."""
    unnoted = facts.ask("records.unnoted")
    if unnoted:
        yield remote.words(sent.COMMAND, _stdin=[sent.document("records.found", unnoted)])
    elif unnoted is not None:
        host.noop("what was here before is on record")


@operation()
def packages(
    names: Sequence[str],
    masked: Mapping[str, str] | None = None,
    accounts: Mapping[str, str] | None = None,
) -> Commands:
    """Install the archive's candidate of what is missing; its index is read again only then.

    Where packages of others are half installed, nothing is: apt would go on with them.

    A package that is there stays at its version. Each command waits for its turn: other services
    of a Spark use apt too.

    Args:
        names: Debian packages.
        masked: Package → unit of its own that is not to run. It is masked before the package comes,
            which would start it, and stays so; of a package that is there it stays as it is.
        accounts: Package → the account that it makes.
    """
    found = facts.ask("packages")
    missing = [name for name in names if found is not None and name not in found]
    if not missing:
        host.noop(f"{len(names)} packages are installed")
        return
    units = [unit for name, unit in (masked or {}).items() if name in missing]
    if units:
        yield remote.words(["systemctl", "mask", "--quiet", *units])
    made = accounts or {}
    noted = [f"{name}={made[name]}" if name in made else name for name in missing]
    yield remote.words(command("packages", "note", *noted))
    turn = command("apt-turn", "--")
    prepare = [*turn, *command("packages", "prepare", *missing)]
    yield remote.job("apt", prepare, repeated=DEAD_SOURCE)
    # Settings that we wrote before the package came (earlyoom's) are kept without a question.
    keep = [f"-oDpkg::Options::={option}" for option in ("--force-confdef", "--force-confold")]
    yield remote.job("apt", [*turn, "apt-get", "-q", *keep, "-y", *INSTALL, *missing])
    yield remote.words(command("packages", "settle"))


@operation()
def purged(units: Mapping[str, str]) -> Commands:
    """Purge packages that an earlier deploy brought and nothing asks for any more.

    Each is named with the unit of its own that was masked.
    """
    noted = facts.ask("packages.noted") or []
    leaving = [name for name in units if name in noted]
    if not leaving:
        host.noop("no package of an earlier deploy is left over")
        return
    host.log(f"{', '.join(leaving)}: nothing asks for them any more")
    purge = command("packages", "purge", *leaving)
    yield remote.job("apt", [*command("apt-turn", "--"), *purge])
    yield remote.words(["systemctl", "unmask", "--quiet", *(units[name] for name in leaving)])


@operation()
def accounts(groups: Sequence[str], users: Sequence[Account]) -> Commands:
    """Bring groups, system accounts and memberships about; memberships of others stay."""
    found = facts.ask("accounts")
    if not found:
        return
    for user in users:
        have = found["accounts"][user.name]
        theirs = have and user.home and have["home"] != user.home
        if theirs and f"account {user.name}" not in remote.adopted():
            yield from remote.refuse(
                f"the account {user.name} has the home {have['home']} and was not made by "
                "Lockstep. Remedy: give it another name, or set service_user to one; nothing was "
                "changed."
            )
            return
    commands = account_commands(groups, users, found)
    if not commands:
        host.noop("accounts and groups are as they should be")
    for argv in commands:
        yield remote.words(argv)


@operation()
def sysctls(values: Mapping[str, str], path: str) -> Commands:
    """Apply kernel settings of a file now, where the kernel holds other values.

    `path` is under /etc/sysctl.d and holds them for the next boot.
    """
    have = facts.ask("machine.sysctls") or {}
    if all(have.get(key) == value for key, value in values.items()):
        host.noop("kernel settings are in force")
        return
    yield remote.words(["sysctl", "-q", "-p", path])


@operation()
def tools(environments: Mapping[str, Environment], python: str, variables: str | None) -> Commands:
    """Our own tools, every wheel by its hash: uv through the system's pip, the others through uv.

    `variables` is a file with the package index and the proxy, which may hold passwords; None for
    the clients' own configuration.
    """
    uv, others = environments["uv"], environments["tools"]
    found = facts.ask_together(_TOOLS)
    if not set(found) >= _TOOLS:
        return
    installed, leads = found["environments.tools"], found["files.links"]
    options = ["--setenv-file", variables] if variables else []
    changed = False
    if _lacks(installed[uv.folder], uv):
        yield remote.words(["python3", "-m", "venv", uv.folder])
        pip = [f"{uv.folder}/bin/python", "-m", "pip", "install", "--disable-pip-version-check"]
        pip += ["--require-hashes", "--no-deps", "--requirement", uv.requirements]
        yield remote.job("tools", pip, *options)
        changed = True
    if _lacks(installed[others.folder], others):
        program = ["env", "UV_PYTHON_DOWNLOADS=never", f"{uv.folder}/bin/uv"]
        yield remote.job("tools", [*program, "venv", "--clear", "--python", python, others.folder])
        # An install that is cut off may have the client and lack what the client needs.
        # uv makes its lock for everybody (0.13.8), and takes one that is there as it is.
        marks = [f"{others.folder}/{UNFINISHED}", f"{others.folder}/.lock"]
        yield remote.words(["sh", "-c", 'umask 077 && touch "$@"', "touch", *marks])
        # No program of ours writes bytecode, and the gateway is to be back within a second.
        install = [*program, "pip", "install", "--compile-bytecode"]
        install += ["--python", f"{others.folder}/bin/python"]
        install += ["--require-hashes", "--no-deps", "--requirement", others.requirements]
        yield remote.job("tools", install, *options)
        yield remote.words(["rm", f"{others.folder}/{UNFINISHED}"])
        changed = True
    links = {UV_VENV: uv.folder, TOOLS_VENV: others.folder, UV: f"{UV_VENV}/bin/uv"}
    moved = {link: to for link, to in links.items() if leads[link] != to}
    if moved:
        yield remote.write({"links": moved})
    if not (changed or moved):
        host.noop("uv, pip and what our programs import are installed")


def _lacks(installed: Mapping[str, str], environment: Environment) -> bool:
    return not all(
        same_version(installed.get(name), version) for name, version in environment.versions.items()
    )
