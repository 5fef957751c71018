"""Hosts of an inventory: which ones, a command on each over ssh and all at once, and a deploy."""

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
from lockstep.files import sent
from lockstep.fleet.login import NO_CONNECTION, SUDO, Login, address, login, sudo_refused
from lockstep.inventory import inventory_file as inventories
from lockstep.inventory.host import HostPlan
from lockstep.onhost.core import program

#: Variables that tell a deploy what pyinfra's command line has no option for: how long it waits for
#: another deploy to a host of its own, seconds, what it is for those who meet it ("rollback"), that
#: it interrupts no hot model, and another lock file to go by than the inventory's.
WAIT, WHAT, KEEP_HOT = "LOCKSTEP_WAIT", "LOCKSTEP_WHAT", "LOCKSTEP_KEEP_HOT"
LOCK = "LOCKSTEP_LOCK"

#: What is said of a host that no deploy has come to, or that Lockstep was removed from.
NOT_DEPLOYED = "not deployed yet → lockstep deploy"
# Python's words where the folder of our programs is missing, or has none of them.
_NO_PROGRAM = re.compile(
    rf"can't (open file|find '__main__' module in) '{re.escape(program.PROGRAMS)}'"
)

# A shell's exit code where there is no such program.
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
        """As the inventory has it."""
        return self.plan.name

    @property
    def login(self) -> Login:
        """How it is reached. InventoryError for a connector that is neither ssh nor `@local`."""
        return login(self.name, self.data)

    @property
    def address(self) -> str:
        """What other machines call it."""
        return address(self.name, self.data)

    @property
    def with_sudo(self) -> bool:
        """Whether a deploy uses sudo there."""
        return bool(self.data.get("_sudo"))


@dataclass(frozen=True)
class Answer:
    """How a command on a host ended.

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
    def said(self) -> str:
        """The end of its standard error as one line; never ""."""
        return " ".join(self.err.split())[-300:] or f"it ended with {self.code}"

    def json(self) -> tuple[Any, str]:
        """The JSON document that it printed, and ""; or None, and why there is none."""
        try:
            return json.loads(self.out), ""
        except ValueError:
            return None, self.fault or self.said


def choose(
    inventory: Path, limit: Sequence[str] = (), *, remedy: str = ""
) -> tuple[list[Host], list[Host]]:
    """Every host of an inventory, and those that ``limit`` names, () for all; both in its order.

    Args:
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
    """Every host of an inventory that serves a target with others.

    Raises:
        LockstepError: the inventory is wrong, or has no such host.
    """
    every, _ = choose(inventory)
    found = [host for host in every if host.plan.groups]
    if not found:
        raise InventoryError(
            "no target is of a cluster",
            where=str(inventory),
            remedy="Set `clusters`, and `cluster` of a target.",
        )
    return found


def at_once(work: Callable[[T], R], things: Sequence[T]) -> list[R]:
    """What ``work`` gives for each of the things, all at once, in their order."""
    with ThreadPoolExecutor(max(1, len(things))) as pool:
        return list(pool.map(work, things))


def ask(
    where: Login,
    argv: Sequence[str],
    *,
    text: str = "",
    limit_s: float | None = None,
    sudo_remedy: str = SUDO,
) -> Answer:
    """Run a command on a host to its end.

    Args:
        argv: The command; no secret may be in it.
        text: Its standard input.
        limit_s: Seconds after which it is given up; None: never.
        sudo_remedy: What to do where sudo does not let the account.
    """
    words = where.command(argv)
    try:
        done = subprocess.run(
            words,
            input=text,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=limit_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Answer(fault=f"no answer within {limit_s:.0f} s")
    except OSError as fault:
        return Answer(fault=not_run(where, words[0], fault))
    found = answered(where, done.returncode, done.stdout, done.stderr, sudo_remedy)
    if is_absent(argv[0], found.code, found.err):
        return replace(found, fault=NOT_DEPLOYED)
    return found


def is_absent(path: str, code: int, said: str) -> bool:
    """Whether a command on a host ended so because this program of ours is not there."""
    return code == _ABSENT and path.startswith("/") and path in said


def not_run(where: Login, program: str, fault: OSError) -> str:
    """Why a program was not begun on this machine: ssh, or, as `@local`, one of ours."""
    if not where.words and program.startswith("/") and isinstance(fault, FileNotFoundError):
        return NOT_DEPLOYED
    return f"{program} cannot be run: {fault.strerror}"


def read(
    where: Login, name: str, question: object, *, sudo: bool, limit_s: float
) -> tuple[Any, str]:
    """What a reader of `lockstep.onhost.facts` answers, and ""; or None, and why there is none."""
    argv = [*(("sudo", "-n") if sudo else ()), *sent.COMMAND]
    found, fault = ask(where, argv, text=sent.questions({name: question}), limit_s=limit_s).json()
    if fault or name in found["faults"]:
        return None, fault or found["faults"][name]
    return found["answers"][name], ""


def answered(where: Login, code: int, out: str, err: str, sudo_remedy: str = SUDO) -> Answer:
    """The answer that a command's end is."""
    found = Answer(code, out, err)
    if where.words and code == NO_CONNECTION:
        return replace(found, fault=f"no connection: {found.said}")
    if _NO_PROGRAM.search(err):
        return replace(found, fault=NOT_DEPLOYED)
    if sudo_refused(code, err):
        return replace(found, fault=f"{found.said}. {sudo_remedy}")
    return found


def deploy_command(
    inventory: Path, limit: Sequence[str] = (), options: Sequence[str] = ("-y",)
) -> list[str]:
    """The argument list of a deploy, to be run in the owner's folder.

    Where that has no `deploy.py` or `config.py` of its own, the product's are meant.
    """
    pyinfra = Path(sys.executable).with_name("pyinfra")
    folder = inventories.folder_of(inventory)
    deploy, config = (
        name if (folder / name).exists() else str(product.OWNER / name)
        for name in ("deploy.py", "config.py")
    )
    chosen = [word for name in limit for word in ("--limit", name)]
    words = [*options, *chosen, "--config", config]
    return [str(pyinfra), *words, str(inventory.absolute()), deploy]
