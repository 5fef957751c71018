"""The lab's forward proxy: whole URLs, tunnels, and everything counted."""

from __future__ import annotations

import http.client
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from lab_servers import ask, free_port, running, until

from lab.http.access_log import AccessLog, log_path, requests
from lab.http.proxy import ProxyServer
from lab.http.web import WebServer

CONTENT = bytes(range(256)) * 3000


@pytest.fixture
def site(tmp_path: Path) -> Iterator[str]:
    (tmp_path / "file").write_bytes(CONTENT)
    log = AccessLog(log_path(tmp_path, "web"))
    with running(WebServer(("127.0.0.1", 0), [tmp_path], log)) as address:
        yield address


@pytest.fixture
def proxy(tmp_path: Path) -> Iterator[str]:
    log = AccessLog(log_path(tmp_path, "proxy"))
    with running(ProxyServer(("127.0.0.1", 0), log)) as address:
        yield address


def logged_request(tmp_path: Path) -> tuple[str, str, int, int]:
    entry = until(lambda: list(requests(tmp_path, "proxy")), "the proxy's log line")[0]
    return entry.method, entry.path, entry.status, entry.body_bytes


def test_a_whole_url_is_asked_of_its_host_as_it_came(site: str, proxy: str, tmp_path: Path) -> None:
    handler = urllib.request.ProxyHandler({"http": f"http://{proxy}"})
    through = urllib.request.build_opener(handler)
    url = f"http://{site}/file"
    request = urllib.request.Request(url, headers={"Range": "bytes=5-9"})
    with through.open(request, timeout=180) as answer:
        assert (answer.status, answer.read()) == (206, CONTENT[5:10])
    assert logged_request(tmp_path) == ("GET", url, 206, 5)
    with through.open(f"http://{site}/-/faults", b'[{"match": "nothing"}]', timeout=180):
        assert ask(f"http://{site}/-/faults").json[0]["match"] == "nothing"
    dead = f"127.0.0.1:{free_port()}"
    with pytest.raises(urllib.error.HTTPError) as error:
        through.open(f"http://{dead}/", timeout=180)
    assert (error.value.code, dead in error.value.read().decode()) == (502, True)


def test_a_tunnel_carries_bytes_both_ways(site: str, proxy: str, tmp_path: Path) -> None:
    connection = http.client.HTTPConnection(proxy, timeout=180)
    host, _, port = site.partition(":")
    connection.set_tunnel(host, int(port))
    connection.request("GET", "/file")
    assert connection.getresponse().read() == CONTENT
    connection.close()
    method, path, status, byte_count = logged_request(tmp_path)
    assert (method, path, status) == ("CONNECT", site, 200)
    assert byte_count > len(CONTENT)
