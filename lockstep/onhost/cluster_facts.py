"""What must be the same on every member before a rank of a target may start, as text facts.

Two Sparks that differ load the same model and answer nonsense, or hang in their first collective.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import shlex
import socket
import struct
from collections.abc import Mapping
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lockstep.onhost import (
        clusters,
        common,
        docker_api,
        generations,
        weights_spec,
        weights_state,
    )
else:
    import clusters
    import common
    import docker_api
    import generations
    import weights_spec
    import weights_state

Facts = dict[str, str]
_SIOCGIFADDR = 0x8915  # linux/sockios.h

# Settings of the collectives and of the engines, wherever they are given.
_SETTING = re.compile(
    r"((?:NCCL|GLOO|TORCH_NCCL|UCX|VLLM|SGLANG|TP|RAY)_[A-Z0-9_]+)=(.*)", re.DOTALL
)
# Each member's own by their nature: its address, its interfaces, its rank.
_OWN = {
    *("VLLM_HOST_IP", "SGLANG_HOST_IP", "GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"),
    *("TP_SOCKET_IFNAME", "UCX_NET_DEVICES", "NCCL_IB_HCA"),
}
# How much of a value is shown where it differs.
_SHOWN = 80
_RANK_FLAGS = {
    *("--node-rank", "--headless", "--master-addr", "--dist-init-addr", "--host", "--port"),
    *("--data-parallel-start-rank", "--data-parallel-address"),
}


def gather(
    target: common.Target, cluster: clusters.Cluster, host: common.Host, paths: common.Paths
) -> Facts:
    """The facts of one target on this member; what cannot be read says so in its value."""
    facts = {"kernel": os.uname().release, "driver": _driver(paths)}
    facts["MTU of the fabric"] = mtu(cluster.me.address, paths)
    record = next(iter(generations.records(paths)), None)
    facts["lock"] = str(record["lock"]) if record else "no deploy on record"
    facts.update(_image(target, paths))
    if target.image is None:
        facts.update(_venv(record, paths))
    facts.update(_weights(target, paths))
    facts.update(_unit(target, paths))
    return facts


def differences(found: Mapping[str, Facts]) -> list[str]:
    """One sentence per fact that is not the same on all members, with every value."""
    names = sorted({name for facts in found.values() for name in facts})
    said = []
    for name in names:
        values = {member: facts.get(name, "none") for member, facts in found.items()}
        if len(set(values.values())) > 1:
            shown = dict(zip(values, _apart(list(values.values())), strict=True))
            said.append(f"{name}: " + ", ".join(f"{who} {what}" for who, what in shown.items()))
    return said


def _apart(values: list[str]) -> list[str]:
    """Long values from their first word on that is not the same."""
    if max(map(len, values)) <= _SHOWN:
        return values
    words = [value.split(" ") for value in values]
    columns = zip(*words, strict=False)
    same = sum(1 for _ in takewhile(lambda column: len(set(column)) == 1, columns))
    return [" ".join(["…", *each[same:]])[:_SHOWN].strip() for each in words]


def _driver(paths: common.Paths) -> str:
    try:
        loaded = (paths.proc / "driver/nvidia/version").read_text(encoding="utf-8")
        if found := re.search(r"Module +(?:for \S+ +)?(\d[\d.]+)", loaded):
            return found[1]
    except OSError:
        pass
    asking = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        asked = common.run(asking, timeout=30)
    except common.Problem as problem:
        return str(problem)
    return " ".join((asked.stdout or asked.stderr).split())[:_SHOWN]


def mtu(address: str, paths: common.Paths) -> str:
    """MTU of the interface that has this address; asked without netlink, which agents lack."""
    for interface in sorted((paths.root / "sys/class/net").glob("*")):
        if address in (_ipv4(interface.name), *_ipv6(interface.name, paths)):
            return (interface / "mtu").read_text(encoding="ascii").strip()
    return "no interface has its address"


def _ipv4(interface: str) -> str:
    request = struct.pack("256s", interface.encode()[:15])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        try:
            return socket.inet_ntoa(fcntl.ioctl(asking, _SIOCGIFADDR, request)[20:24])
        except OSError:
            return ""


def _ipv6(interface: str, paths: common.Paths) -> list[str]:
    try:
        lines = (paths.proc / "net/if_inet6").read_text(encoding="ascii").splitlines()
    except OSError:
        return []
    found = [line.split() for line in lines]
    return [
        socket.inet_ntop(socket.AF_INET6, bytes.fromhex(words[0]))
        for words in found
        if words[-1] == interface
    ]


def _image(target: common.Target, paths: common.Paths) -> Facts:
    if target.image is None:
        return {}
    name = target.image.partition("@")[0]
    docker = docker_api.Docker(paths.docker_socket, timeout=30)
    try:
        answer = docker.json("GET", f"/images/{target.image}/json")
        found = str(answer.get("Id", "here"))
    except (docker_api.Unreachable, docker_api.DockerError) as error:
        found = f"not here ({error})"
    return {f"image {name}": f"{target.image.partition('@')[2][:19]} is {found[:19]}"}


def _venv(record: generations.Record | None, paths: common.Paths) -> Facts:
    """The engine's environment: its id, and every package with its version."""
    if record is None or not record["engine"].get("folder"):
        return {"engine": "none"}
    current = paths.root / record["engine"]["folder"].lstrip("/") / "current"
    facts = {"engine": current.resolve().name if current.exists() else "none"}
    for info in sorted(current.glob("venv/lib/python3*/site-packages/*.dist-info")):
        name, _, version = info.name.removesuffix(".dist-info").rpartition("-")
        facts[f"engine package {name}"] = version
    return facts


