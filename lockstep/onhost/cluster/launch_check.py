"""Facts that must be equal on every member before a rank of a target may start, as text.

Two Sparks that differ load the same model and answer nonsense, or hang in their first collective.
The deploy has hashed what it made of a target; here is looked which hash that is, what somebody has
changed since, and what no deploy decides.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path

from lockstep.onhost.core import config, layout, runner, topology
from lockstep.onhost.records import generations
from lockstep.onhost.weights import weights_state

Facts = dict[str, str]
_TARGETS, _WEIGHTS = "/etc/lockstep/targets.json", "/etc/lockstep/served-weights.json"


def gather(target: config.Target, cluster: topology.Cluster, paths: layout.Paths) -> Facts:
    """The facts of one target on this member; what cannot be read says so in its value."""
    record = _in_force(target, paths)
    facts = {
        "kernel": os.uname().release,
        "driver": _driver(paths),
        "MTU of the fabric": _mtu(cluster, paths),
        "hash of the lock": str(record["lock"]) if record else "no deploy on record",
        f"hash of what was deployed for {target.name}": target.alike or "none",
        "changed since the deploy": _changed(target, record, paths),
    }
    if record and record["engine"].get("folder") and target.image is None:
        facts["engine"] = _engine(paths.root / record["engine"]["folder"].lstrip("/"))
    return {**facts, **{f"weights {model}": _weights(model, paths) for model in target.weights}}


def _in_force(target: config.Target, paths: layout.Paths) -> generations.Record | None:
    """The record whose files of the target are here.

    A deploy starts the group before it has ended well, and one that failed may have written none.
    """
    known = [generations.begun(paths), generations.newest(paths)]
    found = [record for record in known if record]
    here = (record for record in found if not _differing(target, record, paths))
    return next(here, found[-1] if found else None)


def differences(found: Mapping[str, Facts]) -> list[str]:
    """One sentence per fact that is not the same on all members, with every value."""
    said = []
    for name in sorted({name for facts in found.values() for name in facts}):
        values = {member: facts.get(name, "none") for member, facts in found.items()}
        if len(set(values.values())) > 1:
            said.append(f"{name}: " + ", ".join(f"{who} {what}" for who, what in values.items()))
    return said


def _driver(paths: layout.Paths) -> str:
    """The version of the kernel's module; the agent sees no device that could be asked."""
    loaded = _text(paths.proc / "driver/nvidia/version")
    found = re.search(r"Module +(?:for \S+ +)?(\d[\d.]+)", loaded)
    return found[1] if found else loaded.partition("\n")[0] or "not loaded"


def _mtu(cluster: topology.Cluster, paths: layout.Paths) -> str:
    """MTU of the fast link's interfaces: one figure where all of them have the same."""
    places = [paths.root / "sys/class/net" / interface / "mtu" for interface in cluster.links]
    # One that is not there is refused by its name, where the member checks its link.
    found = {text for place in places if (text := _text(place).strip())}
    return " and ".join(sorted(found)) or "no interface"


def _changed(target: config.Target, record: generations.Record | None, paths: layout.Paths) -> str:
    """Files of the target that are not as the deploy left them, and drop-ins of its unit."""
    changed = _differing(target, record, paths)
    asked = ["systemctl", "show", "--property=DropInPaths", "--", target.unit]
    for line in runner.run(asked, timeout=30).stdout.splitlines():
        if line.startswith("DropInPaths="):
            changed |= set(line.partition("=")[2].split())
    each = (f"{path} ({_hash(_text(paths.root / path.lstrip('/')))})" for path in sorted(changed))
    return ", ".join(each) or "nothing"


def _differing(
    target: config.Target, record: generations.Record | None, paths: layout.Paths
) -> set[str]:
    """Files of the target that are not as a record has them."""
    texts = {file["path"]: file["text"] for file in record["files"]} if record else {}
    unit = f"/etc/systemd/system/{target.unit}"
    started = {path for path in texts if path in texts.get(unit, "")}
    known = {_TARGETS, _WEIGHTS, unit, *started} & texts.keys()
    return {path for path in known if _text(paths.root / path.lstrip("/")) != texts[path]}


def _engine(folder: Path) -> str:
    """The environment that is in use, and a hash of its packages with their versions."""
    current = (folder / "current").resolve()
    packages = current.glob("venv/lib/python3*/site-packages/*.dist-info")
    return f"{current.name} with packages {_hash(sorted(path.name for path in packages))}"


def _weights(model: str, paths: layout.Paths) -> str:
    """Whether a model is as it was verified, by `stat` alone: nobody reads 100 GB at each start."""
    if model.startswith("/"):
        folder = paths.root / model.lstrip("/")
        files = sorted(path for path in folder.rglob("*") if path.is_file())
        listed = [(str(path.relative_to(folder)), path.stat().st_size) for path in files]
        return f"{len(files)} files with names and sizes {_hash(listed)}"
    try:
        state = weights_state.of_model(paths.weights, model)
    except (OSError, ValueError, LookupError) as error:
        return f"unknown ({error})"
    wrong = [*state["missing"], *state["wrong_size"], *state["unverified"], *state["not_merged"]]
    return f"not as verified: {', '.join(wrong[:3])}" if wrong else "as verified"


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return ""


def _hash(value: object) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()[:12]
