"""Words for the load of a model's weights: how far, how fast, and what its disk would give."""

from __future__ import annotations

from lockstep.onhost.core.unified_memory import GIB

#: Part of its disk's rate below which a load is a finding.
SLOW_SHARE = 0.5


def load_progress_text(
    done_bytes: float, all_bytes: float, bytes_per_s: float, disk_mb_s: float | None
) -> str:
    """Return the progress of a load in one line; `disk_mb_s` is None if nobody measured the disk.

    Example:
        loading weights: 23.4 of 66.2 GiB, 410 MB/s (this disk gives 470)
    """
    return (
        f"loading weights: {done_bytes / GIB:.1f} of {all_bytes / GIB:.1f} GiB, "
        f"{rate_text(bytes_per_s, disk_mb_s)}"
    )


def rate_text(bytes_per_s: float, disk_mb_s: float | None) -> str:
    """Return a rate beside the disk's own, if that is known."""
    disk = f" (this disk gives {_number(disk_mb_s)})" if disk_mb_s else ""
    return f"{_number(bytes_per_s / 1e6)} MB/s{disk}"


def below_disk_rate_text(bytes_read: float, seconds: float, disk_mb_s: float | None) -> str | None:
    """Return that a load was slower than half of its disk's rate; None if not, or if unknown."""
    if not disk_mb_s or seconds <= 0:
        return None
    mb_s = bytes_read / 1e6 / seconds
    if mb_s >= SLOW_SHARE * disk_mb_s:
        return None
    return f"loads at {_number(mb_s)} MB/s, and its disk gives {_number(disk_mb_s)}"


def _number(mb_s: float) -> str:
    return f"{mb_s:.{0 if mb_s >= 10 else 1}f}"
