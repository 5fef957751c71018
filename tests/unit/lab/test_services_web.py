"""The lab's web server: ranges, overlays, counted bytes, and faults on demand."""

from __future__ import annotations

import http.client
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from lab_servers import ask, free_port, running, until

from lab import services
from lab.http.access_log import AccessLog, log_path, requests, sent_bytes
from lab.http.http_server import byte_range
from lab.http.web import WebServer

CONTENT = bytes(range(256)) * 4000


@pytest.fixture
def site(tmp_path: Path) -> Iterator[str]:
    for root in ("overlay", "content"):
        (tmp_path / root / "simple").mkdir(parents=True)
    (tmp_path / "content" / "simple" / "file.whl").write_bytes(CONTENT)
    (tmp_path / "content" / "simple" / "index.html").write_text("below")
    (tmp_path / "secret").write_text("not served")
    log = AccessLog(log_path(tmp_path, "web"))
    roots = [tmp_path / "overlay", tmp_path / "content"]
    with running(WebServer(("127.0.0.1", 0), roots, log)) as address:
        yield f"http://{address}"


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        (None, None),
        ("bytes=0-9", (0, 10)),
        ("bytes=90-", (90, 100)),
        ("bytes=-7", (93, 100)),
        ("bytes=-700", (0, 100)),
        ("bytes=90-900", (90, 100)),
        ("bytes=100-", (100, 100)),
        ("bytes=0-1,5-6", None),
        ("bytes=-", None),
        ("lines=1-2", None),
    ],
)
def test_a_range_header_names_these_bytes(
    header: str | None, expected: tuple[int, int] | None
) -> None:
    assert byte_range(header, 100) == expected


def test_a_range_is_answered_with_its_bytes_only(site: str) -> None:
    answer = ask(f"{site}/simple/file.whl", headers={"Range": "bytes=10-19"})
    assert (answer.status, answer.body) == (206, CONTENT[10:20])
    assert answer.headers["Content-Range"] == f"bytes 10-19/{len(CONTENT)}"


def test_a_range_beyond_the_end_is_416(site: str) -> None:
    answer = ask(f"{site}/simple/file.whl", headers={"Range": "bytes=99999999-"})
    assert (answer.status, answer.headers["Content-Range"]) == (416, f"bytes */{len(CONTENT)}")


def test_head_tells_the_size_and_sends_nothing(site: str) -> None:
    answer = ask(f"{site}/simple/file.whl", method="HEAD")
    assert (answer.headers["Content-Length"], answer.body) == (str(len(CONTENT)), b"")


def test_a_file_of_the_overlay_comes_before_the_one_below(site: str, tmp_path: Path) -> None:
    assert ask(f"{site}/simple/").body == b"below"
    (tmp_path / "overlay" / "simple" / "index.html").write_text("above")
    assert ask(f"{site}/simple/").body == b"above"


@pytest.mark.parametrize("path", ["/../secret", "/simple/%2e%2e/../secret", "/nothing", "/secret"])
def test_nothing_outside_the_roots_is_served(site: str, path: str) -> None:
    host = site.removeprefix("http://")
    connection = http.client.HTTPConnection(host, timeout=180)
    connection.request("GET", path)
    assert connection.getresponse().status == 404
    connection.close()


def test_every_request_is_logged_with_the_bytes_that_were_sent(site: str, tmp_path: Path) -> None:
    ask(f"{site}/simple/file.whl")
    ask(f"{site}/simple/file.whl", headers={"Range": "bytes=0-99"})
    ask(f"{site}/missing")
    seen = until(
        lambda: (all_of := list(requests(tmp_path, "web")))[2:] and all_of, "three log lines"
    )
    # Each thread of the server writes its line when its answer has been sent.
    assert sorted((entry.method, entry.path, entry.status) for entry in seen) == [
        ("GET", "/missing", 404),
        ("GET", "/simple/file.whl", 200),
        ("GET", "/simple/file.whl", 206),
    ]
    wheels = sent_bytes(tmp_path, "web", lambda request: request.path.endswith(".whl"))
    assert wheels == len(CONTENT) + 100


def test_a_planted_status_is_answered_as_often_as_asked(site: str) -> None:
    assert ask(f"{site}/-/faults", [{"match": "whl$", "status": 503, "times": 2}]).status == 200
    statuses = [ask(f"{site}/simple/file.whl").status for _ in range(3)]
    assert statuses == [503, 503, 200]
    assert ask(f"{site}/simple/").status == 200


def test_a_planted_cut_ends_the_connection_after_so_many_bytes(site: str) -> None:
    ask(f"{site}/-/faults", [{"match": "whl$", "drop_after": 600_000}])
    with pytest.raises(http.client.IncompleteRead) as caught:
        ask(f"{site}/simple/file.whl")
    assert caught.value.partial == CONTENT[:600_000]
    ask(f"{site}/-/faults", [])
    assert ask(f"{site}/simple/file.whl").body == CONTENT


def test_a_planted_corruption_changes_bytes_but_not_the_length(site: str) -> None:
    ask(f"{site}/-/faults", [{"match": "whl$", "corrupt": True}])
    body = ask(f"{site}/simple/file.whl").body
    assert (len(body), body == CONTENT) == (len(CONTENT), False)


def test_an_unknown_fault_is_refused_by_name(site: str) -> None:
    answer = ask(f"{site}/-/faults", [{"match": "x", "explode": True}])
    assert (answer.status, "explode" in answer.json["error"]) == (400, True)
    assert ask(f"{site}/-/faults").json == []


def test_the_server_is_started_by_its_path_with_the_state_folder_on_top(tmp_path: Path) -> None:
    port = free_port()
    for folder, text in (("content", "below"), ("state/services/web", "above")):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "index.html").write_text(text)
    command = [sys.executable, str(Path(services.__file__).with_name("__main__.py")), "web"]
    command += ["--state", str(tmp_path / "state"), "--port", str(port), str(tmp_path / "content")]
    with subprocess.Popen(command, cwd="/") as process:
        try:
            url = f"http://127.0.0.1:{port}"
            assert until(lambda: ask(f"{url}/"), "the server").body == b"above"
        finally:
            process.kill()
    assert log_path(tmp_path / "state", "web").exists()
