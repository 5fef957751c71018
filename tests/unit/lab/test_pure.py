"""Names and places of a lab, its readings of the machine underneath, and a guest's command."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from lab_servers import until

from lab import control
from lab.core.errors import LabError
from lab.core.state import Lab, find_host, hosts, open_lab
from lab.host import connection, disk, network
from lab.host.cable import MOST_FRAMES, Line
from lab.host.machine import nspawn_command


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab("one", tmp_path / "state", tmp_path / "cache")


def test_a_deleted_lab_is_away_at_once_and_its_space_comes_free_later(lab: Lab) -> None:
    (lab.state / "hosts/spark1").mkdir(parents=True)
    # Of one that was killed over it.
    target_path = lab.state.parent / ".deleted-earlier"
    target_path.mkdir()
    disk.delete(lab)
    assert not lab.state.exists()
    until(lambda: not list(lab.state.parent.glob(".deleted-*")), "its space is free")
    disk.delete(lab)


def test_a_guest_may_touch_neither_clock_nor_modules_of_the_machine(lab: Lab) -> None:
    for version in ("v1", "v2"):
        command = nspawn_command(lab, hosts(1)[0], version)
        assert "--drop-capability=CAP_SYS_TIME,CAP_SYS_MODULE,CAP_SYS_RAWIO" in command
        assert "--network-namespace-path=/run/netns/lockstep-one.spark1" in command


def test_a_lab_that_is_down_or_has_crashed_says_what_to_type(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("LOCKSTEP_LAB_STATE", str(tmp_path))
    monkeypatch.setattr(network, "NAMESPACES", tmp_path / "netns")
    with pytest.raises(LabError) as down:
        connection.load("one")
    assert str(down.value) == "lab 'one' is not up\nRun: lockstep lab up --name one"
    lab = open_lab("one")
    lab.state.mkdir()
    description = connection.describe(lab, hosts(1))
    connection.save(lab, description)
    with pytest.raises(LabError, match="has crashed"):
        connection.load("one")
    (tmp_path / "netns").mkdir()
    (tmp_path / "netns" / lab.namespace).touch()
    assert connection.load("one") == description
    document = json.loads(lab.description.read_text())
    del document["services"]["vllm_wheels"]
    lab.description.write_text(json.dumps(document))
    with pytest.raises(LabError, match="by an older Lockstep, without vllm_wheels"):
        connection.load("one")
    with pytest.raises(LabError, match="is not up"):
        control.ask(lab, "status")


def test_a_slow_line_delivers_in_order_and_not_before_its_time_and_drops_what_is_too_much() -> None:
    line = Line(delay=0.5)
    line.put(b"first", now=10.0)
    line.put(b"second", now=10.1)
    assert line.due(10.4) == []
    assert line.next_due == 10.5
    assert line.due(10.5) == [b"first"]
    assert line.due(11.0) == [b"second"]
    assert line.next_due is None
    for number in range(MOST_FRAMES + 5):
        line.put(str(number).encode(), now=11.0)
    assert line.due(12.0)[-1] == str(MOST_FRAMES - 1).encode()


def test_a_host_without_a_gpu_has_the_node_of_the_stand_in_and_one_with_a_gpu_its_own(
    lab: Lab,
) -> None:
    stand_in = "--bind=/dev/null:/dev/nvidiactl"
    assert stand_in in nspawn_command(lab, hosts(1)[0], "v2")
    own = "--bind=/dev/nvidiactl:/dev/nvidiactl"
    command = nspawn_command(lab, hosts(1)[0], "v2", [own])
    assert own in command and stand_in not in command


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
    assert (open_lab().name, open_lab("third").name) == ("second", "third")


@pytest.mark.parametrize("name", ["Lab", "a.b", "1st", "a/b", "-x", "a" * 25, "a b"])
def test_a_name_that_cannot_be_part_of_a_namespace_is_refused(name: str) -> None:
    with pytest.raises(LabError, match="lab name"):
        open_lab(name)


def test_no_two_labs_share_a_namespace_and_an_unknown_host_is_refused_with_the_known_ones() -> None:
    assert open_lab("lab").host_namespace(hosts(1)[0]) == "lockstep-lab.spark1"
    assert open_lab("lab-spark1").namespace == "lockstep-lab-spark1"
    with pytest.raises(LabError) as error:
        find_host(hosts(2), "spark3")
    assert str(error.value) == "no host 'spark3' in this lab\nKnown: spark1, spark2."
