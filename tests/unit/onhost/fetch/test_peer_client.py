"""Copying between Sparks: by hash, with a token, resumed, from elsewhere when a peer fails."""

import errno
import hashlib
import http.client
import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from unittest.mock import Mock

import pytest
from a_peer import TOKEN, Spark
from lab_servers import until
from local_server import Reply, refused_address, serving

from lockstep.onhost.fetch import announced_fetches, peer_client, peer_server

BODY = bytes(range(256)) * 4096  # 1 MiB
NAME = hashlib.sha256(BODY).hexdigest()


@pytest.fixture
def sparks(tmp_path):
    """spark1 and spark2, both serving."""
    hosts = [Spark(tmp_path, name) for name in ("spark1", "spark2")]
    yield hosts
    for spark in hosts:
        spark.close()


@pytest.fixture
def first_spark(sparks):
    return sparks[0]


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(peer_client, "POLL_S", 0.01)


def copier(*of, lines: list[str] | None = None) -> peer_client.Copier:
    say = (lines if lines is not None else []).append
    return peer_client.Copier(peer_client.Lease(TOKEN, of), say)


@pytest.fixture
def blob(tmp_path):
    """The file to copy into."""
    return tmp_path / "blob"


def copies(copy: peer_client.Copier, blob: Path, name: str = NAME) -> bool:
    return copy.copy_from_peer(name, len(BODY), blob)


def first_asked(peer: peer_client.Peer, second: peer_client.Peer) -> tuple[peer_client.Peer, ...]:
    """Two peers in an order by which the first of the arguments is asked for NAME first."""
    return (peer, second) if int(NAME[:8], 16) % 2 == 0 else (second, peer)


def look(spark: Spark, token: str | None = TOKEN) -> tuple[int, dict[str, str]]:
    """The answer of a peer to who asks for NAME: its status and headers."""
    status, headers, _ = spark.ask("HEAD", f"/content/{NAME}", token)
    return status, headers


GITS = hashlib.sha1(b"blob %d\0" % len(BODY) + BODY).hexdigest()


@pytest.mark.parametrize(
    ("name", "present_bytes"),
    [(NAME, 0), (GITS, 0), (NAME, 1_000_000), (NAME, len(BODY))],
    ids=["from the start", "by git's id", "where another ended", "whole already"],
)
def test_what_is_not_here_yet_is_copied_and_counted(first_spark, blob, name, present_bytes):
    first_spark.has(BODY, name)
    partial = blob.with_name("blob.incomplete")
    if present_bytes:
        partial.write_bytes(BODY[:present_bytes])
    copy = copier(first_spark.as_peer())
    assert copies(copy, blob, name)
    assert blob.read_bytes() == BODY
    missing_bytes = len(BODY) - present_bytes
    assert copy.bytes == ({"spark1": missing_bytes} if missing_bytes else {})
    assert not partial.exists()


@pytest.mark.parametrize("partial", [BODY[:5000], bytes(len(BODY)), bytes(len(BODY) + 1)])
def test_corrupt_content_is_refused_and_taken_from_another_peer(sparks, blob, partial):
    corrupt_spark, two = sparks
    corrupt_spark.has(bytes(len(BODY)), NAME)
    two.has(BODY)
    blob.with_name("blob.incomplete").write_bytes(partial)
    lines = []
    peers = first_asked(corrupt_spark.as_peer(), two.as_peer())
    assert copies(copier(*peers, lines=lines), blob)
    assert blob.read_bytes() == BODY
    if partial == BODY[:5000]:
        assert lines == [f"{NAME[:12]} from spark1 is not what its hash says; not used"]


def peer_at(name: str, address: str) -> peer_client.Peer:
    host, _, port = address.partition(":")
    return peer_client.Peer(name, host, int(port), earlier=True)


