"""The systemd units: one per variant of a model, and Open WebUI's."""

from __future__ import annotations

from collections.abc import Sequence

from lockstep.files.managed_file import (
    AGENT_UNIT,
    DOCKER_CONFIG,
    GATEWAY_UNIT,
    HOME,
    WEBUI_SECRETS,
    ManagedFile,
    command,
    unit_file,
)
from lockstep.inventory.bound_models import AUTO
from lockstep.inventory.settings import Settings
from lockstep.inventory.values import is_loopback
from lockstep.lock.image_reference import pinned_reference
from lockstep.lock.pins import Pins
from lockstep.onhost.core import address_text
from lockstep.recipes.placeholders import engine_of
from lockstep.units import gateway_unit
from lockstep.units.docker_run import OOM_SCORE, foreground_options, volume_option
from lockstep.units.model_variants import Variant
from lockstep.units.restart_key import with_restart_key

# Lines with "+" run as root, and the unit's PATH begins with a folder of the engines' account.
_AS_ROOT = ("/usr/bin/env", "--ignore-environment")
# A SIGTERM waits until the check's own program can see who sent it.
_ROOT_CHECK = (*_AS_ROOT, "--block-signal=TERM")
# An occasional crash is restarted; a model that cannot start is left down. The articles tell of 385
# restarts in a row.
STARTS = 3
RESTART_S = 15
STOP_S = 60
# The gate waits up to 120 s for memory and some more for a container and the page cache.
GATE_S = 240
# Questions begin for 300 s, and the last answer may take as long (onhost/engine/sense_check.py).
SENSE_S = 600
_LIMITS = {
    "memlock": "LimitMEMLOCK",
    "nofile": "LimitNOFILE",
    "nproc": "LimitNPROC",
    "rtprio": "LimitRTPRIO",
    "stack": "LimitSTACK",
}


def model_units(settings: Settings, variants: Sequence[Variant]) -> tuple[ManagedFile, ...]:
    """Return one unit per variant; each conflicts with every other one."""
    names = [f"{variant.unit}.service" for variant in variants]
    return tuple(
        _model_unit(settings, variant, names[:index], names[:index] + names[index + 1 :])
        for index, variant in enumerate(variants)
    )


def _model_unit(
    settings: Settings, variant: Variant, earlier: Sequence[str], other_units: Sequence[str]
) -> ManagedFile:
    container = variant.image is not None
    asked_s = 0 if variant.served_model.sense == "off" else SENSE_S
    start_s = variant.served_model.start_timeout_s + GATE_S + asked_s
    recipe = variant.recipe
    engine = engine_of(recipe)
    text = with_restart_key(
        "units/model.service.j2",
        contents=variant.identity,
        variant=variant,
        description=f"{variant.name}: {recipe.description or recipe.name}",
        container=container,
        others=other_units,
        earlier=earlier,
        starts=STARTS,
        start_limit_s=STARTS * (start_s + 2 * STOP_S + RESTART_S),
        folders=(settings.paths.hub_cache, *(() if container else (settings.paths.engines,))),
        user=settings.service_user,
        home=HOME,
        state_directory=HOME.removeprefix("/var/lib/"),
        environment={"DOCKER_CONFIG": DOCKER_CONFIG} if container else variant.environment,
        gate=(*_ROOT_CHECK, *command("gate", variant.name)),
        start=(variant.launcher,) if variant.launcher else variant.argv,
        ready=(*_ROOT_CHECK, *command("ready", variant.name, "--main-pid")),
        end=command("end-engine", "--within", f"{engine.end_s:g}"),
        admit=(*_ROOT_CHECK, *command("cluster", "admit", variant.name)),
        agent=AGENT_UNIT,
        stop_container=(*_AS_ROOT, *_stop_container(variant.unit)),
        ended=(*_AS_ROOT, *command("boots", "ended", variant.name)),
        start_s=start_s,
        stop_s=STOP_S,
        restart_s=RESTART_S,
        success=engine.success,
        oom_score=OOM_SCORE,
        # The limits of a container are given to Docker.
        limits={} if container else _unit_limits(variant),
    )
    return unit_file(f"{variant.unit}.service", text, "services")


