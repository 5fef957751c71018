"""Memory that programs can get now, bytes: the kernel's MemAvailable. No argument is read."""

from __future__ import annotations

from typing import Any


def main(asked: dict[str, Any]) -> int:
    with open("/proc/meminfo", encoding="utf-8") as lines:
        pairs = dict(line.split(":", 1) for line in lines)
    return int(pairs["MemAvailable"].split()[0]) * 1024
