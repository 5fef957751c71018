"""Names and places of a lab, and how a wrong one is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.core.errors import LabError
from lab.core.state import find_host, hosts, open_lab


def test_hosts_have_the_addresses_and_cards_of_the_contract() -> None:
    described = [(host.name, host.address, host.mac) for host in hosts(2)]
    assert described == [
        ("spark1", "10.77.0.11", "02:4c:53:00:00:0b"),
        ("spark2", "10.77.0.12", "02:4c:53:00:00:0c"),
    ]


@pytest.mark.parametrize("count", [0, 17, -1])
def test_a_number_of_hosts_that_the_subnet_cannot_hold_is_refused(count: int) -> None:
    with pytest.raises(LabError, match="1 to 16"):
        hosts(count)


def test_a_lab_is_named_by_argument_then_environment_then_default(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("LOCKSTEP_LAB", raising=False)
    assert open_lab().name == "lab"
    monkeypatch.setenv("LOCKSTEP_LAB", "second")
    assert open_lab().name == "second"
    assert open_lab("third").name == "third"


def test_places_come_from_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LOCKSTEP_LAB_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("LOCKSTEP_LAB_CACHE", str(tmp_path / "cache"))
    lab = open_lab("one")
    assert lab.description == tmp_path / "state/one/lab.json"
    assert lab.key == tmp_path / "state/one/ssh/id_ed25519"
    assert lab.cache == tmp_path / "cache"


@pytest.mark.parametrize("name", ["Lab", "a.b", "1st", "a/b", "-x", "a" * 25, "a b"])
def test_a_name_that_cannot_be_part_of_a_namespace_is_refused(name: str) -> None:
    with pytest.raises(LabError, match="lab name"):
        open_lab(name)


def test_no_two_labs_share_a_namespace() -> None:
    host = hosts(1)[0]
    lab, other = open_lab("lab"), open_lab("lab-spark1")
    assert lab.host_namespace(host) == "lockstep-lab.spark1"
    assert other.namespace == "lockstep-lab-spark1"


def test_an_unknown_host_is_refused_with_the_known_ones() -> None:
    with pytest.raises(LabError) as refused:
        find_host(hosts(2), "spark3")
    assert str(refused.value) == "no host 'spark3' in this lab\nKnown: spark1, spark2."