@pytest.fixture
def dying():
    """A peer that dies in the middle of every answer."""
    cut = Reply(BODY[:700_000], headers={"Content-Length": str(len(BODY))})
    with serving({f"/content/{NAME}": cut}) as server:
        yield peer_at("dying", server.host)


def test_of_a_peer_that_vanishes_in_the_middle_stays_what_came_and_another_replaces_it(
    first_spark, dying, blob
):
    assert not copies(copier(dying), blob)
    assert blob.with_name("blob.incomplete").read_bytes() == BODY[:700_000]
    blob.with_name("blob.incomplete").unlink()
    first_spark.has(BODY)
    copy = copier(*first_asked(dying, first_spark.as_peer()))
    assert copies(copy, blob)
    assert blob.read_bytes() == BODY
    assert copy.bytes == {"dying": 700_000, "spark1": len(BODY) - 700_000}


def test_a_peer_that_is_off_and_no_lease_are_no_failure(blob):
    assert not copies(copier(peer_at("off", refused_address())), blob)
    assert not copies(peer_client.Copier(None), blob)


@pytest.mark.parametrize("call", ["request", "getresponse"])
def test_a_peer_that_loses_its_route_after_it_was_asked_is_no_failure(
    first_spark, blob, monkeypatch, call
):
    first_spark.has(BODY)
    real_call, calls = getattr(http.client.HTTPConnection, call), []

    def lose_route(*arguments, **more):
        calls.append(arguments)
        if len(calls) > 1:
            raise OSError(errno.EHOSTUNREACH, os.strerror(errno.EHOSTUNREACH))
        return real_call(*arguments, **more)

    monkeypatch.setattr(http.client.HTTPConnection, call, lose_route)
    lines = []
    assert not copies(copier(first_spark.as_peer(), lines=lines), blob)
    assert lines == ["copy from spark1 broke off (No route to host)"]


def test_a_full_disk_is_not_the_peers(first_spark, blob, monkeypatch):
    first_spark.has(BODY)
    full = OSError(errno.ENOSPC, "No space left")
    monkeypatch.setattr(os, "fsync", Mock(side_effect=full))
    with pytest.raises(OSError, match="No space left"):
        copies(copier(first_spark.as_peer()), blob)


def test_what_an_earlier_peer_fetches_is_waited_for_and_taken_when_it_is_there(first_spark, blob):
    copy = copier(first_spark.as_peer(earlier=True))
    with (
        ThreadPoolExecutor() as pool,
        announced_fetches.hold_claim(first_spark.paths, "weights", [NAME]),
    ):
        task = pool.submit(copies, copy, blob)
        until(lambda: copy.waiting_note() == ", waiting for spark1", "it waits")
        assert not task.done()
        first_spark.has(BODY)
        assert task.result(180)
    assert copy.bytes == {"spark1": len(BODY)}


def test_a_later_peer_is_not_waited_for(first_spark, blob, monkeypatch):
    """Else two would wait for each other for ever."""
    monkeypatch.setattr(peer_client, "PATIENCE_S", 0.0)
    lines = []
    with announced_fetches.hold_claim(first_spark.paths, "weights", [NAME]):
        assert not copies(copier(first_spark.as_peer(earlier=False), lines=lines), blob)
    assert lines == [], "no patience was lost"


def test_a_fetch_that_has_not_begun_is_expected_and_one_that_ended_without_it_is_not(
    first_spark, monkeypatch
):
    monkeypatch.setattr("lockstep.onhost.fetch.content_for_peers._FRESH_S", 0.0)
    first_spark.offer(weights=[NAME])
    assert look(first_spark)[1]["X-Lockstep-State"] == "expected"
    with announced_fetches.hold_claim(first_spark.paths, "weights", ["0" * 64]) as claim:
        assert look(first_spark)[0] == 404
        claim.add([NAME])
        status, headers = look(first_spark)
        assert (status, headers["X-Lockstep-State"]) == (202, "fetching")
        (first_spark.blobs / f"{NAME}.incomplete").write_bytes(b"some")
        assert look(first_spark)[1]["X-Lockstep-Progress"] != headers["X-Lockstep-Progress"]
    # Killed, failed or done: its claim is gone with it.
    assert look(first_spark)[0] == 404