def _stop_container(name: str) -> tuple[str, ...]:
    # Less than TimeoutStopSec, so that the message comes from the program and not from systemd.
    return command("stop-container", name, "--wait", str(STOP_S - 10))


def _unit_limits(variant: Variant) -> dict[str, str]:
    limits = {
        **variant.recipe.lockstep.ulimits,
        **({"memlock": -1} if variant.model.group else {}),
    }
    return {
        _LIMITS[name]: "infinity" if limit == -1 else str(limit)
        for name, limit in sorted(limits.items())
        if name in _LIMITS
    }


def webui_unit(settings: Settings, variants: Sequence[Variant], pins: Pins) -> ManagedFile:
    """Return Open WebUI's unit, which starts at boot.

    Raises:
        ResolveError: ``pins`` holds no digest for the image.
    """
    webui = settings.webui
    argv = webui_command(settings, variants, pins)
    unit, image = f"{webui.unit}.service", argv[-1]
    data = (unit, webui.volume, image)
    reachable = address_text.EVERYWHERE.get(webui.bind, webui.bind)
    url = address_text.url(reachable, webui.port)
    text = with_restart_key(
        "units/webui.service.j2",
        unit=webui.unit,
        loopback=is_loopback(reachable),
        gateway=GATEWAY_UNIT,
        docker_config=DOCKER_CONFIG,
        start=argv,
        image=image,
        alone=command("webui", "alone", url),
        begin=command("webui", "begin", *data),
        ready=command("webui", "ready", *data, f"{url}/health", "--main-pid"),
        ended=command("webui", "ended", unit),
        stop_container=_stop_container(webui.unit),
    )
    return unit_file(unit, text, "webui")


def webui_command(settings: Settings, variants: Sequence[Variant], pins: Pins) -> tuple[str, ...]:
    """Return the `docker run` of Open WebUI; its secrets come from a file on the host."""
    webui = settings.webui
    # Names as on docs.openwebui.com, reference/env-configuration (v0.9.6, read 2026-11).
    environment = {
        "HOST": webui.bind,
        "PORT": str(webui.port),
        "OPENAI_API_BASE_URLS": f"{gateway_unit.local_url(settings)}/v1",
        # On loopback the gateway asks for no key.
        "OPENAI_API_KEYS": "none",
        # A new chat begins with the hot model, and hidden questions (titles, tags, next questions)
        # never switch to another model.
        "DEFAULT_MODELS": AUTO,
        "TASK_MODEL_EXTERNAL": AUTO,
        "ENABLE_OLLAMA_API": "false",
        "ENABLE_SIGNUP": "false",
        "WEBUI_AUTH": "true",
        # Without this, addresses of the first start are kept in its database for ever.
        "ENABLE_PERSISTENT_CONFIG": "false",
        # No models from the hub, no look for a newer version.
        "OFFLINE_MODE": "true",
        "ANONYMIZED_TELEMETRY": "false",
        "DO_NOT_TRACK": "true",
        "SCARF_NO_ANALYTICS": "true",
    }
    if not all(
        variant.served_model.tools for variant in variants if variant.served_model.kind == "chat"
    ):
        # Open WebUI offers its tools with every message, and an engine without a parser of tool
        # calls refuses such a message (read in 0.12.4).
        environment["DEFAULT_MODEL_METADATA"] = '{"capabilities":{"builtin_tools":false}}'
    return (
        *foreground_options(webui.unit),
        *("--network", "host"),
        *volume_option(webui.volume, "/app/backend/data", webui.unit),
        *("--env-file", WEBUI_SECRETS),
        *(word for pair in environment.items() for word in ("--env", "=".join(pair))),
        pinned_reference(webui.image, pins),
    )
