"""Names and places of a lab, a guest's command, and content: built once, named by its inputs."""

import json
import os
import time
from pathlib import Path

import pytest
from lab_servers import until

from lab import control
from lab.core.cache import build_once, fingerprint, prune
from lab.core.errors import LabError
from lab.core.state import Lab, find_host, hosts, open_lab
from lab.host import connection, disk, network
from lab.host.cable import MOST_FRAMES, Line
from lab.host.machine import nspawn_command
from lab.packages import installed_wheels


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
    command = nspawn_command(lab, hosts(1)[0], "v2")
    assert "--drop-capability=CAP_SYS_TIME,CAP_SYS_MODULE,CAP_SYS_RAWIO" in command
    # Without a GPU it has the stand-in's node, and else its own.
    stand_in, own = (f"--bind=/dev/{name}:/dev/nvidiactl" for name in ("null", "nvidiactl"))
    assert stand_in in command
    command = nspawn_command(lab, hosts(1)[0], "v2", [own])
    assert own in command and stand_in not in command


def test_a_lab_that_is_down_or_has_crashed_says_what_to_type(monkeypatch, tmp_path) -> None:
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


def test_a_lab_is_named_by_argument_then_environment_then_default(monkeypatch) -> None:
    monkeypatch.delenv("LOCKSTEP_LAB", raising=False)
    assert open_lab().name == "lab"
    monkeypatch.setenv("LOCKSTEP_LAB", "second")
    assert (open_lab().name, open_lab("third").name) == ("second", "third")
    # It is part of a namespace, where no two labs may meet.
    assert open_lab("lab").host_namespace(hosts(1)[0]) == "lockstep-lab.spark1"
    assert open_lab("lab-spark1").namespace == "lockstep-lab-spark1"
    # As many hosts as the subnet can hold.
    for count in (0, 17):
        with pytest.raises(LabError, match="1 to 16"):
            hosts(count)
    for name in ("Lab", "a.b", "1st", "a/b", "a" * 25):
        with pytest.raises(LabError, match="lab name"):
            open_lab(name)
    with pytest.raises(LabError, match=r"no host 'spark3' in this lab\nKnown: spark1, spark2\."):
        find_host(hosts(2), "spark3")


def test_an_interrupted_build_leaves_nothing_that_looks_finished(tmp_path: Path) -> None:
    def interrupt_build(folder: Path) -> None:
        (folder / "half").write_text("x")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build_once(tmp_path / "thing", interrupt_build, print, "thing")
    assert not (tmp_path / "thing").exists()
    # Nor has the next one anything of it.
    (tmp_path / "thing.unfinished").mkdir(exist_ok=True)
    (tmp_path / "thing.unfinished" / "left over").write_text("x")
    build_once(tmp_path / "thing", lambda folder: None, print, "thing")
    assert list((tmp_path / "thing").iterdir()) == []


def test_a_fingerprint_changes_with_the_content_of_a_file_in_a_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("one")
    earlier_fingerprint = fingerprint(["1.0", tmp_path])
    (tmp_path / "file").write_text("two")
    assert fingerprint(["1.0", tmp_path]) != earlier_fingerprint
    assert fingerprint(["ab", "c"]) != fingerprint(["a", "bc"])


def test_a_replaced_build_is_removed_only_when_nobody_has_used_it_for_long(tmp_path: Path) -> None:
    for name in ("index-current", "index-used", "index-old", "index-", "root-old"):
        (tmp_path / name).mkdir()
    month = 30 * 86400
    for name in ("index-current", "index-used", "index-old", "root-old"):
        os.utime(tmp_path / name, (time.time() - month, time.time() - month))
    build_once(tmp_path / "index-used", lambda new: None, print, "index")
    prune(tmp_path, ["index"], [tmp_path / "index-current"], print)
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"index-current", "index-used", "index-", "root-old"}


def test_a_second_call_makes_everything_anew_and_leaves_what_is_no_wheel(tmp_path: Path) -> None:
    out, info = tmp_path / "out", tmp_path / "site/torch-1.dist-info"
    info.mkdir(parents=True)
    (tmp_path / "site/torch.py").write_text("")
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: torch\nVersion: 1\n\n")
    (info / "WHEEL").write_text("Wheel-Version: 1.0\nTag: py3-none-any\n")
    (info / "RECORD").write_text("torch-1.dist-info/METADATA,,\ntorch-1.dist-info/WHEEL,,\n")
    words = [str(out), str(tmp_path / "site"), "--need", "torch"]
    package = out / "torch/__init__.py"
    package.parent.mkdir(parents=True)
    package.write_text("")
    assert installed_wheels.main(words) == 0
    assert package.exists(), "its folder had no wheel of ours"
    assert installed_wheels.main(words) == 0
    assert sorted(path.relative_to(out).as_posix() for path in out.rglob("*.whl")) == [
        "simple/torch/torch-1-py3-none-any.whl",
        "torch/torch/torch-1-py3-none-any.whl",
        "wheels/torch-1-py3-none-any.whl",
    ]
