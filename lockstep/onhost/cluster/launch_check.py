"""Facts that must be equal on every member before a rank of a model may start, as text.

Two Sparks that differ load the same model and answer nonsense, or hang in their first collective.
The deploy has hashed what it made of a model. This module reads that hash, later changes by other
hands, and facts that no deploy decides.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path

from lockstep.onhost.core import config, layout, topology
from lockstep.onhost.records import generations
from lockstep.onhost.systemd import units
from lockstep.onhost.weights import weights_state

Facts = dict[str, str]
_MODELS, _WEIGHTS = "/etc/lockstep/models.json", "/etc/lockstep/served-weights.json"


def launch_facts(model: config.Model, cluster: topology.Cluster, paths: layout.Paths) -> Facts:
    """Return the facts of one model on this member; an unreadable fact says so in its value."""
    record = _matching_generation(model, paths)
    facts = {
        "kernel": os.uname().release,
        "driver": _driver_version(paths),
        "MTU of the fabric": _link_mtu(cluster, paths),
        "hash of the lock": str(record["lock"]) if record else "no deploy on record",
        f"hash of what was deployed for {model.name}": model.alike or "none",
        "changed since the deploy": _changed_files_text(model, record, paths),
    }
    if record and record["engine"].get("folder") and model.image is None:
        facts["engine"] = _venv_text(paths.root / record["engine"]["folder"].lstrip("/"))
    return {
        **facts,
        **{
            f"weights {checkpoint}": _weights_state_text(checkpoint, paths)
            for checkpoint in model.weights
        },
    }


def _matching_generation(model: config.Model, paths: layout.Paths) -> generations.Record | None:
    """Return the record whose files of the model are here.

    A deploy starts the cluster before it has ended well, and a failed deploy may have written no
    record.
    """
    candidates = [generations.begun_record(paths), generations.newest_record(paths)]
    records = [record for record in candidates if record]
    matching_records = (
        record for record in records if not _files_unlike_record(model, record, paths)
    )
    return next(matching_records, records[-1] if records else None)


def differences(facts_by_member: Mapping[str, Facts]) -> list[str]:
    """Return one sentence per fact that is not the same on all members, with every value."""
    sentences = []
    for name in sorted({name for facts in facts_by_member.values() for name in facts}):
        values = {member: facts.get(name, "none") for member, facts in facts_by_member.items()}
        if len(set(values.values())) > 1:
            sentences.append(
                f"{name}: "
                + ", ".join(f"{host_name} {value}" for host_name, value in values.items())
            )
    return sentences


def _driver_version(paths: layout.Paths) -> str:
    """Return the version of the kernel's module; the agent has no access to the GPU's devices."""
    version_text = _text(paths.proc / "driver/nvidia/version")
    match = re.search(r"Module +(?:for \S+ +)?(\d[\d.]+)", version_text)
    return match[1] if match else version_text.partition("\n")[0] or "not loaded"


def _link_mtu(cluster: topology.Cluster, paths: layout.Paths) -> str:
    """Return the MTU of the fast link's interfaces: one figure if it is the same for all."""
    places = [paths.root / "sys/class/net" / interface / "mtu" for interface in cluster.links]
    # The member's check of its link refuses a missing interface by its name.
    mtus = {text for place in places if (text := _text(place).strip())}
    return " and ".join(sorted(mtus)) or "no interface"


def _changed_files_text(
    model: config.Model, record: generations.Record | None, paths: layout.Paths
) -> str:
    """Return the model's files that differ from the deploy's, and drop-ins of its unit."""
    changed_paths = _files_unlike_record(model, record, paths)
    state = units.properties([model.unit], "DropInPaths")[model.unit]
    changed_paths |= set(state.get("DropInPaths", "").split())
    entries = (
        f"{path} ({_hash(_text(paths.root / path.lstrip('/')))})" for path in sorted(changed_paths)
    )
    return ", ".join(entries) or "nothing"


def _files_unlike_record(
    model: config.Model, record: generations.Record | None, paths: layout.Paths
) -> set[str]:
    """Return the model's files that differ from a record."""
    texts = {file["path"]: file["text"] for file in record["files"]} if record else {}
    unit = f"/etc/systemd/system/{model.unit}"
    started_files = {path for path in texts if path in texts.get(unit, "")}
    known_paths = {_MODELS, _WEIGHTS, unit, *started_files} & texts.keys()
    return {path for path in known_paths if _text(paths.root / path.lstrip("/")) != texts[path]}


def _venv_text(folder: Path) -> str:
    """Return the environment in use, and a hash of its packages with their versions."""
    current = (folder / "current").resolve()
    packages = current.glob("venv/lib/python3*/site-packages/*.dist-info")
    return f"{current.name} with packages {_hash(sorted(path.name for path in packages))}"


def _weights_state_text(checkpoint: str, paths: layout.Paths) -> str:
    """Tell whether a model is as verified, by `stat` alone: nobody reads 100 GB at each start."""
    if checkpoint.startswith("/"):
        folder = paths.root / checkpoint.lstrip("/")
        files = sorted(path for path in folder.rglob("*") if path.is_file())
        entries = [(str(path.relative_to(folder)), path.stat().st_size) for path in files]
        return f"{len(files)} files with names and sizes {_hash(entries)}"
    try:
        state = weights_state.state_of_model(paths.weights_list, checkpoint)
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
