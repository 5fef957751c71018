"""Keys that hosts share and keys for backups: made, carried, taken over, and never shown."""

from __future__ import annotations

import json
import re
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from a_site import Site, inventory
from fake_spark import HOSTS

from lockstep.onhost.gateway.keys import Entry
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

SECRETS = "/etc/lockstep/secrets"
PEERS = f"{SECRETS}/peer-authority.pem"
CERTIFICATE = "/etc/lockstep/authority.crt"
PERSONS = "/etc/lockstep/gateway/keys.json"
PROGRAM = "/usr/bin/python3 /usr/local/lib/lockstep"
NEW = "so a new one was made"
ANNA = asdict(Entry("anna", "2026-11-01T10:00:00Z", 64 * "a"))
REVOKED = asdict(Entry("anna", "2026-11-02T10:00:00Z"))


@pytest.fixture(scope="session")
def first_pair(repository: Path) -> Site:
    """Two hosts with TLS of an authority of their own, after their first deploy."""
    gateway = {"bind": "0.0.0.0", "tls": "own", "peers": HOSTS}
    site = Site(repository, {}, inventory(repository, "pair", {"gateway": gateway}))
    site.deploy()
    return site


@pytest.fixture
def pair(first_pair: Site) -> Site:
    return first_pair.again()


def host_file(site: Site, host: str, path: str) -> Any:
    return site.document["hosts"][host]["files"].get(path)


def authority(site: Site) -> str:
    files = site.document["hosts"][HOSTS[1]]["files"]
    (path,) = (path for path in files if path.startswith(f"{SECRETS}/authority-"))
    return str(path)


def wipe(site: Site, host: str) -> None:
    del site.document["hosts"][host]


def give(site: Site, host: str, *entries: Any) -> None:
    """Write the records that the gateway of a host has of persons' keys."""
    text = json.dumps({"keys": entries})
    ownership = {"mode": "0640", "owner": "root", "group": "lockstep-gateway"}
    site.document["hosts"][host]["files"][PERSONS] = {"kind": "file", "text": text, **ownership}


def persons(site: Site, host: str) -> Any:
    have = host_file(site, host, PERSONS)
    return json.loads(have["text"])["keys"] if have else []


def test_the_first_deploy_announces_the_new_authority_once(first_pair: Site, pair: Site) -> None:
    assert first_pair.output.count(NEW) == 1
    path = authority(pair)
    assert host_file(pair, HOSTS[0], path) == host_file(pair, HOSTS[1], path)
    assert host_file(pair, HOSTS[0], path)["text"] not in first_pair.output
    pair.deploy()
    assert NEW not in pair.output
    assert [pair.commands(host) for host in HOSTS] == [["? all"], ["? all"]]


@pytest.mark.parametrize(("host", "peer"), [HOSTS, HOSTS[::-1]])
def test_a_wiped_host_takes_the_keys_of_the_other_one(pair: Site, host: str, peer: str) -> None:
    give(pair, peer, ANNA)
    path = authority(pair)
    earlier_files = {name: host_file(pair, peer, name) for name in (path, PEERS)}
    wipe(pair, host)
    pair.deploy("-vvv", "--diff", "--debug")
    for name, was in earlier_files.items():
        assert host_file(pair, peer, name) == was == host_file(pair, host, name)
        assert was["text"] not in pair.output
    assert [line for line in pair.changes(peer) if "make-" in line] == []
    assert NEW not in pair.output
    # Those of persons come with them.
    assert persons(pair, host) == persons(pair, peer) == [ANNA]
    assert ANNA["sha256"] not in pair.output
    pair.deploy()
    assert [pair.commands(name) for name in HOSTS] == [["? all"], ["? all"]]


