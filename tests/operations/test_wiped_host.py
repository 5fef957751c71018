"""A host that was wiped takes from the others what several hosts share, also where it is the first.

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
PEERS = f"{SECRETS}/gateway-peers.key"
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
    done = site.deploy()
    assert done.returncode == 0, done.stdout + done.stderr
    return site, done.stdout + done.stderr


@pytest.fixture
def pair(first_pair: tuple[Site, str]) -> Site:
    site, _ = first_pair
    return Site(site.repository, site.document["hosts"], site.inventory)


def kept(site: Site, host: str, path: str) -> Any:
    return site.document["hosts"][host]["files"].get(path)


def authority(site: Site) -> str:
    files = site.document["hosts"][HOSTS[1]]["files"]
    (path,) = (path for path in files if path.startswith(f"{SECRETS}/authority-"))
    return str(path)


def wipe(site: Site, host: str) -> None:
    del site.document["hosts"][host]


def give(site: Site, host: str, *entries: Any) -> None:
    """What the gateway of a host knows of persons' keys."""
    text = json.dumps({"keys": entries})
    owned = {"mode": "0640", "owner": "root", "group": "lockstep-gateway"}
    site.document["hosts"][host]["files"][PERSONS] = {"kind": "file", "text": text, **owned}


def persons(site: Site, host: str) -> Any:
    have = kept(site, host, PERSONS)
    return json.loads(have["text"])["keys"] if have else []


def said(done: Any) -> str:
    return " ".join((done.stdout + done.stderr).split())


def test_the_first_deploy_announces_the_new_authority_once(
    first_pair: tuple[Site, str],
) -> None:
    site, output = first_pair
    assert " ".join(output.split()).count(NEW) == 1
    path = authority(site)
    assert kept(site, HOSTS[0], path) == kept(site, HOSTS[1], path)
    assert kept(site, HOSTS[0], path)["text"] not in output
    done = site.deploy()
    assert done.returncode == 0 and NEW not in said(done)
    assert [site.ran(host) for host in HOSTS] == [["? all"], ["? all"]]


@pytest.mark.parametrize("host", HOSTS)
def test_a_wiped_host_takes_the_keys_of_the_other_one(pair: Site, host: str) -> None:
    other = next(each for each in HOSTS if each != host)
    path = authority(pair)
    before = {each: kept(pair, other, each) for each in (path, PEERS)}
    wipe(pair, host)
    done = pair.deploy("-vvv", "--diff", "--debug")
    assert done.returncode == 0, done.stdout + done.stderr
    for each, was in before.items():
        assert kept(pair, other, each) == was == kept(pair, host, each)
        assert was["text"] not in done.stdout + done.stderr
    assert [line for line in pair.changes(other) if "make-" in line] == []
    assert NEW not in said(done)


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
    key = kept(pair, host, path)
    done = pair.deploy()
    assert done.returncode == 0, done.stdout + done.stderr
    assert (kept(pair, host, CERTIFICATE), kept(pair, host, path)) == (was, key)
    assert NEW not in said(done)
    other = next(each for each in HOSTS if each != host)
    assert pair.changes(other) == []


def test_a_wiped_first_host_alone_is_refused_and_makes_no_second_authority(pair: Site) -> None:
    wipe(pair, HOSTS[0])
    done = pair.deploy("--limit", HOSTS[0])
    assert done.returncode == 1
    assert f"the authority of certificates is to come from {HOSTS[1]}, which" in said(done)
    assert pair.changes(HOSTS[0]) == []


def test_where_the_host_that_has_the_key_fails_midway_no_other_one_is_made(pair: Site) -> None:
    wipe(pair, HOSTS[0])
    path = authority(pair)
    was = kept(pair, HOSTS[1], path)
    del pair.document["hosts"][HOSTS[1]]["files"]["/etc/lockstep/weights.json"]
    done = pair.deploy(fails={HOSTS[1]: {"write": "disk full"}})
    assert done.returncode == 1
    assert f"is to come from {HOSTS[1]}, which" in said(done)
    assert kept(pair, HOSTS[1], path) == was and kept(pair, HOSTS[0], path) is None


def test_two_authorities_are_named_and_none_is_replaced(pair: Site) -> None:
    path = authority(pair)
    pair.document["hosts"][HOSTS[1]]["files"][path]["text"] = "authority of another time"
    done = pair.deploy()
    assert done.returncode == 1
    assert "key-differs" in said(done)
    assert f"one on {HOSTS[0]}; another one on {HOSTS[1]}" in said(done)
    assert [pair.changes(host) for host in HOSTS] == [[], []]


def test_persons_keys_come_to_a_wiped_host(pair: Site) -> None:
    give(pair, HOSTS[1], ANNA)
    wipe(pair, HOSTS[0])
    done = pair.deploy("-vvv", "--diff", "--debug")
    assert done.returncode == 0, done.stdout + done.stderr
    assert persons(pair, HOSTS[0]) == persons(pair, HOSTS[1]) == [ANNA]
    assert ANNA["sha256"] not in done.stdout + done.stderr
    assert pair.deploy().returncode == 0
    assert [pair.ran(host) for host in HOSTS] == [["? all"], ["? all"]]


@pytest.mark.parametrize("off", HOSTS)
def test_a_key_that_was_revoked_while_a_host_was_off_stays_revoked(pair: Site, off: str) -> None:
    other = next(each for each in HOSTS if each != off)
    give(pair, off, ANNA)
    give(pair, other, REVOKED)
    assert pair.deploy().returncode == 0
    assert persons(pair, off) == persons(pair, other) == [REVOKED]
    assert pair.changes(other) == []
    assert pair.changes(off) == [f"{PROGRAM} gateway-keys take"]


def test_a_new_host_that_is_deployed_alone_is_said_to_lack_persons_keys(repository: Path) -> None:
    site = Site(repository, {})
    done = site.deploy("--limit", HOSTS[0])
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{HOSTS[0]} is new, and {HOSTS[1]} may know keys of persons" in said(done)
    assert "may know keys" not in said(site.deploy("--limit", HOSTS[0]))


def test_where_keys_of_persons_cannot_be_read_the_deploy_says_so(pair: Site) -> None:
    give(pair, HOSTS[0], ANNA)
    give(pair, HOSTS[1])
    pair.document["hosts"][HOSTS[1]]["files"][PERSONS]["text"] = "{"
    done = pair.deploy()
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{HOSTS[1]}: keys of persons cannot be read" in said(done)
    assert [pair.changes(host) for host in HOSTS] == [[], []]
