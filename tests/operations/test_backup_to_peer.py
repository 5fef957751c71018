"""Backups to the next Spark, deployed by the real pyinfra command, in memory."""

from __future__ import annotations

import re
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
        (start,) = (line for line in changes if f"start {UNIT}" in line)
        (account,) = (line for line in changes if re.match("useradd .* lockstep-backup$", line))
        assert max(map(changes.index, (account, lines[-1]))) < changes.index(start)


def test_a_key_that_another_host_lacks_is_carried_and_then_nothing_is_changed(peers: Site) -> None:
    first, second = HOSTS
    take = f"{PROGRAM} take {public_key_path(first)}"
    again = peers.again()
    again.deploy()
    assert [again.commands(host) for host in HOSTS] == [["? all"], ["? all"]]
    # A wiped host's new key is taken over.
    again.document["hosts"][first]["files"][public_key_path(first)]["text"] = "public of another"
    again.deploy()
    assert (again.changes(first), again.changes(second)) == ([], [take])
    # A private half that is lost is made anew with its public one.
    del again.document["hosts"][first]["files"][PRIVATE]
    for host in HOSTS:
        again.document["hosts"][host]["files"][public_key_path(first)]["text"] = "of before"
    again.deploy()
    assert again.changes(first) == [f"{PROGRAM} make {PRIVATE} {public_key_path(first)}"]
    assert again.changes(second) == [take]


def test_out_of_the_inventory_the_listener_the_keys_and_the_account_go(peers: Site) -> None:
    without = Site(peers.repository, peers.document["hosts"])
    without.deploy()
    for host, peer in (HOSTS, HOSTS[::-1]):
        assert files(peers, host) >= {PRIVATE, LISTENER, WAY, public_key_path(peer)}
        assert {path for path in files(without, host) if "/lib/lockstep/" not in path} == set()
        signs = {f"disable.* {UNIT}": "stop", re.escape(CLOSED[-1]): "close", "^remove ": "remove"}
        lines = without.changes(host)
        steps = [step for line in lines for sign, step in signs.items() if re.search(sign, line)]
        assert steps[:3] == ["stop", "close", "remove"]


def test_without_its_peer_a_first_deploy_is_refused_before_anything_is_touched(peers: Site) -> None:
    alone = Site(peers.repository, {}, peers.inventory)
    alone.deploy("--limit", HOSTS[0], exits=1)
    assert alone.output.count("key-elsewhere") == 2
    assert alone.commands(HOSTS[0]) == ["? all"]