@pytest.mark.parametrize(
    ("host", "peer", "mode"),
    [(*HOSTS, None), (*HOSTS[::-1], "0600")],
    ids=["missing", "unreadable"],
)
def test_a_lost_certificate_of_the_authority_comes_back_with_the_same_authority(
    pair: Site, host: str, peer: str, mode: str | None
) -> None:
    path, files = authority(pair), pair.document["hosts"][host]["files"]
    was, key = files.pop(CERTIFICATE), files[path]
    files |= {CERTIFICATE: {**was, "mode": mode}} if mode else {}
    pair.deploy()
    assert (host_file(pair, host, CERTIFICATE), host_file(pair, host, path)) == (was, key)
    assert NEW not in pair.output and pair.changes(peer) == []


def test_where_the_host_that_has_the_key_is_away_or_fails_no_other_one_is_made(pair: Site) -> None:
    wipe(pair, HOSTS[0])
    path = authority(pair)
    was = host_file(pair, HOSTS[1], path)
    alone = pair.again()
    alone.deploy("--limit", HOSTS[0], exits=1)
    message = f"the authority of certificates is to come from {HOSTS[1]}, which"
    assert message in alone.output and alone.changes(HOSTS[0]) == []
    del pair.document["hosts"][HOSTS[1]]["files"]["/etc/lockstep/weights.json"]
    pair.deploy(fails={HOSTS[1]: {"write": "disk full"}}, exits=1)
    assert f"is to come from {HOSTS[1]}, which" in pair.output
    assert host_file(pair, HOSTS[1], path) == was and host_file(pair, HOSTS[0], path) is None


def test_two_authorities_are_named_and_none_is_replaced(pair: Site) -> None:
    files = pair.document["hosts"][HOSTS[1]]["files"]
    files[authority(pair)]["text"] = "authority of another time"
    pair.deploy(exits=1)
    assert "key-differs" in pair.output
    assert f"one on {HOSTS[0]}; another one on {HOSTS[1]}" in pair.output
    assert [pair.changes(host) for host in HOSTS] == [[], []]


@pytest.mark.parametrize(("off", "peer"), [HOSTS, HOSTS[::-1]])
def test_a_key_that_was_revoked_while_a_host_was_off_stays_revoked(
    pair: Site, off: str, peer: str
) -> None:
    give(pair, off, ANNA)
    give(pair, peer, REVOKED)
    pair.deploy()
    assert persons(pair, off) == persons(pair, peer) == [REVOKED]
    assert pair.changes(peer) == []
    assert pair.changes(off) == [f"{PROGRAM} gateway-keys take"]


def test_a_new_host_that_is_deployed_alone_is_said_to_lack_persons_keys(wiped_site: Site) -> None:
    wiped_site.deploy("--limit", HOSTS[0])
    assert f"{HOSTS[0]} is new, and {HOSTS[1]} may know keys of persons" in wiped_site.output
    wiped_site.deploy("--limit", HOSTS[0])
    assert "may know keys" not in wiped_site.output


def test_where_keys_of_persons_cannot_be_read_the_deploy_says_so(pair: Site) -> None:
    give(pair, HOSTS[0], ANNA)
    give(pair, HOSTS[1])
    pair.document["hosts"][HOSTS[1]]["files"][PERSONS]["text"] = "{"
    pair.deploy()
    assert f"{HOSTS[1]}: keys of persons cannot be read" in pair.output
    assert [pair.changes(host) for host in HOSTS] == [[], []]


BACKUP_KEY = "/usr/bin/python3 /usr/local/lib/lockstep backup-key"


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
        lines = [line for line in peers.changes(host) if line.startswith(BACKUP_KEY)]
        assert sorted(line.split()[3] for line in lines) == ["host-key", "make", "take", "take"]
        # The listener opens when the account, the keys and its settings are there.
        changes = peers.changes(host)
        (start,) = (line for line in changes if f"start {UNIT}" in line)
        (account,) = (line for line in changes if re.match("useradd .* lockstep-backup$", line))
        assert max(map(changes.index, (account, lines[-1]))) < changes.index(start)


def test_a_key_that_another_host_lacks_is_carried_and_then_nothing_is_changed(peers: Site) -> None:
    first, second = HOSTS
    take = f"{BACKUP_KEY} take {public_key_path(first)}"
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
    assert again.changes(first) == [f"{BACKUP_KEY} make {PRIVATE} {public_key_path(first)}"]
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
