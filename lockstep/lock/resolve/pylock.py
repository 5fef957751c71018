"""Answers of uv, locks in Python's own format (pylock.toml, PEP 751), to one wheel per package."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import unquote

from packaging.tags import Tag, compatible_tags, cpython_tags
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename

from lockstep.core.errors import ResolveError
from lockstep.lock.moving import PythonItem
from lockstep.lock.pins import PythonPin, WheelPin

# DGX OS 7 is Ubuntu 24.04, with glibc 2.39.
GLIBC = (2, 39)
# Names of glibc's releases before they were numbers; 2.17 is the oldest for aarch64.
_OLDER_NAMES = {17: "manylinux2014", 12: "manylinux2010", 5: "manylinux1"}


def wheels(text: str, item: PythonItem) -> tuple[WheelPin, ...]:
    """Return every package of the answer, sorted by name.

    ResolveError where one has no wheel for a Spark, or its index gives no SHA-256.
    """
    try:
        packages = tomllib.loads(text).get("packages", [])
    except tomllib.TOMLDecodeError as fault:
        raise ResolveError(
            "uv's answer is no lock", where=item.key, found=str(fault)[:80]
        ) from fault
    order = {tag: rank for rank, tag in enumerate(_tags(item.architecture, item.python))}
    wheels_found = [_wheel(package, order, item.key) for package in packages]
    return tuple(sorted(wheels_found, key=lambda wheel: wheel.name))


def preferences(pin: PythonPin) -> str:
    """Return a lock of the same format, from which uv takes the versions that it keeps."""
    lines = ['lock-version = "1.0"', 'created-by = "lockstep"']
    for wheel in pin.packages:
        lines += ["[[packages]]", f"name = {json.dumps(wheel.name)}"]
        lines.append(f"version = {json.dumps(wheel.version)}")
    return "\n".join(lines) + "\n"


def _wheel(package: dict[str, Any], order: Mapping[Tag, int], where: str) -> WheelPin:
    name, version = str(package["name"]), str(package.get("version", ""))
    of_package = f"{where}: {name} {version}"
    # Of several suitable wheels, the one that an installer takes: built for the most alike machine.
    in_order = sorted(
        ((_rank(wheel, order), _file(wheel), wheel) for wheel in package.get("wheels") or ()),
        key=lambda entry: entry[:2],
    )
    if not in_order or in_order[0][0] == len(order):
        raise ResolveError(
            "there is no wheel for a Spark",
            where=of_package,
            found=", ".join(file for _, file, _ in in_order)[:160] or "none",
            remedy="Ask for another version of it, or of what needs it.",
        )
    _, file, wheel = in_order[0]
    sha256 = (wheel.get("hashes") or {}).get("sha256")
    if not sha256:
        raise ResolveError(
            "the index gives no SHA-256 of the wheel",
            where=of_package,
            found=file,
            remedy="Use an index or mirror that does.",
        )
    return WheelPin(canonicalize_name(name), version, file, str(sha256), wheel.get("size"))


def _file(wheel: dict[str, Any]) -> str:
    place = str(wheel.get("url") or wheel.get("path") or "")
    return str(wheel.get("name") or unquote(place.partition("#")[0].rpartition("/")[2]))


def _rank(wheel: dict[str, Any], order: Mapping[Tag, int]) -> int:
    """Return a wheel's place among a Spark's tags, best first; their number for no such tag."""
    try:
        tags = parse_wheel_filename(_file(wheel))[3]
    except InvalidWheelFilename:
        return len(order)
    return min(order.get(tag, len(order)) for tag in tags)


def _tags(architecture: str, python: str) -> Iterator[Tag]:
    """Yield the tags that a Spark takes, best first."""
    major, minor = GLIBC
    platforms = []
    for release in range(minor, 4, -1):
        platforms.append(f"manylinux_{major}_{release}_{architecture}")
        if release in _OLDER_NAMES:
            platforms.append(f"{_OLDER_NAMES[release]}_{architecture}")
    platforms.append(f"linux_{architecture}")
    version = tuple(map(int, python.split(".")))
    yield from cpython_tags(version, platforms=platforms)
    yield from compatible_tags(version, f"cp{version[0]}{version[1]}", platforms)