@pytest.mark.parametrize("limit", ["BEGIN_S", "PATIENCE_S"])
def test_an_earlier_peer_that_does_not_move_is_not_waited_for_for_ever(
    first_spark, blob, monkeypatch, limit
):
    monkeypatch.setattr(peer_client, limit, 0.0)
    first_spark.offer(weights=[NAME])
    lines = []
    copy = copier(first_spark.as_peer(earlier=True), lines=lines)
    claim = announced_fetches.hold_claim(first_spark.paths, "weights", [NAME])
    with claim if limit == "PATIENCE_S" else nullcontext():
        assert not copies(copy, blob)
    assert lines == ["spark1 does not go on with what it was to fetch; not waiting for it"]


@pytest.mark.parametrize("token", [None, "", TOKEN[:-1]])
def test_nothing_is_told_without_the_token_of_a_deploy_of_now(first_spark, token):
    first_spark.has(BODY)
    assert look(first_spark, token)[0] == 401
    assert first_spark.ask("GET", f"/content/{NAME}", token)[::2] == (401, b"")
    assert first_spark.ask("POST", "/end", token)[0] == 401
    assert first_spark.alive()


@pytest.mark.parametrize("path", ["/", "/content/../../etc/passwd", "/content/" + "g" * 64])
def test_only_content_known_by_its_hash_is_given(first_spark, path):
    assert first_spark.ask("GET", path)[0] == 404


def test_a_range_behind_the_end_is_refused(first_spark):
    first_spark.has(BODY)
    assert first_spark.ask("GET", f"/content/{NAME}", Range=f"bytes={len(BODY)}-")[0] == 416


def test_a_server_ends_with_the_last_deploy_that_needed_it(first_spark):
    first_spark.offer("u" * 43)
    assert first_spark.ask("POST", "/end")[0] == 200
    # A deploy that is over has no rights, another one goes on.
    assert look(first_spark)[0] == 401
    assert look(first_spark, "u" * 43)[0] == 404
    peer_client.announce_end_to_peers(peer_client.Lease("u" * 43, (first_spark.as_peer(),)))
    first_spark.wait_for_end()


def test_a_server_that_nobody_asks_ends_unless_its_host_is_fetching(tmp_path):
    busy = Spark(tmp_path, "busy", idle_s=0.05)
    with announced_fetches.hold_claim(busy.paths, "weights", [NAME]):
        idle = Spark(tmp_path, "idle", idle_s=0.05)
        idle.wait_for_end()
        assert busy.alive()
    busy.wait_for_end()
    for spark in (busy, idle):
        spark.server.server_close()


def test_a_port_that_is_taken_is_named(first_spark):
    where = f"--address 127.0.0.1 --port {first_spark.port} --hub /h --folder /f"
    with pytest.raises(Exception, match=f"cannot listen at 127.0.0.1:{first_spark.port}"):
        peer_server.main(where.split())


def test_what_arrives_between_two_looks_is_found(first_spark, monkeypatch):
    """Seen in the lab: a listing half a second old lacked it, and nobody was fetching any more."""
    with announced_fetches.hold_claim(first_spark.paths, "weights", [NAME]):
        assert look(first_spark)[0] == 202
        first_spark.has(BODY)
    assert look(first_spark)[0] == 200
    # It arrives while the server looks for it.
    (first_spark.blobs / NAME).unlink()
    store = first_spark.server.store
    ask_coming = store.coming_content
    monkeypatch.setattr(
        store, "coming_content", lambda name: first_spark.has(BODY) and ask_coming(name)
    )
    assert look(first_spark)[0] == 200
