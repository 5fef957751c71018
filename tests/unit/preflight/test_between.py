"""Preflight: the hosts of one run against each other: clones of one image, and keys left out."""

from typing import Any

import pytest
from a_spark import pins_for, spark

from lockstep import preflight
from lockstep.core.findings import FATAL
from lockstep.host.desired_state import DesiredState
from lockstep.host.keys_shared_by_hosts import SharedKey
from lockstep.inventory.cluster_join import join_clusters

NAMES = ("spark1", "spark2")
KEPT = {"mode": "0600", "owner": "root", "group": "root", "seal": "s"}


def keys_of(*names: str) -> dict[str, tuple[SharedKey, ...]]:
    """The keys of hosts with an authority of their own."""
    gateway = {"bind": "0.0.0.0", "tls": "own"}
    plans = join_clusters([spark(name, gateway=gateway) for name in names], "site.py")
    return {plan.name: DesiredState(plan, pins_for(plan)).shared_keys for plan in plans}


def lacking_keys(files: dict[str, Any] | None, *run: str) -> list[tuple[str, str]]:
    """The keys that each of two such hosts lacks; all have `files`."""
    shared_keys = keys_of(*NAMES)
    (path,) = {key.path for every in shared_keys.values() for key in every}
    lacking = {name: shared_keys[name] for name in run}
    findings = list(preflight.keys_elsewhere(lacking, {name: {path: files} for name in run}))
    assert {(item.code, item.severity) for item in findings} <= {("key-elsewhere", "error")}
    assert all("Deploy to spark1, spark2 together" in item.remedy for item in findings)
    return [(item.subject, item.message) for item in findings]


@pytest.mark.parametrize(("host", "absent"), [NAMES, NAMES[::-1]])
def test_one_without_the_key_is_refused_where_another_that_may_have_it_is_left_out(host, absent):
    """The first host too: it would make a second authority."""
    message = f"the authority of certificates is to come from {absent}, which this run does not"
    assert lacking_keys(None, host) == [(host, f"{message} reach")]
    assert lacking_keys(None, *NAMES) == [], "a first deploy to all"


def test_one_that_has_the_key_is_deployed_alone():
    """Read access there does not matter: the program that makes a key restores its mode."""
    assert [lacking_keys({**KEPT, "mode": "0644"}, name) for name in NAMES] == [[], []]


@pytest.mark.parametrize(
    ("seal_by_host", "giver"),
    [
        ({"spark1": None, "spark2": None, "spark3": None}, "spark1"),
        ({"spark1": None, "spark2": "s", "spark3": "s"}, "spark2"),
        ({"spark1": None, "spark3": "s"}, "spark3"),
        ({"spark1": None, "spark2": None}, ""),
    ],
)
def test_a_key_comes_from_a_host_that_has_it(seal_by_host: Any, giver: str) -> None:
    (key,) = keys_of(*NAMES, "spark3")["spark1"]
    seals = seal_by_host.items()
    files = {host: {key.path: seal and {**KEPT, "seal": seal}} for host, seal in seals}
    assert key.giving_host(files) == giver


def test_two_authorities_are_a_finding_that_names_both() -> None:
    (key,) = keys_of(*NAMES, "spark3")["spark1"]
    seals = (("spark1", "s"), ("spark2", "t"), ("spark3", "s"))
    files = {host: {key.path: {**KEPT, "seal": seal}} for host, seal in seals}
    shared_keys = {name: [key] for name in files}
    (finding,) = preflight.keys_apart(shared_keys, files)
    assert (finding.code, finding.severity) == ("key-differs", "error")
    assert finding.message.endswith(f"{key.path}: one on spark1, spark3; another one on spark2")
    assert list(preflight.keys_apart(shared_keys, {**files, "spark2": files["spark1"]})) == []


def identity_facts(machine_id: str, *keys: str) -> dict[str, Any]:
    return {"identity": {"machine_id": machine_id, "host_keys": list(keys)}}


def test_each_of_two_clones_is_named_with_the_other_and_what_to_type():
    hosts = {
        "a": identity_facts("1", "rsa A", "ed25519 K"),
        "b": identity_facts("1", "rsa B", "ed25519 K"),
        # What could not be read is no likeness.
        "c": identity_facts("", "ed25519 C"),
        "d": identity_facts(""),
    }
    clones = list(preflight.clones(hosts))
    assert [item.subject for item in clones] == ["a", "b"]
    assert {(item.code, item.severity) for item in clones} == {("clone", "error")}
    assert clones[0].message == (
        "its machine-id is that of b too, and its SSH host key ed25519 K is that of b too"
    )
    assert "CVE-2026-24218" in clones[0].remedy


@pytest.mark.parametrize(
    ("second", "remedy"),
    [(identity_facts("2", "K"), "ssh-keygen -A"), (identity_facts("1"), "machine-id-setup")],
)
def test_a_clone_of_one_of_both_is_told_to_make_that_anew(second: Any, remedy: str):
    [clone, _] = preflight.clones({"a": identity_facts("1", "K"), "b": second})
    commands = ("ssh-keygen -A", "machine-id-setup")
    assert [command for command in commands if command in clone.remedy] == [remedy]


def test_a_host_that_was_deployed_as_another_one_of_the_inventory_is_named() -> None:
    [finding] = preflight.exchanged_hosts("spark1", {"named": "spark2"}, NAMES)
    assert (finding.code, finding.severity, finding.subject) == ("other-host", "error", "spark1")
    assert "was deployed as spark2" in finding.message
    assert "Compare ssh_hostname of spark1 and spark2" in finding.remedy
    # It can be waived: two hosts may change places on purpose.
    assert "other-host" not in FATAL
    for name in ("", "spark1", "the-old-name"):
        assert list(preflight.exchanged_hosts("spark1", {"named": name}, NAMES)) == []
