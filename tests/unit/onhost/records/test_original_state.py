"""The state before Lockstep is recorded once, and before the first change."""

from __future__ import annotations

import getpass

import pytest

from lockstep.onhost.core import layout
from lockstep.onhost.records import original_state

ASKED = {
    "paths": ["/data", "/etc/lockstep.d"],
    "accounts": ["nobody-knows", getpass.getuser()],
    "groups": ["nobody-knows"],
    "sysctls": ["vm.swappiness", "vm.none"],
}


@pytest.fixture
def paths(paths) -> layout.Paths:
    (paths.root / "data").mkdir(mode=0o750)
    (paths.root / "proc/sys/vm").mkdir(parents=True)
    (paths.root / "proc/sys/vm/swappiness").write_text("60\n")
    return paths


def test_the_state_is_noted_once_and_stays_as_it_was(paths):
    assert original_state.unrecorded_items(paths, ASKED) == ASKED
    original_state.record_items(paths, ASKED)
    record = original_state.load(paths)
    assert record.whole and record.paths["/data"].startswith("folder 0750 ")
    assert record.paths["/etc/lockstep.d"] is None
    assert record.accounts["nobody-knows"] is None and record.groups == {"nobody-knows": None}
    assert record.accounts[getpass.getuser()] is not None
    assert record.sysctls == {"vm.swappiness": "60", "vm.none": None}
    assert paths.baseline.stat().st_mode & 0o777 == 0o600
    assert original_state.unrecorded_items(paths, ASKED) == {}

    (paths.root / "proc/sys/vm/swappiness").write_text("10\n")
    (paths.root / "etc/lockstep.d").mkdir(parents=True)
    more = {**ASKED, "sysctls": ["vm.swappiness", "vm.later"]}
    assert original_state.unrecorded_items(paths, more)["sysctls"] == ["vm.later"]
    original_state.record_items(paths, more)
    again = original_state.load(paths)
    assert again.sysctls == {**record.sysctls, "vm.later": None}
    assert again.paths == record.paths and again.whole


@pytest.mark.parametrize(
    ("path", "whole"),
    [("etc/lockstep/my-notes.txt", True), ("usr/local/lib/lockstep/__main__.py", False)],
)
def test_a_host_that_an_earlier_version_deployed_is_known_by_its_program(paths, path, whole):
    (paths.root / path).parent.mkdir(parents=True)
    (paths.root / path).touch()
    original_state.record_items(paths, ASKED)
    assert original_state.load(paths).whole is whole


def test_the_question_has_every_folder_above_but_none_of_ours():
    asked_paths = ["/data/scripts/a.sh", "/etc/lockstep/x.json", "/var/lib/lockstep"]
    with_parents = ["/data", "/data/scripts", "/data/scripts/a.sh", "/etc", "/var", "/var/lib"]
    assert original_state.with_parent_folders(asked_paths) == with_parents
