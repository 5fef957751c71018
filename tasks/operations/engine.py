"""The venv engine: each operation asks one probe what is missing, and builds only that."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import Any

from pyinfra import host
from pyinfra.api import FunctionCommand, StringCommand, operation

from lockstep.specs import check_wanted, engine_missing
from tasks import remote
from tasks.facts.host import Engines

Commands = Generator[StringCommand | FunctionCommand, None, None]


def ask(spec: Mapping[str, Any]) -> Any:
    """What the host holds of this engine environment."""
    return host.get_fact(Engines, asked={"home": spec["home"], "current": spec["current"]})


@operation()
def built(stage: str, spec: Mapping[str, Any], user: str) -> Commands:
    """Bring one stage of the environment about: "pytorch", "vllm" or "flashinfer".

    Args:
        stage: Which.
        spec: As `lockstep.specs.engine_spec` gives it.
        user: Account that builds and owns it.
    """
    found = ask(spec)
    if not found:
        return
    missing = engine_missing(spec, found).get(stage, [])
    if not missing:
        host.noop(f"{stage}: the environment {spec['id']} is complete")
        return
    host.log(f"{stage}: {', '.join(missing[:3])}" + (" …" if len(missing) > 3 else ""))
    yield remote.build(stage, user)


@operation()
def checked(spec: Mapping[str, Any], user: str) -> Commands:
    """Ask the engine itself about its build and every recipe; then make it the current one."""
    found = ask(spec)
    if not found:
        return
    record = found["check"] or {}
    passed = record.get("asked") == check_wanted(spec) and record.get("faults") == []
    if not passed:
        yield remote.build("check", user)
    if not passed or found["current"] != spec["id"]:
        yield remote.build("activate", user)
        return
    host.noop(f"vLLM {record['version']} accepts {len(spec['recipes'])} recipe(s)")
