"""A deploy with a secret that a command prints: brought once, compared by a keyed hash, unseen."""

import hashlib
from pathlib import Path
from typing import Any

import pytest
from a_site import Site, inventory
from fake_spark import HOSTS

pytestmark = pytest.mark.slow

SECRET = "hf_0123456789Geheim"
HUB_TOKEN = "/etc/lockstep/hub-token"


@pytest.fixture
def giver(repository: Path, whole: Any, tmp_path: Path) -> Site:
    """Two hosts that lack only the token, and a program that prints the content of `secret`."""
    program = tmp_path / "op"
    program.write_text(f"#!/bin/sh\necho run >> {tmp_path}/runs\n. {tmp_path}/secret\n")
    program.chmod(0o755)
    (tmp_path / "secret").write_text(f"echo {SECRET}\n")
    token = {"hub_token": {"command": (str(program),)}}
    return Site(repository, whole, inventory(repository, "secretive", token))


def token(giver: Site, host: str) -> Any:
    return giver.document["hosts"][host]["files"].get(HUB_TOKEN)


def test_it_is_written_on_every_host_and_asked_for_once(giver: Site, tmp_path: Path) -> None:
    result = giver.deploy("-vvv", "--diff", "--debug")
    for host in HOSTS:
        assert giver.changes(host) == [f"write {HUB_TOKEN}"]
        assert token(giver, host) == {
            **{"kind": "file", "text": f"{SECRET}\n"},
            **{"mode": "0640", "owner": "root", "group": "lockstep"},
        }
    assert (tmp_path / "runs").read_text() == "run\n"
    plain = hashlib.sha256(f"{SECRET}\n".encode()).hexdigest()
    output = result.stdout + result.stderr
    assert SECRET not in output and plain not in output
    lock = (giver.repository / "site.lock.yaml").read_text()
    assert SECRET not in lock and plain[:16] not in lock


def test_a_command_that_fails_ends_the_deploy_before_any_host_is_asked(giver: Site, tmp_path: Path):
    (tmp_path / "secret").write_text(f"echo {SECRET}; echo {SECRET} >&2; exit 7\n")
    giver.deploy("--debug", exits=1)
    assert f"{HOSTS[0]}: the command of hub_token gives no secret" in giver.output
    assert "it ended with 7" in giver.output and "Nothing was touched" in giver.output
    assert SECRET not in giver.output
    assert giver.document["ran"] == {}


def test_one_that_was_put_there_by_hand_stays_where_the_inventory_names_none(site: Site) -> None:
    by_hand = {"kind": "file", "mode": "0640", "owner": "root", "group": "lockstep", "text": "x"}
    site.document["hosts"][HOSTS[0]]["files"][HUB_TOKEN] = by_hand
    site.deploy()
    assert site.changes() == []
    assert token(site, HOSTS[0]) == by_hand


def test_a_login_is_in_private_files_alone(giver: Site, tmp_path: Path, repository: Path) -> None:
    (tmp_path / "secret").write_text("echo anna:g@heim/4711\n")
    server, login = "http://index.lan:3141", {"command": (str(tmp_path / "op"),)}
    own = {"sources": {"python_index": f"{server}/simple"}, "logins": {server: login}}
    inventory(repository, "secretive", own)
    result = giver.deploy("-vvv", "--diff", "--debug")
    assert (tmp_path / "runs").read_text() == "run\n"
    files = giver.document["hosts"][HOSTS[0]]["files"]
    assert (
        "http://anna:g%40heim%2F4711@index.lan:3141/simple"
        in files["/etc/lockstep/tools.env"]["text"]
    )
    for word in ("heim", "4711@"):
        holders = {path for path, file in files.items() if word in (file["text"] or "")}
        assert holders and {files[path]["mode"] for path in holders} <= {"0600", "0640"}
        assert word not in result.stdout + result.stderr
