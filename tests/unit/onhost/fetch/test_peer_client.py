"""Copying between Sparks: by hash, with a token, resumed, from elsewhere when a peer fails."""

from __future__ import annotations

import errno
import hashlib
import http.client
import os
import socketserver
import threading
import time

import pytest
from a_peer import TOKEN, Spark

from lockstep.onhost.fetch import announced_fetches, blob_files, peer_client, peer_server

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


def copier(*of, token: str = TOKEN, lines: list[str] | None = None) -> peer_client.Copier:
    say = (lines if lines is not None else []).append
    return peer_client.Copier(peer_client.Lease(token, of), say)


GITS = hashlib.sha1(b"blob %d\0" % len(BODY) + BODY).hexdigest()


@pytest.mark.parametrize(
    ("name", "present_bytes"),
    [(NAME, 0), (GITS, 0), (NAME, 1_000_000), (NAME, len(BODY))],
    ids=["from the start", "by git's id", "where another ended", "whole already"],
)
def test_what_is_not_here_yet_is_copied_and_counted(first_spark, tmp_path, name, present_bytes):
    first_spark.has(BODY, name)
    if present_bytes:
        (tmp_path / "blob.incomplete").write_bytes(BODY[:present_bytes])
    copy = copier(first_spark.as_peer())
    assert copy.copy_from_peer(name, len(BODY), tmp_path / "blob")
    assert (tmp_path / "blob").read_bytes() == BODY
    assert copy.bytes == (
        {"spark1": len(BODY) - present_bytes} if present_bytes < len(BODY) else {}
    )
    assert not (tmp_path / "blob.incomplete").exists()


@pytest.mark.parametrize("partial", [b"", BODY[:5000], bytes(len(BODY)), bytes(len(BODY) + 1)])
def test_corrupt_content_is_refused_and_taken_from_another_peer(sparks, tmp_path, partial):
    corrupt_spark, two = sparks
    corrupt_spark.has(bytes(len(BODY)), NAME)
    two.has(BODY)
    if partial:
        (tmp_path / "blob.incomplete").write_bytes(partial)
    lines: list[str] = []
    # The wrong one is asked for it first.
    order = (corrupt_spark, two) if int(NAME[:8], 16) % 2 == 0 else (two, corrupt_spark)
    assert copier(*(spark.as_peer() for spark in order), lines=lines).copy_from_peer(
        NAME, len(BODY), tmp_path / "blob"
    )
    assert (tmp_path / "blob").read_bytes() == BODY
    if partial != bytes(len(BODY) + 1):
        assert lines == [f"{NAME[:12]} from spark1 is not what its hash says; not used"]


def test_with_nothing_but_corrupt_peers_the_caller_fetches_from_the_start(first_spark, tmp_path):
    first_spark.has(bytes(len(BODY)), NAME)
    assert not copier(first_spark.as_peer()).copy_from_peer(NAME, len(BODY), tmp_path / "blob")
    assert list(tmp_path.glob("blob*")) == []


class Cut(socketserver.StreamRequestHandler):
    """A peer that dies in the middle of every answer."""

    def handle(self):
        head = self.rfile.readline().split()[0]
        while self.rfile.readline().strip():
            pass
        self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(BODY))
        if head == b"GET":
            self.wfile.write(BODY[:700_000])


@pytest.fixture
def dying():
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Cut) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield peer_client.Peer("dying", "127.0.0.1", server.server_address[1], earlier=True)
        server.shutdown()


def test_a_peer_that_vanishes_in_the_middle_is_replaced_by_another(first_spark, dying, tmp_path):
    first_spark.has(BODY)
    order = (
        (dying, first_spark.as_peer())
        if int(NAME[:8], 16) % 2 == 0
        else (first_spark.as_peer(), dying)
    )
    copy = copier(*order)
    assert copy.copy_from_peer(NAME, len(BODY), tmp_path / "blob")
    assert (tmp_path / "blob").read_bytes() == BODY
    assert copy.bytes == {"dying": 700_000, "spark1": len(BODY) - 700_000}


def test_without_another_peer_the_caller_goes_on_with_what_came(dying, tmp_path):
    assert not copier(dying).copy_from_peer(NAME, len(BODY), tmp_path / "blob")
    assert (tmp_path / "blob.incomplete").read_bytes() == BODY[:700_000]


def test_a_peer_that_is_off_is_no_failure(tmp_path):
    with socketserver.TCPServer(("127.0.0.1", 0), Cut) as server:
        port = server.server_address[1]
    off = peer_client.Peer("off", "127.0.0.1", port, earlier=True)
    assert not copier(off).copy_from_peer(NAME, len(BODY), tmp_path / "blob")


