"""A wiped host takes from the others what several hosts share, also if it is the first host.

Deployed by the real pyinfra command, in memory.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from a_site import Site, inventory
from fake_spark import HOSTS

from lockstep.onhost.gateway.keys import Entry

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
def first_pair(repository: Path) -> tuple[Site, str]:
    """Two hosts with TLS of an authority of their own, after their first deploy, and its output."""
    gateway = {"bind": "0.0.0.0", "tls": "own", "peers": HOSTS}
    site = Site(repository, {}, inventory(repository, "pair", {"gateway": gateway}))
    result = site.deploy()
    assert result.returncode == 0, result.stdout + result.stderr
    return site, result.stdout + result.stderr


@pytest.fixture
def pair(first_pair: tuple[Site, str]) -> Site:
    site, _ = first_pair
    return Site(site.repository, site.document["hosts"], site.inventory)


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


def output_text(result: Any) -> str:
    return " ".join((result.stdout + result.stderr).split())


def test_the_first_deploy_announces_the_new_authority_once(
    first_pair: tuple[Site, str],
) -> None:
    site, output = first_pair
    assert " ".join(output.split()).count(NEW) == 1
    path = authority(site)
    assert host_file(site, HOSTS[0], path) == host_file(site, HOSTS[1], path)
    assert host_file(site, HOSTS[0], path)["text"] not in output
    result = site.deploy()
    assert result.returncode == 0 and NEW not in output_text(result)
    assert [site.commands(host) for host in HOSTS] == [["? all"], ["? all"]]


@pytest.mark.parametrize("host", HOSTS)
def test_a_wiped_host_takes_the_keys_of_the_other_one(pair: Site, host: str) -> None:
    peer = next(name for name in HOSTS if name != host)
    path = authority(pair)
    earlier_files = {name: host_file(pair, peer, name) for name in (path, PEERS)}
    wipe(pair, host)
    result = pair.deploy("-vvv", "--diff", "--debug")
    assert result.returncode == 0, result.stdout + result.stderr
    for name, was in earlier_files.items():
        assert host_file(pair, peer, name) == was == host_file(pair, host, name)
        assert was["text"] not in result.stdout + result.stderr
    assert [line for line in pair.changes(peer) if "make-" in line] == []
    assert NEW not in output_text(result)


@pytest.mark.parametrize(
    ("host", "mode"), [(HOSTS[0], None), (HOSTS[1], "0600")], ids=["missing", "unreadable"]
)
def test_a_lost_certificate_of_the_authority_comes_back_with_the_same_authority(
    pair: Site, host: str, mode: str | None
) -> None:
    files = pair.document["hosts"][host]["files"]
    was = dict(files[CERTIFICATE])
    if mode:
        files[CERTIFICATE]["mode"] = mode
    else:
        del files[CERTIFICATE]
    path = authority(pair)
    key = host_file(pair, host, path)
    result = pair.deploy()
    assert result.returncode == 0, result.stdout + result.stderr
    assert (host_file(pair, host, CERTIFICATE), host_file(pair, host, path)) == (was, key)
    assert NEW not in output_text(result)
    peer = next(name for name in HOSTS if name != host)
    assert pair.changes(peer) == []


def test_a_wiped_first_host_alone_is_refused_and_makes_no_second_authority(pair: Site) -> None:
    wipe(pair, HOSTS[0])
    result = pair.deploy("--limit", HOSTS[0])
    assert result.returncode == 1
    assert f"the authority of certificates is to come from {HOSTS[1]}, which" in output_text(result)
    assert pair.changes(HOSTS[0]) == []


def test_where_the_host_that_has_the_key_fails_midway_no_other_one_is_made(pair: Site) -> None:
    wipe(pair, HOSTS[0])
    path = authority(pair)
    was = host_file(pair, HOSTS[1], path)
    del pair.document["hosts"][HOSTS[1]]["files"]["/etc/lockstep/weights.json"]
    result = pair.deploy(fails={HOSTS[1]: {"write": "disk full"}})
    assert result.returncode == 1
    assert f"is to come from {HOSTS[1]}, which" in output_text(result)
    assert host_file(pair, HOSTS[1], path) == was and host_file(pair, HOSTS[0], path) is None


def test_two_authorities_are_named_and_none_is_replaced(pair: Site) -> None:
    path = authority(pair)
    pair.document["hosts"][HOSTS[1]]["files"][path]["text"] = "authority of another time"
    result = pair.deploy()
    assert result.returncode == 1
    assert "key-differs" in output_text(result)
    assert f"one on {HOSTS[0]}; another one on {HOSTS[1]}" in output_text(result)
    assert [pair.changes(host) for host in HOSTS] == [[], []]


def test_persons_keys_come_to_a_wiped_host(pair: Site) -> None:
    give(pair, HOSTS[1], ANNA)
    wipe(pair, HOSTS[0])
    result = pair.deploy("-vvv", "--diff", "--debug")
    assert result.returncode == 0, result.stdout + result.stderr
    assert persons(pair, HOSTS[0]) == persons(pair, HOSTS[1]) == [ANNA]
    assert ANNA["sha256"] not in result.stdout + result.stderr
    assert pair.deploy().returncode == 0
    assert [pair.commands(host) for host in HOSTS] == [["? all"], ["? all"]]


@pytest.mark.parametrize("off", HOSTS)
def test_a_key_that_was_revoked_while_a_host_was_off_stays_revoked(pair: Site, off: str) -> None:
    peer = next(host for host in HOSTS if host != off)
    give(pair, off, ANNA)
    give(pair, peer, REVOKED)
    assert pair.deploy().returncode == 0
    assert persons(pair, off) == persons(pair, peer) == [REVOKED]
    assert pair.changes(peer) == []
    assert pair.changes(off) == [f"{PROGRAM} gateway-keys take"]


def test_a_new_host_that_is_deployed_alone_is_said_to_lack_persons_keys(repository: Path) -> None:
    site = Site(repository, {})
    result = site.deploy("--limit", HOSTS[0])
    assert result.returncode == 0, result.stdout + result.stderr
    assert f"{HOSTS[0]} is new, and {HOSTS[1]} may know keys of persons" in output_text(result)
    assert "may know keys" not in output_text(site.deploy("--limit", HOSTS[0]))


def test_where_keys_of_persons_cannot_be_read_the_deploy_says_so(pair: Site) -> None:
    give(pair, HOSTS[0], ANNA)
    give(pair, HOSTS[1])
    pair.document["hosts"][HOSTS[1]]["files"][PERSONS]["text"] = "{"
    result = pair.deploy()
    assert result.returncode == 0, result.stdout + result.stderr
    assert f"{HOSTS[1]}: keys of persons cannot be read" in output_text(result)
    assert [pair.changes(host) for host in HOSTS] == [[], []]
