"""Preflight: hosts of one cloned image are told apart by nobody, and refused."""

from __future__ import annotations

from typing import Any

import pytest

from lockstep import preflight
from lockstep.core.findings import FATAL


def told(machine_id: str, *keys: str) -> dict[str, Any]:
    return {"identity": {"machine_id": machine_id, "host_keys": list(keys)}}


def test_hosts_of_their_own_are_no_finding() -> None:
    # What could not be read is no likeness.
    facts = {"a": told("1", "ed25519 A"), "b": told("", "ed25519 B"), "c": told("")}
    assert preflight.between(facts) == []
    assert preflight.between({"a": facts["a"]}) == []


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
    found = preflight.between({"a": one, "b": other, "c": told("9", "C")})
    assert [item.subject for item in found] == ["a", "b"]
    assert {(item.code, item.severity) for item in found} == {("twin", "error")}
    assert found[0].message == said
    every = ("systemd-machine-id-setup", "ssh-keygen -A")
    assert tuple(word for word in every if word in found[0].remedy) == commands
    assert "CVE-2026-24218" in found[0].remedy
    assert "twin" in FATAL
