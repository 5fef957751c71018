"""Preflight: the hosts of one run against each other: twins of one image, and keys left out."""

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
    lacking = {name: shared[name] for name in run}
    said = list(preflight.keys_elsewhere(lacking, {name: {path: files} for name in run}))
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


def told(machine_id: str, *keys: str) -> dict[str, Any]:
    return {"identity": {"machine_id": machine_id, "host_keys": list(keys)}}


def test_hosts_of_their_own_are_no_finding() -> None:
    # What could not be read is no likeness.
    facts = {"a": told("1", "ed25519 A"), "b": told("", "ed25519 B"), "c": told("")}
    assert list(preflight.twins(facts)) == []
    assert list(preflight.twins({"a": facts["a"]})) == []


@pytest.mark.parametrize(
    ("one", "other", "said", "commands"),
    [
        (
            told("1", "rsa A", "ed25519 K"),
            told("1", "rsa B", "ed25519 K"),
            "its machine-id is that of b too, and its SSH host key ed25519 K is that of b too",
            ("systemd-machine-id-setup", "ssh-keygen -A"),
        ),
        (told("1", "K"), told("2", "K"), "its SSH host key K is that of b too", ("ssh-keygen -A",)),
        (
            told("1", "A"),
            told("1", "B"),
            "its machine-id is that of b too",
            ("systemd-machine-id-setup",),
        ),
    ],
)
def test_each_of_two_twins_is_named_with_the_other_and_what_to_type(
    one: dict[str, Any], other: dict[str, Any], said: str, commands: tuple[str, ...]
) -> None:
    twins = list(preflight.twins({"a": one, "b": other, "c": told("9", "C")}))
    assert [item.subject for item in twins] == ["a", "b"]
    assert {(item.code, item.severity) for item in twins} == {("twin", "error")}
    assert twins[0].message == said
    every = ("systemd-machine-id-setup", "ssh-keygen -A")
    assert tuple(word for word in every if word in twins[0].remedy) == commands
    assert "CVE-2026-24218" in twins[0].remedy
    assert "twin" in FATAL