@pytest.mark.parametrize("call", ["request", "getresponse"])
def test_a_peer_that_loses_its_route_after_it_was_asked_is_no_failure(
    first_spark, tmp_path, monkeypatch, call
):
    first_spark.has(BODY)
    real_call = getattr(http.client.HTTPConnection, call)
    calls: list[object] = []

    def lose_route(*arguments, **more):
        calls.append(arguments)
        if len(calls) > 1:
            raise OSError(errno.EHOSTUNREACH, os.strerror(errno.EHOSTUNREACH))
        return real_call(*arguments, **more)

    monkeypatch.setattr(http.client.HTTPConnection, call, lose_route)
    lines: list[str] = []
    assert not copier(first_spark.as_peer(), lines=lines).copy_from_peer(
        NAME, len(BODY), tmp_path / "blob"
    )
    assert lines == ["copy from spark1 broke off (No route to host)"]


def test_a_full_disk_is_not_the_peers(first_spark, tmp_path, monkeypatch):
    first_spark.has(BODY)

    def fill_disk(_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", fill_disk)
    with pytest.raises(OSError, match="No space left"):
        copier(first_spark.as_peer()).copy_from_peer(NAME, len(BODY), tmp_path / "blob")


def test_nobody_shares_where_there_is_no_lease(tmp_path):
    assert not peer_client.Copier(None).copy_from_peer(NAME, len(BODY), tmp_path / "blob")


def test_what_an_earlier_peer_fetches_is_waited_for_and_taken_when_it_is_there(
    first_spark, tmp_path
):
    results: list[bool] = []
    copy = copier(first_spark.as_peer(earlier=True))
    with announced_fetches.hold_claim(first_spark.paths, "weights", [NAME]):
        task = threading.Thread(
            target=lambda: results.append(copy.copy_from_peer(NAME, len(BODY), tmp_path / "blob"))
        )
        task.start()
        deadline = time.monotonic() + 180
        while copy.waiting_note() == "" and time.monotonic() < deadline:
            time.sleep(0.001)
        assert copy.waiting_note() == ", waiting for spark1"
        assert results == []
        first_spark.has(BODY)
        task.join(180)
    assert results == [True]
    assert copy.bytes == {"spark1": len(BODY)}


def test_a_later_peer_is_not_waited_for(first_spark, tmp_path):
    """Else two would wait for each other for ever."""
    with announced_fetches.hold_claim(first_spark.paths, "weights", [NAME]):
        assert not copier(first_spark.as_peer(earlier=False)).copy_from_peer(
            NAME, 1, tmp_path / "blob"
        )


def test_a_fetch_that_has_not_begun_is_expected_and_one_that_ended_without_it_is_not(
    first_spark, monkeypatch
):
    monkeypatch.setattr("lockstep.onhost.fetch.content_for_peers._FRESH_S", 0.0)
    first_spark.offer(weights=[NAME])
    assert first_spark.ask("HEAD", f"/content/{NAME}")[1]["X-Lockstep-State"] == "expected"
    with announced_fetches.hold_claim(first_spark.paths, "weights", ["0" * 64]) as claim:
        assert first_spark.ask("HEAD", f"/content/{NAME}")[0] == 404
        claim.add([NAME])
        status, headers, _ = first_spark.ask("HEAD", f"/content/{NAME}")
        assert (status, headers["X-Lockstep-State"]) == (202, "fetching")
        earlier_progress = headers["X-Lockstep-Progress"]
        (first_spark.blobs / f"{NAME}.incomplete").write_bytes(b"some")
        assert (
            first_spark.ask("HEAD", f"/content/{NAME}")[1]["X-Lockstep-Progress"]
            != earlier_progress
        )
    # Killed, failed or done: its claim is gone with it.
    assert first_spark.ask("HEAD", f"/content/{NAME}")[0] == 404


@pytest.mark.parametrize("limit", ["BEGIN_S", "PATIENCE_S"])
def test_an_earlier_peer_that_does_not_move_is_not_waited_for_for_ever(
    first_spark, tmp_path, monkeypatch, limit
):
    monkeypatch.setattr(peer_client, limit, 0.0)
    first_spark.offer(weights=[NAME])
    lines: list[str] = []
    copy = copier(first_spark.as_peer(earlier=True), lines=lines)
    if limit == "PATIENCE_S":
        with announced_fetches.hold_claim(first_spark.paths, "weights", [NAME]):
            assert not copy.copy_from_peer(NAME, len(BODY), tmp_path / "blob")
    else:
        assert not copy.copy_from_peer(NAME, len(BODY), tmp_path / "blob")
    assert lines == ["spark1 does not go on with what it was to fetch; not waiting for it"]


@pytest.mark.parametrize("token", [None, "", "wrong", TOKEN[:-1]])
def test_nothing_is_told_without_the_token_of_a_deploy_of_now(first_spark, token):
    first_spark.has(BODY)
    assert first_spark.ask("HEAD", f"/content/{NAME}", token)[0] == 401
    assert first_spark.ask("GET", f"/content/{NAME}", token)[::2] == (401, b"")
    assert first_spark.ask("POST", "/end", token)[0] == 401
    assert first_spark.alive()


@pytest.mark.parametrize(
    "path", ["/", "/content/", "/content/../../etc/passwd", "/etc/passwd", "/content/" + "g" * 64]
)
def test_only_content_known_by_its_hash_is_given(first_spark, path):
    assert first_spark.ask("GET", path)[0] == 404


def test_ranges_are_answered(first_spark):
    first_spark.has(BODY)
    status, headers, body = first_spark.ask("GET", f"/content/{NAME}", Range="bytes=1048570-")
    assert (status, body) == (206, BODY[-6:])
    assert headers["Content-Range"] == "bytes 1048570-1048575/1048576"
    assert first_spark.ask("GET", f"/content/{NAME}", Range="bytes=1048576-")[0] == 416


def test_a_server_ends_with_the_last_deploy_that_needed_it(first_spark):
    first_spark.offer("u" * 43)
    assert first_spark.ask("POST", "/end")[0] == 200
    # A deploy that is over has no rights, another one goes on.
    assert first_spark.ask("HEAD", f"/content/{NAME}")[0] == 401
    assert first_spark.ask("HEAD", f"/content/{NAME}", "u" * 43)[0] == 404
    peer_client.announce_end_to_peers(peer_client.Lease("u" * 43, (first_spark.as_peer(),)))
    first_spark.wait_for_end()


def test_a_server_that_nobody_asks_ends_unless_its_host_is_fetching(tmp_path):
    busy, idle = Spark(tmp_path, "busy", idle_s=0.05), None
    with announced_fetches.hold_claim(busy.paths, "weights", [NAME]):
        idle = Spark(tmp_path, "idle", idle_s=0.05)
        idle.wait_for_end()
        assert busy.alive()
    busy.wait_for_end()
    for spark in (busy, idle):
        spark.server.server_close()


def test_a_port_that_is_taken_is_named(first_spark, tmp_path):
    argv = [
        "--address",
        "127.0.0.1",
        "--port",
        str(first_spark.port),
        "--hub",
        "/h",
        "--folder",
        "/f",
    ]
    with pytest.raises(Exception, match=f"cannot listen at 127.0.0.1:{first_spark.port}"):
        peer_server.main(argv)


def test_content_is_checked_against_either_kind_of_name(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"{}")
    assert blob_files.matches(path, hashlib.sha256(b"{}").hexdigest())
    assert blob_files.matches(path, hashlib.sha1(b"blob 2\0{}").hexdigest())
    assert not blob_files.matches(path, "0" * 64)


def test_the_last_file_of_a_fetch_is_there_for_who_asks_at_once(first_spark):
    """Seen in the lab: a listing half a second old lacked it, and nobody was fetching any more."""
    with announced_fetches.hold_claim(first_spark.paths, "weights", [NAME]):
        assert first_spark.ask("HEAD", f"/content/{NAME}")[0] == 202
        first_spark.has(BODY)
    assert first_spark.ask("HEAD", f"/content/{NAME}")[0] == 200


def test_what_arrives_between_two_looks_is_found(first_spark, monkeypatch):
    store = first_spark.server.store
    real_coming = store.coming_content

    def late(name):
        first_spark.has(BODY)
        return real_coming(name)

    monkeypatch.setattr(store, "coming_content", late)
    assert first_spark.ask("HEAD", f"/content/{NAME}")[0] == 200


def test_a_claim_is_never_seen_without_its_holder_or_its_names(first_spark, monkeypatch):
    first_spark.offer(weights=[NAME])
    states = []
    add = announced_fetches.Claim.add

    def asked_meanwhile(self, names):
        states.append(first_spark.ask("HEAD", f"/content/{NAME}")[1]["X-Lockstep-State"])
        add(self, names)
        states.append(first_spark.ask("HEAD", f"/content/{NAME}")[1]["X-Lockstep-State"])

    monkeypatch.setattr(announced_fetches.Claim, "add", asked_meanwhile)
    with announced_fetches.hold_claim(first_spark.paths, "weights", [NAME]):
        states.append(first_spark.ask("HEAD", f"/content/{NAME}")[1]["X-Lockstep-State"])
    assert states == ["expected", "fetching", "fetching"]


def test_a_host_busy_with_something_else_is_seen_to_get_on_towards_what_is_expected(first_spark):
    first_spark.offer(other=[NAME])
    assert first_spark.ask("HEAD", f"/content/{NAME}")[1]["X-Lockstep-Progress"] == ""
    with announced_fetches.hold_claim(first_spark.paths, "first", ["0" * 64]) as claim:
        earlier_headers = first_spark.ask("HEAD", f"/content/{NAME}")[1]
        assert earlier_headers["X-Lockstep-State"] == "expected"
        claim.show_sign_of_life()
        later_headers = first_spark.ask("HEAD", f"/content/{NAME}")[1]
        assert later_headers["X-Lockstep-Progress"] != earlier_headers["X-Lockstep-Progress"]