def _weights(target: common.Target, paths: common.Paths) -> Facts:
    facts = {}
    for model in target.weights:
        if model.startswith("/"):
            facts[f"weights {model}"] = _folder(paths.root / model.lstrip("/"))
            continue
        try:
            spec = weights_spec.parse(paths.weights.read_text(encoding="utf-8"))
            (repository,) = [item for item in spec.repositories if item.model == model]
        except (OSError, ValueError) as error:
            facts[f"weights {model}"] = f"unknown ({error})"
            continue
        facts[f"weights {model}"] = _repository(spec, repository)
    return facts


def _repository(spec: weights_spec.Spec, repository: weights_spec.Repository) -> str:
    wanted = sorted((file.path, file.name or "") for file in repository.files)
    digest = hashlib.sha256(json.dumps(wanted).encode()).hexdigest()[:12]
    state = weights_state.state(spec, repository)
    # Read once and unchanged since, by size and time: nobody reads 100 GB before each start.
    wrong = [*state["missing"], *state["wrong_size"], *state["unverified"], *state["not_merged"]]
    how = f"not as verified: {', '.join(wrong[:3])}" if wrong else "verified"
    return f"{repository.revision[:12]} with hashes {digest}, {how}"


def _folder(folder: Path) -> str:
    """A folder of an operator's own: the names and sizes in it."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    listed = [(str(path.relative_to(folder)), path.stat().st_size) for path in files]
    digest = hashlib.sha256(json.dumps(listed).encode()).hexdigest()[:12]
    return f"{len(files)} files with names and sizes {digest}"


def _unit(target: common.Target, paths: common.Paths) -> Facts:
    """The unit's settings and command line as systemd has them, with any drop-in."""
    names = "--property=Environment,ExecStart"
    asked = common.run(["systemctl", "show", names, "--", target.unit], timeout=30)
    fields = dict(line.partition("=")[::2] for line in asked.stdout.splitlines())
    argv = re.search(r"argv\[\]=(.*?) ; ignore_errors=", fields.get("ExecStart", ""))
    given = _words(fields.get("Environment", ""))
    words = _started(_words(argv[1]) if argv else [], paths)
    facts = {}
    for word in [*given, *words]:
        setting = _SETTING.fullmatch(word.removeprefix("--env="))
        if setting and setting[1] not in _OWN:
            facts[f"setting {setting[1]}"] = setting[2]
    facts["command line"] = " ".join(_common(words))
    return facts


def _started(argv: list[str], paths: common.Paths) -> list[str]:
    """The engine's command line: what a launcher ends with, where the unit starts one."""
    if not argv:
        return argv
    try:
        text = (paths.root / argv[0].lstrip("/")).read_text(encoding="utf-8")
    except (OSError, ValueError):
        # No text: the engine itself, or its interpreter.
        return argv
    lines = text.replace("\\\n", " ").splitlines()
    last = next((line for line in reversed(lines) if line.startswith("exec ")), None)
    return [*_words(last.removeprefix("exec ")), *argv[1:]] if last else argv


def _words(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:
        return text.split()


def _common(words: list[str]) -> list[str]:
    """The command line without what is each rank's own."""
    kept: list[str] = []
    skip = False
    for word in words:
        flag, mark, _ = word.partition("=")
        setting = _SETTING.fullmatch(word.removeprefix("--env="))
        if skip:
            skip = False
        elif flag in _RANK_FLAGS:
            skip = not mark and flag != "--headless"
        elif not (setting and setting[1] in _OWN):
            kept.append(word)
    return kept
