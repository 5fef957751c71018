"""The hosts of an inventory: choosing them, a command on one or all at once, and a deploy."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from lockstep.core import product
from lockstep.core.errors import InventoryError
from lockstep.files import remote_exec
from lockstep.fleet.login import NO_CONNECTION, SUDO, Login, address, login, sudo_refused
from lockstep.inventory import inventory_file as inventories
from lockstep.inventory.host import HostPlan
from lockstep.onhost.core import program_command_lines

#: Variables that tell a deploy what pyinfra's command line has no option for: seconds to wait for
#: another deploy of the same host; its kind for those who meet it ("diff --fix"); whether it leaves
#: a hot model alone.
WAIT, WHAT, KEEP_HOT = "LOCKSTEP_WAIT", "LOCKSTEP_WHAT", "LOCKSTEP_KEEP_HOT"

#: Text for a host that no deploy has come to, or that Lockstep was removed from.
NOT_DEPLOYED = "not deployed yet → lockstep deploy"
# Messages of Python where the folder of our programs is missing, or has none of them.
_NO_PROGRAM = re.compile(
    rf"can't (open file|find '__main__' module in) '{re.escape(program_command_lines.PROGRAMS)}'"
)

# Exit code of a shell where there is no such program.
_ABSENT = 127

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True)
class Host:
    """One host of an inventory.

    Attributes:
        plan: Its data, checked.
        data: The same, merged and not checked, with pyinfra's own keys.
    """

    plan: HostPlan
    data: Mapping[str, Any] = field(repr=False)

    @property
    def name(self) -> str:
        """The host's name in the inventory."""
        return self.plan.name

    @property
    def login(self) -> Login:
        """The login that reaches the host. InventoryError unless by ssh or `@local`."""
        return login(self.name, self.data)

    @property
    def address(self) -> str:
        """The address that other machines have for the host."""
        return address(self.name, self.data)

    @property
    def with_sudo(self) -> bool:
        """True if a deploy uses sudo there."""
        return bool(self.data.get("_sudo"))


@dataclass(frozen=True)
class HostAnswer:
    """The end of a command on a host.

    Attributes:
        code: Its exit code.
        out: Its standard output.
        err: Its standard error.
        fault: Why it did not run there or did not end, with the remedy; "" where it did.
    """

    code: int = NO_CONNECTION
    out: str = ""
    err: str = ""
    fault: str = ""

    @property
    def error_text(self) -> str:
        """The end of the standard error as one line; never ""."""
        return " ".join(self.err.split())[-300:] or f"it ended with {self.code}"

    def json(self) -> tuple[Any, str]:
        """Return the JSON document that the command printed and "", or None and the reason."""
        try:
            return json.loads(self.out), ""
        except ValueError:
            return None, self.fault or self.error_text


def choose(
    inventory: Path, limit: Sequence[str] = (), *, remedy: str = ""
) -> tuple[list[Host], list[Host]]:
    """Return all hosts of an inventory, and those that ``limit`` names, in the inventory's order.

    Args:
        limit: Names of hosts; () for all.
        remedy: What else to do where a name is unknown.

    Raises:
        LockstepError: the inventory is wrong, or lacks a host of ``limit``.
    """
    plans, data = inventories.load_merged(inventory)
    every = [Host(plan, data[plan.name]) for plan in plans]
    names = [host.name for host in every]
    if unknown := [name for name in limit if name not in names]:
        raise InventoryError(
            "no such host",
            where=str(inventory),
            found=", ".join(unknown),
            allowed=", ".join(names),
            remedy=remedy,
        )
    return every, [host for host in every if not limit or host.name in limit]


def members(inventory: Path) -> list[Host]:
    """Return every host of an inventory that is a member of a cluster.

    Raises:
        LockstepError: the inventory is wrong, or has no such host.
    """
    every, _ = choose(inventory)
    member_hosts = [host for host in every if host.plan.groups]
    if not member_hosts:
        raise InventoryError(
            "no model is of a cluster",
            where=str(inventory),
            remedy="Set `clusters`, and `cluster` of a model.",
        )
    return member_hosts


def at_once(work: Callable[[T], R], things: Sequence[T]) -> list[R]:
    """Return the results of ``work`` for the things, run all at once, in their order."""
    with ThreadPoolExecutor(max(1, len(things))) as pool:
        return list(pool.map(work, things))


def ask(
    where: Login,
    argv: Sequence[str],
    *,
    text: str = "",
    limit_s: float | None = None,
    sudo_remedy: str = SUDO,
) -> HostAnswer:
    """Run a command on a host to its end.

    Args:
        argv: The command; no secret may be in it.
        text: Its standard input.
        limit_s: Seconds after which the command is given up; None: never.
        sudo_remedy: What to do where sudo refuses the account.
    """
    words = where.command(argv)
    try:
        result = subprocess.run(
            words,
            input=text,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=limit_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return HostAnswer(fault=f"no answer within {limit_s:.0f} s")
    except OSError as fault:
        return HostAnswer(fault=not_run(where, words[0], fault))
    answer = answer_of(where, result.returncode, result.stdout, result.stderr, sudo_remedy)
    if is_absent(argv[0], answer.code, answer.err):
        return replace(answer, fault=NOT_DEPLOYED)
    return answer


def is_absent(path: str, code: int, error_text: str) -> bool:
    """Tell whether a command on a host ended because our program is absent there."""
    return code == _ABSENT and path.startswith("/") and path in error_text


def not_run(where: Login, program: str, fault: OSError) -> str:
    """Return why a program did not start on this machine: ssh, or, as `@local`, one of ours."""
    if not where.words and program.startswith("/") and isinstance(fault, FileNotFoundError):
        return NOT_DEPLOYED
    return f"{program} cannot be run: {fault.strerror}"


def read(
    where: Login, name: str, question: object, *, sudo: bool, limit_s: float
) -> tuple[Any, str]:
    """Return the answer of a reader of `lockstep.onhost.facts` and "", or None and the reason."""
    argv = [*(("sudo", "-n") if sudo else ()), *remote_exec.COMMAND]
    answer_data, fault = ask(
        where, argv, text=remote_exec.readers_input({name: question}), limit_s=limit_s
    ).json()
    if fault or name in answer_data["faults"]:
        return None, fault or answer_data["faults"][name]
    return answer_data["answers"][name], ""


def answer_of(where: Login, code: int, out: str, err: str, sudo_remedy: str = SUDO) -> HostAnswer:
    """Return the end of a command as a `HostAnswer`."""
    answer = HostAnswer(code, out, err)
    if where.words and code == NO_CONNECTION:
        return replace(answer, fault=f"no connection: {answer.error_text}")
    if _NO_PROGRAM.search(err):
        return replace(answer, fault=NOT_DEPLOYED)
    if sudo_refused(code, err):
        return replace(answer, fault=f"{answer.error_text}. {sudo_remedy}")
    return answer


def deploy_command(
    inventory: Path, limit: Sequence[str] = (), options: Sequence[str] = ("-y",)
) -> list[str]:
    """Return the argument list of a deploy, to be run in the owner's folder.

    The product's `deploy.py` and `config.py` are used where that folder has none.
    """
    pyinfra = Path(sys.executable).with_name("pyinfra")
    folder = inventories.folder_of(inventory)
    deploy, config = (
        name if (folder / name).exists() else str(product.OWNER / name)
        for name in ("deploy.py", "config.py")
    )
    limit_words = [word for name in limit for word in ("--limit", name)]
    words = [*options, *limit_words, "--config", config]
    return [str(pyinfra), *words, str(inventory.absolute()), deploy]
