"""The words for a load beside its disk."""

from __future__ import annotations

import pytest

from lockstep.onhost.engine import log_phases
from lockstep.onhost.weights import load_progress_text

GIB = 2**30


def test_a_load_is_told_with_its_rate_and_the_disks_own_if_somebody_measured_it():
    text = load_progress_text.load_progress_text(23.4 * GIB, 66.2 * GIB, 410.2e6, 469.7)
    assert text == "loading weights: 23.4 of 66.2 GiB, 410 MB/s (this disk gives 470)"
    # switch.sh shows it as a phase of the start.
    assert log_phases.announced_phase(f"lockstep ready: {text}") == text
    text = load_progress_text.load_progress_text(0, 66.2 * GIB, 4.25e6, None)
    assert text == "loading weights: 0.0 of 66.2 GiB, 4.2 MB/s"


@pytest.mark.parametrize(
    ("gib", "seconds", "disk", "text"),
    [
        (66, 298, 475.0, None),
        (66, 299, 475.0, "loads at 237 MB/s, and its disk gives 475"),
        (66, 606, None, None),
        (66, 0, 475.0, None),
    ],
)
def test_a_load_below_half_of_its_disk_is_slow(gib, seconds, disk, text):
    assert load_progress_text.below_disk_rate_text(gib * GIB, seconds, disk) == text
