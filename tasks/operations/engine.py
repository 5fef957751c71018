"""The venv engine: each operation asks one reader for missing parts, and builds only those."""

from __future__ import annotations

from pyinfra import host
from pyinfra.api import operation

from lockstep.host.specs import check_wanted, engine_missing
from lockstep.onhost.core import taken
from lockstep.system.folders import HUB_TOKEN
from lockstep.tasks import remote, run
from lockstep.tasks.facts import host as facts
from lockstep.tasks.operations.artefacts import fetch
from lockstep.tasks.remote import Commands


@operation()
def built(stage: str) -> Commands:
    """Bring one stage of the environment about: "pytorch", "vllm" or "flashinfer"."""
    spec, found = run.current().engine_spec, facts.ask("environments")
    if not spec or not found:
        return
    missing = engine_missing(spec, found).get(stage, [])
    if not missing:
        host.noop(f"{stage}: the environment {spec['id']} is complete")
        return
    host.log(f"{stage}: {', '.join(missing[:3])}" + (" …" if len(missing) > 3 else ""))
    yield _build(stage)


@operation()
def checked() -> Commands:
    """Ask the engine itself about its build, every recipe, and the classes of its checkpoint."""
    spec, found = run.current().engine_spec, facts.ask("environments")
    if not spec or not found:
        return
    if taken.has(found["check"], check_wanted(spec)):
        host.noop(f"vLLM {found['check']['version']} accepts {len(spec['recipes'])} recipe(s)")
        return
    settings = run.current().plan.settings
    # vLLM tells the classes by a checkpoint's configuration; its weights come later.
    proxy = bool(settings.proxy.environment())
    yield fetch("configurations", settings.service_user, HUB_TOKEN, proxy, "--small")
    yield _build("check")


@operation()
def activated() -> Commands:
    """Make the environment that passed its check the current one.

    With the units that use it and not before: an engine that restarts itself meanwhile must find
    the environment that its own unit was made for.
    """
    spec, found = run.current().engine_spec, facts.ask("environments")
    if not spec or not found:
        return
    if found["current"] == spec["id"]:
        host.noop(f"{spec['id']} is the current environment")
        return
    yield _build("activate")


def _build(stage: str) -> remote.Streamed:
    return remote.build(stage, run.current().plan.settings.service_user)
