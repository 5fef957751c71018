"""The lab's web server: ranges, and faults on demand."""

from __future__ import annotations

import http.client
from collections.abc import Iterator
from pathlib import Path

import pytest
from lab_servers import ask, running

from lab.http.access_log import AccessLog, log_path
from lab.http.web import WebServer

CONTENT = bytes(range(256)) * 4000


@pytest.fixture
def site(tmp_path: Path) -> Iterator[str]:
    folder = tmp_path / "content" / "simple"
    folder.mkdir(parents=True)
    (folder / "file.whl").write_bytes(CONTENT)
    (folder / "index.html").write_text("here")
    (tmp_path / "secret").write_text("not served")
    log = AccessLog(log_path(tmp_path, "web"))
    with running(WebServer(("127.0.0.1", 0), [folder.parent], log)) as address:
        yield f"http://{address}"


def test_a_range_is_answered_with_its_bytes_only_and_one_beyond_with_416(site: str) -> None:
    size, url = len(CONTENT), f"{site}/simple/file.whl"
    for byte_range, begin, end in (
        *(("bytes=10-19", 10, 20), (f"bytes={size - 9}-", size - 9, size)),
        *(("bytes=-7", size - 7, size), (f"bytes=90-{size * 2}", 90, size)),
    ):
        answer = ask(url, headers={"Range": byte_range})
        assert (answer.status, answer.body) == (206, CONTENT[begin:end]), byte_range
        assert answer.headers["Content-Range"] == f"bytes {begin}-{end - 1}/{size}"
    for unknown in ("bytes=0-1,5-6", "bytes=-", "lines=1-2"):
        assert ask(url, headers={"Range": unknown}).status == 200
    beyond = ask(url, headers={"Range": f"bytes={size}-"})
    assert (beyond.status, beyond.headers["Content-Range"]) == (416, f"bytes */{size}")


@pytest.mark.parametrize("path", ["/../secret", "/simple/%2e%2e/../secret", "/nothing", "/secret"])
def test_nothing_outside_the_roots_is_served(site: str, path: str) -> None:
    host = site.removeprefix("http://")
    connection = http.client.HTTPConnection(host, timeout=180)
    connection.request("GET", path)
    assert connection.getresponse().status == 404
    connection.close()


def test_planted_faults_are_what_is_asked_for_and_an_unknown_one_is_refused(site: str) -> None:
    faults, file = f"{site}/-/faults", f"{site}/simple/file.whl"
    assert ask(faults, [{"match": "whl$", "status": 503, "times": 2}]).status == 200
    assert [ask(file).status for _ in range(3)] == [503, 503, 200]
    ask(faults, [{"match": "whl$", "drop_after": 600_000}])
    with pytest.raises(http.client.IncompleteRead) as error:
        ask(file)
    assert error.value.partial == CONTENT[:600_000]
    ask(faults, [{"match": "whl$", "corrupt": True}])
    body = ask(file).body
    assert (len(body), body == CONTENT) == (len(CONTENT), False)
    assert ask(f"{site}/simple/").status == 200
    ask(faults, [])
    assert ask(file).body == CONTENT
    answer = ask(faults, [{"match": "x", "explode": True}])
    assert (answer.status, "explode" in answer.json["error"]) == (400, True)
    assert ask(faults).json == []
