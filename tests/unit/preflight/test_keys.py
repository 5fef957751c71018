"""Preflight: a key is to come from a host that is not deployed to now."""

from __future__ import annotations

from typing import Any

import pytest
from a_spark import pins_for, spark

from lockstep import preflight
from lockstep.core.findings import FATAL
from lockstep.host.intended import Intended
from lockstep.inventory.cluster_join import joined

NAMES = ("spark1", "spark2")
KEPT = {"mode": "0600", "owner": "root", "group": "root", "seal": "s"}


def found(files: dict[str, Any] | None, *run: str) -> list[tuple[str, str]]:
    """Who lacks which key, of two hosts with an authority of their own; all have `files`."""
    gateway = {"bind": "0.0.0.0", "tls": "own"}
    plans = joined([spark(name, gateway=gateway) for name in NAMES], "site.py")
    shared = {plan.name: Intended(plan, pins_for(plan)).shared_keys for plan in plans}
    (path,) = {key.path for every in shared.values() for key in every}
    said = preflight.keys_elsewhere(
        {name: shared[name] for name in run}, {name: {path: files} for name in run}
    )
    assert {(item.code, item.severity) for item in said} <= {("key-elsewhere", "error")}
    assert all("Deploy to spark1, spark2 together" in item.remedy for item in said)
    return [(item.subject, item.message) for item in said]


def test_a_first_deploy_to_all_is_no_finding() -> None:
    assert found(None, *NAMES) == []
    # It makes the key itself.
    assert found(None, "spark1") == []


@pytest.mark.parametrize("files", [None, {**KEPT, "mode": "0644"}, {**KEPT, "owner": "anna"}])
def test_one_without_the_key_is_refused_where_its_maker_is_left_out(
    files: dict[str, Any] | None,
) -> None:
    [(host, said)] = found(files, "spark2")
    assert host == "spark2"
    assert said == (
        "the authority of certificates is to come from spark1, which is not part of this run"
    )
    assert "key-elsewhere" in FATAL


def test_one_that_has_the_key_is_deployed_alone() -> None:
    assert found(KEPT, "spark2") == []
