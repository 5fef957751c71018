"""Keys that hosts share and keys for backups: made, carried, taken over, and never shown."""

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
BACKUP_KEY = f"{PROGRAM} backup-key"
NEW = "so a new one was made"
ANNA = asdict(Entry("anna", "2026-11-01T10:00:00Z", 64 * "a"))
REVOKED = asdict(Entry("anna", "2026-11-02T10:00:00Z"))


@pytest.fixture(scope="session")
def first_pair(repository: Path) -> Site:
    """Two hosts with an authority of their own that keep each other's backups, after a deploy."""
    gateway = {"bind": "0.0.0.0", "tls": "own", "peers": HOSTS}
    data = {"gateway": gateway, "backup": {"enabled": True, "to": ("peer",)}}
    site = Site(repository, {}, inventory(repository, "pair", data))
    site.deploy("-vvv", "--diff", "--debug")
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
    earlier_files = {name: host_file(pair, peer, name) for name in (authority(pair), PEERS)}
    del pair.document["hosts"][host]
    pair.deploy("-vvv", "--diff", "--debug")
    for name, was in earlier_files.items():
        assert host_file(pair, peer, name) == was == host_file(pair, host, name)
        assert was["text"] not in pair.output
    assert [line for line in pair.changes(peer) if "make-" in line] == []
    assert NEW not in pair.output
    # Those of persons come with them.
    assert persons(pair, host) == persons(pair, peer) == [ANNA]
    assert ANNA["sha256"] not in pair.output


def test_a_lost_certificate_of_the_authority_comes_back_with_the_same_authority(pair: Site) -> None:
    first, second = (pair.document["hosts"][host]["files"] for host in HOSTS)
    was, path = first.pop(CERTIFICATE), authority(pair)
    second[CERTIFICATE] = {**second[CERTIFICATE], "mode": "0600"}
    key = first[path]
    pair.deploy()
    for host in HOSTS:
        assert (host_file(pair, host, CERTIFICATE), host_file(pair, host, path)) == (was, key)
    assert NEW not in pair.output


def test_where_the_host_that_has_the_key_fails_no_other_one_is_made(pair: Site) -> None:
    del pair.document["hosts"][HOSTS[0]]
    path = authority(pair)
    was = host_file(pair, HOSTS[1], path)
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


def test_a_key_that_was_revoked_while_a_host_was_off_stays_revoked(pair: Site) -> None:
    # The host with the later change comes first, and is asked to take nothing.
    peer, off = HOSTS
    give(pair, off, ANNA)
    give(pair, peer, REVOKED)
    pair.deploy()
    assert persons(pair, off) == persons(pair, peer) == [REVOKED]
    assert pair.changes(peer) == []
    assert pair.changes(off) == [f"{PROGRAM} gateway-keys take"]


def test_a_new_host_that_is_deployed_alone_is_said_to_lack_persons_keys(wiped_site: Site) -> None:
    wiped_site.deploy("--limit", HOSTS[0])
    assert f"{HOSTS[0]} is new, and {HOSTS[1]} may know keys of persons" in wiped_site.output


def test_where_keys_of_persons_cannot_be_read_the_deploy_says_so(pair: Site) -> None:
    give(pair, HOSTS[0], ANNA)
    give(pair, HOSTS[1])
    pair.document["hosts"][HOSTS[1]]["files"][PERSONS]["text"] = "{"
    pair.deploy()
    assert f"{HOSTS[1]}: keys of persons cannot be read" in pair.output
    assert [pair.changes(host) for host in HOSTS] == [[], []]


def test_each_makes_a_key_and_the_other_takes_its_public_half(first_pair: Site) -> None:
    assert "private of" not in first_pair.output
    for host, peer in (HOSTS, HOSTS[::-1]):
        host_files = first_pair.document["hosts"][host]["files"]
        assert host_files[PRIVATE]["text"] == f"private of {host}"
        assert host_files[public_key_path(peer)]["text"] == f"public of {peer}"
        assert host_files[host_key_path(peer)]["text"] == f"public of {peer}"
        lines = [line for line in first_pair.changes(host) if line.startswith(BACKUP_KEY)]
        assert sorted(line.split()[3] for line in lines) == ["host-key", "make", "take", "take"]
        # The listener opens when the account, the keys and its settings are there.
        changes = first_pair.changes(host)
        (start,) = (line for line in changes if f"start {UNIT}" in line)
        (account,) = (line for line in changes if re.match("useradd .* lockstep-backup$", line))
        assert max(map(changes.index, (account, lines[-1]))) < changes.index(start)


def test_a_private_half_that_is_lost_is_made_anew_and_its_public_one_carried(pair: Site) -> None:
    first, second = HOSTS
    del pair.document["hosts"][first]["files"][PRIVATE]
    for host in HOSTS:
        pair.document["hosts"][host]["files"][public_key_path(first)]["text"] = "of before"
    pair.deploy()
    assert pair.changes(first) == [f"{BACKUP_KEY} make {PRIVATE} {public_key_path(first)}"]
    assert pair.changes(second) == [f"{BACKUP_KEY} take {public_key_path(first)}"]


def test_out_of_the_inventory_the_listener_the_keys_and_the_account_go(pair: Site) -> None:
    pair.inventory = "inventories/site.py"
    earlier_hosts = pair.document["hosts"]
    pair.deploy()
    for host, peer in (HOSTS, HOSTS[::-1]):
        assert {PRIVATE, LISTENER, WAY, public_key_path(peer)} <= set(earlier_hosts[host]["files"])
        left_paths = [path for path in pair.document["hosts"][host]["files"] if "backup" in path]
        assert [path for path in left_paths if "/lib/lockstep/" not in path] == []
        signs = {f"disable.* {UNIT}": "stop", re.escape(CLOSED[-1]): "close", "^remove ": "remove"}
        lines = pair.changes(host)
        steps = [step for line in lines for sign, step in signs.items() if re.search(sign, line)]
        assert steps[:3] == ["stop", "close", "remove"]
