"""Leases: who may copy, written for this host's programs and its server, and forgotten again."""

import hashlib
import io
import json
import os
import pwd
import stat

import pytest
from a_peer import TOKEN, Spark
from lab_servers import free_port, until
from onhost_fakes import FakeSystemd, program_folder

from lockstep.onhost.core import layout, program_command_lines
from lockstep.onhost.fetch import announced_fetches, peer_client, peer_sharing

UNIT, NAME = "lockstep-peer.service", "0123456789abcdef"


@pytest.fixture
def systemd(tmp_path, monkeypatch):
    return FakeSystemd(tmp_path / "systemd", monkeypatch)


@pytest.fixture
def running_systemd(systemd):
    """It runs the server already, for another deploy."""
    systemd.unit(UNIT, ActiveState="active", SubState="running")
    return systemd


@pytest.fixture
def paths(tmp_path, monkeypatch):
    # Who owns what is seen in the lab; here nobody needs to be root.
    monkeypatch.setattr(os, "chown", lambda *_: None)
    monkeypatch.setattr(os, "fchown", lambda *_: None)
    monkeypatch.setattr(program_command_lines, "PROGRAMS", program_folder(tmp_path / "programs"))
    return layout.Paths(tmp_path / "host")


def lease(name: str = NAME, port: int = 1, peers: list[dict] | None = None) -> dict:
    spark2 = {"name": "spark2", "address": "10.0.0.2", "port": 7077, "earlier": True}
    return {
        "id": name,
        "token": TOKEN,
        "address": "127.0.0.1",
        "port": port,
        "user": pwd.getpwuid(os.getuid()).pw_name,
        "hub": "/data/hub",
        "flat": ["/images"],
        "peers": [spark2] if peers is None else peers,
        "expects": {"weights": ["a" * 64]},
    }


@pytest.fixture
def run(monkeypatch, paths):
    """Run the program with its words, and a document on its standard input."""

    def run_program(*argv, document=None):
        monkeypatch.setattr("sys.stdin", io.StringIO(json.dumps(document)))
        return peer_sharing.main(list(argv), paths)

    return run_program


def test_a_lease_is_written_for_client_and_server_and_the_token_only_for_the_client(
    running_systemd, paths, run
):
    assert run("open", document=lease()) == 0
    client = peer_client.folder_of_leases(paths) / f"{NAME}.client.json"
    offer = peer_client.folder_of_offers(paths) / f"{NAME}.offer.json"
    assert stat.S_IMODE(client.stat().st_mode) == 0o600
    assert stat.S_IMODE(offer.stat().st_mode) == 0o644
    assert peer_client.newest_lease(paths) == peer_client.Lease(
        TOKEN, (peer_client.Peer("spark2", "10.0.0.2", 7077, True),)
    )
    assert json.loads(offer.read_text()) == {
        "accepts": hashlib.sha256(TOKEN.encode()).hexdigest(),
        "expects": {"weights": ["a" * 64]},
    }
    assert running_systemd.calls == []


def peer_at(name: str, port: int) -> dict:
    return {"name": name, "address": "127.0.0.1", "port": port, "earlier": False}


def test_the_server_is_started_sandboxed_without_the_token_and_ended(systemd, paths, run, capsys):
    port = free_port()
    own = lease(port=port, peers=[peer_at("spark1", port)])
    folder, target_path = peer_client.folder_of_leases(paths), peer_client.folder_of_offers(paths)
    claims = announced_fetches.claims_folder(paths)
    old = folder / "aaaaaaaaaaaaaaaa.client.json"
    claims.mkdir(parents=True)
    old.write_text("{}")
    (claims / "weights").write_text("")
    with announced_fetches.hold_claim(paths, "images", ["a" * 64]):
        assert run("open", document=own) == 0
        # What a deploy of the past left is gone, and a claim that is held is not.
        assert not old.exists()
        assert [path.name for path in claims.iterdir()] == ["images"]
    assert capsys.readouterr().out == ""
    [call] = systemd.calls
    assert call.startswith("systemd-run ") and f"--unit={UNIT}" in call
    assert "DynamicUser=yes" in call and "RuntimeMaxSec=86400" in call
    assert f"--port {port} --hub /data/hub --folder {target_path} " in call
    assert TOKEN not in call
    # It has an account of its own, and is given the inner folder: no other comes to a claim, which
    # it could hold.
    assert f"TemporaryFileSystem={paths.run}:ro" in call
    assert f"BindReadOnlyPaths={target_path}" in call
    assert stat.S_IMODE(folder.stat().st_mode) == 0o750
    assert folder in claims.parents
    assert run("close", NAME) == 0
    is_answering = peer_sharing._is_server_answering
    until(lambda: not is_answering("127.0.0.1", port), "it listens no more")


def test_not_being_able_to_share_is_told_and_is_no_failure(systemd, run, monkeypatch, capsys):
    systemd.unit(UNIT, start_ok=False)
    monkeypatch.setattr(peer_sharing, "_is_server_answering", lambda *_: False)
    assert run("open", document=lease()) == 0
    assert "Content comes from its origin\n" in capsys.readouterr().out


def test_closing_tells_every_peer_and_stops_the_own_server(running_systemd, paths, run, tmp_path):
    other_spark = Spark(tmp_path, "spark2")
    assert run("open", document=lease(peers=[peer_at("spark2", other_spark.port)])) == 0
    assert run("close", NAME) == 0
    other_spark.wait_for_end()
    other_spark.server.server_close()
    assert running_systemd.calls == [f"systemctl stop -- {UNIT}"]
    assert list(peer_client.folder_of_leases(paths).rglob("*.json")) == []


def test_closing_one_deploy_leaves_another_its_server(running_systemd, paths, run):
    for name in (NAME, "fedcba9876543210"):
        assert run("open", document=lease(name, peers=[])) == 0
    assert run("close", NAME) == 0
    assert running_systemd.calls == []
    assert peer_client.newest_lease(paths) is not None
    assert run("close", NAME) == 0
