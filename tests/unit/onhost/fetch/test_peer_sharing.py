"""Leases: who may copy, written for this host's programs and its server, and forgotten again."""

from __future__ import annotations

import hashlib
import io
import json
import os
import pwd
import stat
import time

import pytest
from a_peer import TOKEN, Spark
from lab_servers import free_port
from onhost_fakes import FakeSystemd, program_folder

from lockstep.onhost.core import layout, program_command_lines
from lockstep.onhost.fetch import announced_fetches, peer_client, peer_sharing

UNIT = "lockstep-peer.service"


@pytest.fixture
def systemd(tmp_path, monkeypatch):
    return FakeSystemd(tmp_path / "systemd", monkeypatch)


@pytest.fixture
def paths(tmp_path, monkeypatch):
    # Who owns what is seen in the lab; here nobody needs to be root.
    monkeypatch.setattr(os, "chown", lambda *_: None)
    monkeypatch.setattr(os, "fchown", lambda *_: None)
    monkeypatch.setattr(program_command_lines, "PROGRAMS", program_folder(tmp_path / "programs"))
    return layout.Paths(tmp_path / "host")


def lease(name: str = "0123456789abcdef", port: int = 1, **more: object) -> dict:
    document = {
        "id": name,
        "token": TOKEN,
        "address": "127.0.0.1",
        "port": port,
        "user": pwd.getpwuid(os.getuid()).pw_name,
        "hub": "/data/hub",
        "flat": ["/images"],
        "peers": [{"name": "spark2", "address": "10.0.0.2", "port": 7077, "earlier": True}],
        "expects": {"weights": ["a" * 64]},
    }
    return {**document, **more}


def run(monkeypatch, paths, *argv: str, document: dict | None = None) -> int:
    monkeypatch.setattr("sys.stdin", io.StringIO(json.dumps(document)))
    return peer_sharing.main(list(argv), paths)


def test_a_lease_is_written_for_client_and_server_and_the_token_only_for_the_client(
    systemd, paths, monkeypatch
):
    systemd.unit(UNIT, ActiveState="active", SubState="running")
    assert run(monkeypatch, paths, "open", document=lease()) == 0
    client = peer_client.folder_of_leases(paths) / "0123456789abcdef.client.json"
    offer = peer_client.folder_of_offers(paths) / "0123456789abcdef.offer.json"
    assert stat.S_IMODE(client.stat().st_mode) == 0o600
    assert stat.S_IMODE(offer.stat().st_mode) == 0o644
    assert peer_client.newest_lease(paths) == peer_client.Lease(
        TOKEN, (peer_client.Peer("spark2", "10.0.0.2", 7077, True),)
    )
    assert json.loads(offer.read_text()) == {
        "accepts": hashlib.sha256(TOKEN.encode()).hexdigest(),
        "expects": {"weights": ["a" * 64]},
    }
    # It runs already, for another deploy.
    assert systemd.calls == []


@pytest.fixture
def own(paths) -> dict:
    """A lease whose only peer is this host itself, at a port that is free."""
    port = free_port()
    peer = {"name": "spark1", "address": "127.0.0.1", "port": port, "earlier": False}
    return lease(port=port, peers=[peer])


def test_the_server_is_started_sandboxed_without_the_token_and_ended(
    systemd, paths, monkeypatch, capsys, own
):
    old = peer_client.folder_of_leases(paths) / "aaaaaaaaaaaaaaaa.client.json"
    announced_fetches.claims_folder(paths).mkdir(parents=True)
    old.write_text("{}")
    (announced_fetches.claims_folder(paths) / "weights").write_text("")
    assert run(monkeypatch, paths, "open", document=own) == 0
    assert capsys.readouterr().out == ""
    [call] = systemd.calls
    assert call.startswith("systemd-run --quiet --no-ask-password --collect --unit=" + UNIT)
    assert "DynamicUser=yes" in call and "RuntimeMaxSec=86400" in call
    assert call.endswith(
        f"peer-server --address 127.0.0.1 --port {own['port']} --hub /data/hub "
        f"--folder {peer_client.folder_of_offers(paths)} --idle 1800 --flat /images"
    )
    assert TOKEN not in call
    # It has an account of its own, and is given the inner folder: no other comes to a claim, which
    # it could hold.
    folder, target_path = peer_client.folder_of_leases(paths), peer_client.folder_of_offers(paths)
    assert (
        f"TemporaryFileSystem={paths.run}:ro" in call and f"BindReadOnlyPaths={target_path}" in call
    )
    assert stat.S_IMODE(folder.stat().st_mode) == 0o750
    assert folder in announced_fetches.claims_folder(paths).parents
    # What a deploy of the past left is gone.
    assert not old.exists() and list(announced_fetches.claims_folder(paths).iterdir()) == []
    assert run(monkeypatch, paths, "close", own["id"]) == 0
    deadline = time.monotonic() + 180
    while peer_sharing._is_server_answering("127.0.0.1", own["port"]):
        assert time.monotonic() < deadline, "it still listens"


def test_a_claim_that_is_held_survives_the_start_of_a_server(systemd, paths, monkeypatch, own):
    announced_fetches.claims_folder(paths).mkdir(parents=True)
    with announced_fetches.hold_claim(paths, "weights", ["a" * 64]):
        assert run(monkeypatch, paths, "open", document=own) == 0
        assert (announced_fetches.claims_folder(paths) / "weights").exists()
    assert run(monkeypatch, paths, "close", own["id"]) == 0


def test_not_being_able_to_share_is_told_and_is_no_failure(systemd, paths, monkeypatch, capsys):
    systemd.unit(UNIT, start_ok=False)
    monkeypatch.setattr(peer_sharing, "_is_server_answering", lambda *_: False)
    assert run(monkeypatch, paths, "open", document=lease()) == 0
    output = capsys.readouterr().out
    assert output.startswith("sharing: not with this host: lockstep-peer.service does not")
    assert output.endswith("Content comes from its origin\n")


def test_closing_tells_every_peer_and_stops_the_own_server(systemd, paths, monkeypatch, tmp_path):
    systemd.unit(UNIT, ActiveState="active", SubState="running")
    other_spark = Spark(tmp_path, "spark2")
    peer = {"name": "spark2", "address": "127.0.0.1", "port": other_spark.port, "earlier": False}
    assert run(monkeypatch, paths, "open", document=lease(peers=[peer])) == 0
    assert run(monkeypatch, paths, "close", "0123456789abcdef") == 0
    other_spark.wait_for_end()
    other_spark.server.server_close()
    assert systemd.calls == [f"systemctl stop -- {UNIT}"]
    assert list(peer_client.folder_of_leases(paths).rglob("*.json")) == []


def test_closing_one_deploy_leaves_another_its_server(systemd, paths, monkeypatch):
    systemd.unit(UNIT, ActiveState="active", SubState="running")
    for name in ("0123456789abcdef", "fedcba9876543210"):
        assert run(monkeypatch, paths, "open", document=lease(name, peers=[])) == 0
    assert run(monkeypatch, paths, "close", "0123456789abcdef") == 0
    assert systemd.calls == []
    assert peer_client.newest_lease(paths) is not None
    assert run(monkeypatch, paths, "close", "0123456789abcdef") == 0


@pytest.mark.parametrize("argv", [[], ["close"], ["close", "../x"], ["open", "x"], ["what"]])
def test_wrong_use_is_explained(paths, argv, capsys):
    assert peer_sharing.main(argv, paths) == 2
    assert "usage: sharing open" in capsys.readouterr().err
