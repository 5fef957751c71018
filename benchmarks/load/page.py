"""The results of a run as a page, and whether they are within the bound."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import Any

from benchmarks.load.ways import LOCKSTEP

#: How long a load may take, as a ratio of the plain read of its bytes.
BOUND = 1.25
Row = Mapping[str, Any]


def is_within_bound(loads: Sequence[Row]) -> bool:
    """Tell whether the median ratio with Lockstep is within the bound for every engine and disk."""
    return all(
        median(_ratios(rows)) <= BOUND
        for (_, _, way), rows in _groups(loads).items()
        if way == LOCKSTEP.name
    )


def text(results: Mapping[str, Any]) -> str:
    """The page: the disks as they were found, and the loads."""
    about = results["about"]
    lines = [f"{key}: {value}  " for key, value in about.items()]
    lines += ["", "| disk | set | plain read | 4 KiB at random | mapped pages, kernel | Lockstep |"]
    lines += ["|---|---|---:|---:|---:|---:|"]
    for row in results["disks"]:
        lines.append(
            f"| {row['disk']} | {row['rate'] / 1e6:.0f} MB/s, {row['latency'] * 1e3:.2f} ms "
            f"| {row['plain_rate'] / 1e6:.0f} MB/s | {row['random_s'] * 1e3:.2f} ms "
            f"| {row['mapped_rate_kernel'] / 1e6:.0f} MB/s "
            f"| {row['mapped_rate_lockstep'] / 1e6:.0f} MB/s |"
        )
    head = "| engine | disk | way | load | MB/s | plain read | ratio | page cache: most, after |"
    lines += ["", head, "|---|---|---|---:|---:|---:|---:|---:|"]
    for (engine, disk, way), rows in _groups(results["loads"]).items():
        ratios = _ratios(rows)
        seconds = median(row["seconds"] for row in rows)
        spread = f" ({min(ratios):.2f} to {max(ratios):.2f})" if len(ratios) > 1 else ""
        rate = rows[0]["bytes"] / seconds / 1e6
        cache = [max(row[key] for row in rows) for key in ("most_cached", "left_cached")]
        lines.append(
            f"| {engine} | {disk} | {way} | {seconds:.1f} s | {rate:.0f} "
            f"| {median(row['plain_s'] for row in rows):.1f} s | {median(ratios):.2f}{spread} "
            f"| {cache[0] / 2**30:.1f}, {cache[1] / 2**30:.1f} GiB |"
        )
    for row in results["failures"]:
        where = f"{row['engine']} on {row['disk']}, {row['way']}"
        lines += ["", f"**{where}** did not load:", "", "```", row["log"].rstrip(), "```"]
    return "\n".join(lines) + "\n"


def _groups(loads: Iterable[Row]) -> dict[tuple[str, str, str], list[Row]]:
    groups: dict[tuple[str, str, str], list[Row]] = {}
    for row in loads:
        groups.setdefault((row["engine"], row["disk"], row["way"]), []).append(row)
    return groups


def _ratios(rows: Sequence[Row]) -> list[float]:
    return [row["seconds"] / row["plain_s"] for row in rows]
