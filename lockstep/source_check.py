"""Where artefacts come from, in inventory data: addresses, repositories, the venv engine's."""

from __future__ import annotations

import datetime
import re
from collections.abc import Mapping

from lockstep.address_check import (
    check_address,
    check_branch,
    check_git,
    check_no_login,
    check_registries,
)
from lockstep.digest import is_commit
from lockstep.errors import InventoryError
from lockstep.settings import FORK_S_DAY, Settings, Sources, VenvEngine

_ADDRESSES = {
    "sources": ("python_index", "torch_index", "flashinfer_index", "vllm_wheels", "hub"),
    "proxy": ("http", "https"),
}


def check_sources(settings: Settings, where: Mapping[str, str]) -> None:
    """Refuse addresses, repositories and versions that a client would read as something else.

    Args:
        settings: One host's data.
        where: Top-level key → file that gave its value.

    Raises:
        InventoryError: with file, key, what was found and what is allowed.
    """
    for section, addresses in {"sources": settings.sources, "proxy": settings.proxy}.items():
        file = where.get(section, settings.name)
        for key in _ADDRESSES[section]:
            check_address(f"{section}.{key}", getattr(addresses, key), file)
    file = where.get("sources", settings.name)
    check_registries(settings.sources, file)
    _check_sources(settings.sources, file)
    _check_python(settings.python, where.get("python", settings.name))
    file = where.get("engine", settings.name)
    _check_engine(settings.engine, file)
    _check_precompiled(settings.engine, file)


def _check_sources(sources: Sources, file: str) -> None:
    for here, there in sources.git.items():
        check_git(f"sources.git[{here.rpartition('@')[2]!r}]", there, file)
        check_git("sources.git", here, file)
    for index, line in enumerate(sources.apt):
        if not re.fullmatch(r"deb(?:-src)? [\x20-\x7e]+", line):
            raise InventoryError(
                f"sources.apt[{index}] is not a line of sources.list",
                where=file,
                # It may hold a password.
                found=repr(line.rpartition("@")[2])[:60],
                allowed='"deb http://HOST/PATH SUITE COMPONENT"',
            )


def _check_engine(engine: VenvEngine, file: str) -> None:
    if engine.git is not None and engine.release is not None:
        raise InventoryError(
            "engine.git and engine.release name two vLLMs",
            where=file,
            found=f"{engine.git.rpartition('@')[2]!r} and {engine.release!r}",
            remedy="Keep one of them.",
        )
    addresses = {
        "git": engine.git,
        "transformers": (engine.transformers or "").partition("git+")[2] or None,
        "upstream": engine.upstream,
    }
    for key, address in addresses.items():
        check_git(f"engine.{key}", address, file)
        check_no_login(f"engine.{key}", address, file)
    check_branch("engine.branch", engine.branch, file)
    _check_day(engine.exclude_newer, file)
    for name, value in engine.build_environment.items():
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) or not value.isprintable():
            raise InventoryError(
                f"engine.build_environment holds {name!r}, which is no variable of one line",
                where=file,
                allowed="a name of letters, digits and '_', and printable text",
            )


def _check_day(day: str | None, file: str) -> None:
    if day in (None, FORK_S_DAY):
        return
    try:
        datetime.date.fromisoformat(str(day))
    except ValueError as fault:
        raise InventoryError(
            "engine.exclude_newer is not a day",
            where=file,
            found=repr(day)[:60],
            allowed='"YYYY-MM-DD", "fork" for the day of the fork\'s commit, or None',
        ) from fault


def _check_precompiled(engine: VenvEngine, file: str) -> None:
    commit, variant = engine.precompiled_commit, engine.precompiled_variant
    if commit is not None and not is_commit(commit):
        raise InventoryError(
            "engine.precompiled_commit is not a whole commit",
            where=file,
            found=repr(commit)[:60],
            allowed="40 hexadecimal digits, or None for the one at which the fork left upstream",
        )
    if not re.fullmatch(r"[a-z0-9]*", variant):
        raise InventoryError(
            "engine.precompiled_variant is not the name of a build",
            where=file,
            found=repr(variant)[:60],
            allowed='"cu130" or another folder of the server, "" for the usual one',
        )
    own = [name for name in engine.build_environment if "PRECOMPILED" in name]
    if own:
        raise InventoryError(
            f"engine.build_environment names {own[0]}, which the lock decides",
            where=file,
            remedy="Use engine.precompiled, precompiled_commit or precompiled_variant.",
        )


def _check_python(version: str, file: str) -> None:
    if not re.fullmatch(r"3\.\d+", version):
        raise InventoryError(
            "python is not a version of the interpreter",
            where=file,
            found=repr(version),
            allowed='"3.12", without a third number',
        )
