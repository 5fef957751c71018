"""The venv engine: each operation asks one reader for missing parts, and builds only those."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyinfra import host
from pyinfra.api import operation

from lockstep.host.specs import check_wanted, engine_missing
from tasks import remote
from tasks.facts import host as facts
from tasks.operations.artefacts import fetch
from tasks.remote import Commands


@operation()
def built(stage: str, spec: Mapping[str, Any], user: str) -> Commands:
    """Bring one stage of the environment about: "pytorch", "vllm" or "flashinfer".

    Args:
        stage: Which.
        spec: As `lockstep.host.specs.engine_spec` gives it.
        user: Account that builds and owns it.
    """
    found = facts.ask("environments")
    if not found:
        return
    missing = engine_missing(spec, found).get(stage, [])
    if not missing:
        host.noop(f"{stage}: the environment {spec['id']} is complete")
        return
    host.log(f"{stage}: {', '.join(missing[:3])}" + (" …" if len(missing) > 3 else ""))
    yield remote.build(stage, user)


@operation()
def checked(spec: Mapping[str, Any], user: str, token_file: str, proxy: bool = False) -> Commands:
    """Ask the engine itself about its build, every recipe, and the classes of its checkpoint.

    Args:
        spec: As `lockstep.host.specs.engine_spec` gives it.
        user: Account that asks, and owns the hub cache.
        token_file: File on the host that may hold a hub token.
        proxy: Whether to go through the proxy of `proxy.env`, whose URL may hold a password.
    """
    found = facts.ask("environments")
    if not found:
        return
    record = found["check"] or {}
    if record.get("asked") == check_wanted(spec) and record.get("faults") == []:
        host.noop(f"vLLM {record['version']} accepts {len(spec['recipes'])} recipe(s)")
        return
    # vLLM tells the classes by a checkpoint's configuration; its weights come later.
    yield fetch("configurations", user, token_file, proxy, "--small")
    yield remote.build("check", user)


@operation()
def activated(spec: Mapping[str, Any], user: str) -> Commands:
    """Make the environment that passed its check the current one.

    With the units that use it and not before: an engine that restarts itself meanwhile must find
    the environment that its own unit was made for.
    """
    found = facts.ask("environments")
    if not found:
        return
    if found["current"] == spec["id"]:
        host.noop(f"{spec['id']} is the current environment")
        return
    yield remote.build("activate", user)
