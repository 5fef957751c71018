"""The venv engine: each operation asks one reader for missing parts, and builds only those."""

from __future__ import annotations

from pyinfra import host
from pyinfra.api import operation

from lockstep.host.specs import engine_check_hash, missing_engine_parts
from lockstep.onhost.core import passed_engine_checks
from lockstep.system.folders import HUB_TOKEN
from lockstep.tasks.operations.images_and_weights import weights_fetch_job
from lockstep.tasks.run import reader_answers as facts
from lockstep.tasks.run import remote_commands, run_state
from lockstep.tasks.run.remote_commands import Commands


@operation()
def build_stage(stage: str) -> Commands:
    """Build one stage of the environment: "pytorch", "vllm" or "flashinfer"."""
    spec, environments = (
        run_state.current_desired_state().engine_spec,
        facts.reader_answer("environments"),
    )
    if not spec or not environments:
        return
    missing = missing_engine_parts(spec, environments).get(stage, [])
    if not missing:
        host.noop(f"{stage}: the environment {spec['id']} is complete")
        return
    host.log(f"{stage}: {', '.join(missing[:3])}" + (" …" if len(missing) > 3 else ""))
    yield _build(stage)


@operation()
def check() -> Commands:
    """Ask the engine itself about its build, every recipe, and the classes of its checkpoint."""
    spec, environments = (
        run_state.current_desired_state().engine_spec,
        facts.reader_answer("environments"),
    )
    if not spec or not environments:
        return
    if passed_engine_checks.has_passed(environments["check"], engine_check_hash(spec)):
        host.noop(
            f"vLLM {environments['check']['version']} accepts {len(spec['recipes'])} recipe(s)"
        )
        return
    settings = run_state.current_desired_state().plan.settings
    # vLLM derives the classes from a checkpoint's configuration; its weights come later.
    proxy = bool(settings.proxy.environment())
    yield weights_fetch_job("configurations", settings.service_user, HUB_TOKEN, proxy, "--small")
    yield _build("check")


@operation()
def activate() -> Commands:
    """Make the environment that passed its check the current one.

    This happens with the units that use it and not before: an engine that restarts itself meanwhile
    must find the environment that its own unit was made for.
    """
    spec, environments = (
        run_state.current_desired_state().engine_spec,
        facts.reader_answer("environments"),
    )
    if not spec or not environments:
        return
    if environments["current"] == spec["id"]:
        host.noop(f"{spec['id']} is the current environment")
        return
    yield _build("activate")


def _build(stage: str) -> remote_commands.StreamedCommand:
    return remote_commands.engine_build_job(
        stage, run_state.current_desired_state().plan.settings.service_user
    )
