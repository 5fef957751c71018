"""The order of Debian versions is dpkg's."""

from __future__ import annotations

import shutil
import subprocess
from functools import cmp_to_key

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lockstep.debian_version import compare

# Oldest first.
ORDERED = [
    "1.0~~",
    "1.0~rc1-1",
    "1.0~rc2-1",
    "1.0",
    "1.0-0ubuntu1",
    "1.0-1",
    "1.0-1ubuntu1",
    "1.0-1ubuntu1.1",
    "1.0-1ubuntu1.10",
    "1.0-2~bpo1",
    "1.0-2",
    "1.0a-1",
    "1.0+dfsg-1",
    "1.0.1-1",
    "1.9-1",
    "1.10-1",
    "1:0.1-1",
    "2:0-1",
]


def test_newer_versions_come_after_older_ones() -> None:
    assert sorted(reversed(ORDERED), key=cmp_to_key(compare)) == ORDERED


def test_leading_zeros_and_an_absent_epoch_mean_nothing() -> None:
    assert compare("0:1.01-1", "1.1-1") == 0


VERSIONS = st.from_regex(r"([0-9]:)?[0-9][a-z0-9.+~]{0,6}(-[a-z0-9.+~]{1,4})?", fullmatch=True)


@pytest.mark.skipif(shutil.which("dpkg") is None, reason="dpkg is the judge")
@settings(deadline=None, max_examples=60)
@given(VERSIONS, VERSIONS)
def test_dpkg_agrees(one: str, other: str) -> None:
    relation = {-1: "lt", 0: "eq", 1: "gt"}[compare(one, other)]
    judged = subprocess.run(["dpkg", "--compare-versions", one, relation, other], check=False)
    assert judged.returncode == 0
