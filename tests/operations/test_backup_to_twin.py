"""Backups to the next Spark, deployed by the real pyinfra command, in memory."""

from __future__ import annotations

from pathlib import Path

import pytest
from a_site import Site, inventory
from fake_spark import HOSTS

from lockstep.units.backup_twin import CLOSED, DOOR, PRIVATE, UNIT, WAY, door_path, public_path

pytestmark = pytest.mark.slow

PROGRAM = "/usr/bin/python3 /usr/local/lib/lockstep backup-key"


@pytest.fixture(scope="session")
def twins(repository: Path) -> Site:
    """Two hosts that keep each other's backups, after their first deploy."""
    backup = {"enabled": True, "to": ("twin",)}
    site = Site(repository, {}, inventory(repository, "twins", {"backup": backup}))
    done = site.deploy("-vvv", "--diff", "--debug")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "private of" not in done.stdout + done.stderr
    return site


def files(site: Site, host: str) -> set[str]:
    return {path for path in site.document["hosts"][host]["files"] if "backup" in path}


def test_each_makes_a_key_and_the_other_takes_its_public_half(twins: Site) -> None:
    for mine, other in (HOSTS, HOSTS[::-1]):
        kept = twins.document["hosts"][mine]["files"]
        assert kept[PRIVATE]["text"] == f"private of {mine}"
        assert kept[public_path(other)]["text"] == f"public of {other}"
        assert kept[door_path(other)]["text"] == f"public of {other}"
        lines = [line for line in twins.changes(mine) if line.startswith(PROGRAM)]
        assert sorted(line.split()[3] for line in lines) == ["door", "make", "take", "take"]
        # The door opens when the account, the keys and its settings are there.
        changes = twins.changes(mine)
        (opened,) = (at for at, line in enumerate(changes) if f"start {UNIT}" in line)
        (made,) = (
            at
            for at, line in enumerate(changes)
            if line.startswith("useradd") and line.endswith("lockstep-backup")
        )
        assert made < opened and changes.index(lines[-1]) < opened


def test_the_second_deploy_changes_nothing_and_asks_once(twins: Site) -> None:
    again = Site(twins.repository, twins.document["hosts"], twins.inventory)
    assert again.deploy().returncode == 0
    for host in HOSTS:
        assert again.changes(host) == []
        assert again.ran(host) == ["? all"]


def test_a_wiped_host_s_new_key_is_taken_over(twins: Site) -> None:
    again = Site(twins.repository, twins.document["hosts"], twins.inventory)
    first, second = HOSTS
    again.document["hosts"][first]["files"][public_path(first)]["text"] = "public of another"
    assert again.deploy().returncode == 0
    assert again.changes(second) == [f"{PROGRAM} take {public_path(first)}"]


def test_a_private_half_that_is_lost_is_made_anew_with_its_public_one(twins: Site) -> None:
    again = Site(twins.repository, twins.document["hosts"], twins.inventory)
    first, second = HOSTS
    del again.document["hosts"][first]["files"][PRIVATE]
    again.document["hosts"][first]["files"][public_path(first)]["text"] = "public of before"
    again.document["hosts"][second]["files"][public_path(first)]["text"] = "public of before"
    assert again.deploy().returncode == 0
    assert again.changes(first) == [f"{PROGRAM} make {PRIVATE} {public_path(first)}"]
    assert again.changes(second) == [f"{PROGRAM} take {public_path(first)}"]


def test_out_of_the_inventory_the_door_the_keys_and_the_account_go(twins: Site) -> None:
    without = Site(twins.repository, twins.document["hosts"])
    done = without.deploy()
    assert done.returncode == 0, done.stdout + done.stderr
    for mine, other in (HOSTS, HOSTS[::-1]):
        assert files(twins, mine) >= {PRIVATE, DOOR, WAY, public_path(other)}
        assert {path for path in files(without, mine) if "/lib/lockstep/" not in path} == set()
        changes = without.changes(mine)
        (ended,) = (at for at, line in enumerate(changes) if UNIT in line and "disable" in line)
        (gone,) = (at for at, line in enumerate(changes) if CLOSED[-1] in line)
        removed = next(at for at, line in enumerate(changes) if line.startswith("remove "))
        assert ended < gone < removed


def test_without_its_twin_a_first_deploy_is_refused_before_anything_is_touched(twins: Site) -> None:
    alone = Site(twins.repository, {}, twins.inventory)
    done = alone.deploy("--limit", HOSTS[0])
    assert done.returncode == 1
    assert done.stderr.count("key-elsewhere") == 2
    assert alone.ran(HOSTS[0]) == ["? all"]
