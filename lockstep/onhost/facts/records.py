"""What a deploy left on a host about itself, and what is there of others."""

from __future__ import annotations

from typing import Any

from lockstep.onhost.core import config, errors, layout
from lockstep.onhost.engine import sense_record
from lockstep.onhost.facts.reading import Facts, document
from lockstep.onhost.records import deploys, found, generations, ours
from lockstep.onhost.systemd import units


def generation(_: object) -> dict[str, Any]:
    """ "number", "date", "digest" and "lock" of the newest record of what this host was brought to;
    {} without one."""
    newest = generations.newest(layout.Paths())
    return {key: newest[key] for key in ("number", "date", "digest", "lock")} if newest else {}


def deploying(asked: dict[str, Any]) -> dict[str, Any]:
    """ "other": who else deploys to this host, in words; "" where the deploy that asks may.
    "waited": whether another deploy was under way when this was asked, so that what was read beside
    it is of no use. "before": how the deploy before ended, where this host had to return from it;
    else "". Asked: That deploy (`deploys.Deploy`), which has sent for the lock.
    """
    mine, paths = deploys.Deploy(**asked), layout.Paths()
    there = deploys.holder(paths.deploy_lock)
    found = deploys.other_than(mine, paths.deploy_lock)
    return {
        "other": str(found) if found else "",
        "waited": bool(there and there.run not in ("", mine.run)),
        "before": deploys.cut_off(paths),
    }


def intruders(asked: dict[str, Any]) -> dict[str, str]:
    """What is in the way of a deploy and is not Lockstep's; see `ours.intruders`."""
    return ours.intruders(asked)


def unnoted(asked: dict[str, list[str]]) -> dict[str, list[str]]:
    """What of the things that a deploy may touch nobody has noted yet, as `found` is told it."""
    return found.unnoted(layout.Paths(), asked)


def deployed(_: object) -> Facts:
    """What a deploy brought the host to, and the speeds that are accepted."""
    for key, value in generation(None).items():
        yield "deployed", key, value
    accepted = document(str(layout.Paths().accepted))
    for name, entry in accepted.items() if isinstance(accepted, dict) else ():
        told = ("decode_tok_s", "runs", "power_w", "clock_mhz", "max_clock_mhz", "recipe", "date")
        figures = {key: entry.get(key) for key in told}
        yield "accepted speed", name, shown(figures)


def sense(_: object) -> Facts:
    """What the last look found at each model that is hot, in words."""
    looked = sense_record.last(layout.Paths())
    try:
        targets = config.load_host(layout.Paths().targets).targets
    except errors.Problem:
        return
    state = units.show(targets[name].unit for name in looked if name in targets)
    for name, seen in looked.items():
        unit = state[targets[name].unit] if name in targets else None
        if unit and unit.state == "hot" and unit.main_pid == seen.pid:
            yield "sense", name, seen.words if seen.state == "nonsense" else "no nonsense"


def shown(value: Any) -> str:
    """A value of JSON in one line."""
    if isinstance(value, dict):
        return ", ".join(f"{key} {shown(item)}" for key, item in value.items()) or "none"
    if isinstance(value, list):
        return ", ".join(map(shown, value)) or "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "none" if value is None else str(value) or "untold"
