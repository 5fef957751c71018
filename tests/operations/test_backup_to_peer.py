"""Backups to the next Spark, deployed by the real pyinfra command, in memory."""

from __future__ import annotations

from pathlib import Path

import pytest
from a_site import Site, inventory
from fake_spark import HOSTS

from lockstep.units.backup_peer import (
    CLOSED,
    LISTENER,
    PRIVATE,
    UNIT,
    WAY,
    host_key_path,
    public_key_path,
)

pytestmark = pytest.mark.slow

PROGRAM = "/usr/bin/python3 /usr/local/lib/lockstep backup-key"


@pytest.fixture(scope="session")
def peers(repository: Path) -> Site:
    """Two hosts that keep each other's backups, after their first deploy."""
    backup = {"enabled": True, "to": ("peer",)}
    site = Site(repository, {}, inventory(repository, "peers", {"backup": backup}))
    result = site.deploy("-vvv", "--diff", "--debug")
    assert result.returncode == 0, result.stdout + result.stderr
    assert "private of" not in result.stdout + result.stderr
    return site


def files(site: Site, host: str) -> set[str]:
    return {path for path in site.document["hosts"][host]["files"] if "backup" in path}


def test_each_makes_a_key_and_the_other_takes_its_public_half(peers: Site) -> None:
    for host, peer in (HOSTS, HOSTS[::-1]):
        host_files = peers.document["hosts"][host]["files"]
        assert host_files[PRIVATE]["text"] == f"private of {host}"
        assert host_files[public_key_path(peer)]["text"] == f"public of {peer}"
        assert host_files[host_key_path(peer)]["text"] == f"public of {peer}"
        lines = [line for line in peers.changes(host) if line.startswith(PROGRAM)]
        assert sorted(line.split()[3] for line in lines) == ["host-key", "make", "take", "take"]
        # The listener opens when the account, the keys and its settings are there.
        changes = peers.changes(host)
        (start_place,) = (at for at, line in enumerate(changes) if f"start {UNIT}" in line)
        (account_place,) = (
            at
            for at, line in enumerate(changes)
            if line.startswith("useradd") and line.endswith("lockstep-backup")
        )
        assert account_place < start_place and changes.index(lines[-1]) < start_place


def test_the_second_deploy_changes_nothing_and_asks_once(peers: Site) -> None:
    again = Site(peers.repository, peers.document["hosts"], peers.inventory)
    assert again.deploy().returncode == 0
    for host in HOSTS:
        assert again.changes(host) == []
        assert again.commands(host) == ["? all"]


def test_a_wiped_host_s_new_key_is_taken_over(peers: Site) -> None:
    again = Site(peers.repository, peers.document["hosts"], peers.inventory)
    first, second = HOSTS
    again.document["hosts"][first]["files"][public_key_path(first)]["text"] = "public of another"
    assert again.deploy().returncode == 0
    assert again.changes(second) == [f"{PROGRAM} take {public_key_path(first)}"]


def test_a_private_half_that_is_lost_is_made_anew_with_its_public_one(peers: Site) -> None:
    again = Site(peers.repository, peers.document["hosts"], peers.inventory)
    first, second = HOSTS
    del again.document["hosts"][first]["files"][PRIVATE]
    again.document["hosts"][first]["files"][public_key_path(first)]["text"] = "public of before"
    again.document["hosts"][second]["files"][public_key_path(first)]["text"] = "public of before"
    assert again.deploy().returncode == 0
    assert again.changes(first) == [f"{PROGRAM} make {PRIVATE} {public_key_path(first)}"]
    assert again.changes(second) == [f"{PROGRAM} take {public_key_path(first)}"]


def test_out_of_the_inventory_the_listener_the_keys_and_the_account_go(peers: Site) -> None:
    without = Site(peers.repository, peers.document["hosts"])
    result = without.deploy()
    assert result.returncode == 0, result.stdout + result.stderr
    for host, peer in (HOSTS, HOSTS[::-1]):
        assert files(peers, host) >= {PRIVATE, LISTENER, WAY, public_key_path(peer)}
        assert {path for path in files(without, host) if "/lib/lockstep/" not in path} == set()
        changes = without.changes(host)
        (stop_place,) = (
            at for at, line in enumerate(changes) if UNIT in line and "disable" in line
        )
        (close_place,) = (at for at, line in enumerate(changes) if CLOSED[-1] in line)
        remove_place = next(at for at, line in enumerate(changes) if line.startswith("remove "))
        assert stop_place < close_place < remove_place


def test_without_its_peer_a_first_deploy_is_refused_before_anything_is_touched(peers: Site) -> None:
    alone = Site(peers.repository, {}, peers.inventory)
    result = alone.deploy("--limit", HOSTS[0])
    assert result.returncode == 1
    assert result.stderr.count("key-elsewhere") == 2
    assert alone.commands(HOSTS[0]) == ["? all"]
