"""Names and places of a lab, and how a wrong one is refused."""

from __future__ import annotations

import pytest

from lab.core.errors import LabError
from lab.core.state import find_host, hosts, open_lab


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


@pytest.mark.parametrize("name", ["Lab", "a.b", "1st", "a/b", "-x", "a" * 25, "a b"])
def test_a_name_that_cannot_be_part_of_a_namespace_is_refused(name: str) -> None:
    with pytest.raises(LabError, match="lab name"):
        open_lab(name)


def test_no_two_labs_share_a_namespace() -> None:
    host = hosts(1)[0]
    lab, other_lab = open_lab("lab"), open_lab("lab-spark1")
    assert lab.host_namespace(host) == "lockstep-lab.spark1"
    assert other_lab.namespace == "lockstep-lab-spark1"


def test_an_unknown_host_is_refused_with_the_known_ones() -> None:
    with pytest.raises(LabError) as error:
        find_host(hosts(2), "spark3")
    assert str(error.value) == "no host 'spark3' in this lab\nKnown: spark1, spark2."
