"""Return to what there was before a deploy that this host, or another one, could not end well."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from pathlib import PurePosixPath

from lockstep.onhost.core import config, errors, layout, output, runner
from lockstep.onhost.records import before, generations
from lockstep.onhost.switching import rollout_mark, switch
from lockstep.onhost.systemd import generation, units
from lockstep.onhost.webui import record, update

# A unit's own time-outs bound its start.
_START_S = 3600.0


def take_back(paths: layout.Paths, why: str) -> int:
    """Return to what `before` kept, have units run with it, and put `why` on record.

    A model that ran with what was deployed has to serve again, as after a switch.

    Returns:
        0 done, also where nothing was kept; 1 a unit does not start; 3 and 4 as for a switch.
    """
    with rollout_mark.alone(paths):
        kept = before.there(paths)
        # Members of a cluster return together, when the deploy tells them.
        if kept is None or kept["rollout"]:
            output.say("nothing was kept here to return to")
            return errors.EXIT_DONE
        absent = {PurePosixPath(path).name for path in kept["absent"]}
        deployed = config.load_host(paths.targets)
        models = {target.unit for target in deployed.targets.values()}
        for target in deployed.targets.values():
            if target.unit in absent:
                switch.Switch(deployed, paths, user=rollout_mark.USER).stop(target.name)
        _end(absent & before.watched_units(kept) - models)
        before.restore(paths, kept)
        generations.returned(paths, int(kept["since"]), why)
        host = config.load_host(paths.targets)
        models |= {target.unit for target in host.targets.values()}
        _webui_data(paths, kept)
        helpers = {name: was for name, was in kept["units"].items() if name not in models}
        faults = [name for name, was in helpers.items() if not _as_before(paths, name, was)]
        code = _model(paths, host, kept["hot"])
        paths.before.unlink(missing_ok=True)
    output.say("this host is as it was before the deploy")
    return code or (errors.EXIT_FAILED if faults else errors.EXIT_DONE)


def _model(paths: layout.Paths, host: config.Host, was: str | None) -> int:
    """Have the hot model run with the files that are back; it serves where this gives 0."""
    state = units.show(target.unit for target in host.targets.values())
    up = [target for target in host.targets.values() if state[target.unit].up]
    name = up[0].name if up else was
    if name is None or name not in host.targets:
        return errors.EXIT_DONE
    if up and not generation.old(state[up[0].unit], paths):
        return errors.EXIT_DONE
    with rollout_mark.marked(paths, name):
        return switch.Switch(host, paths, user=rollout_mark.USER).revive(name)


def _end(names: Iterable[str]) -> None:
    """End units that the deploy brought."""
    for name in sorted(names):
        _systemctl("disable", "--now", name)


def _as_before(paths: layout.Paths, name: str, was: dict[str, bool]) -> bool:
    """Have a unit start at boot and run now as it did; whether it does."""
    unit = units.show([name])[name]
    if was["enabled"] != unit.enabled and not _systemctl(
        "enable" if was["enabled"] else "disable", name
    ):
        return False
    if not was["up"]:
        return True
    # A socket has no process, and no restart while its service runs.
    outdated = unit.up and unit.main_pid and generation.old(unit, paths)
    return bool(unit.up and not outdated) or _systemctl("restart", name)


def _systemctl(*words: str) -> bool:
    done: subprocess.CompletedProcess[str] = runner.run(
        ["systemctl", *words[:-1], "--", words[-1]], timeout=_START_S
    )
    if done.returncode:
        output.say(f"systemctl {' '.join(words)} failed: {done.stderr.strip()}")
    return done.returncode == 0


def _webui_data(paths: layout.Paths, kept: before.Document) -> None:
    """Have Open WebUI's image of before begin with the copy that was made when it was replaced."""
    if record.load(paths).image in ("", kept["webui"]):
        return
    copies = [each for each in record.snapshots(paths) if each.image == kept["webui"]]
    if copies:
        update.use(paths, kept["webui"], copies[0].number)
