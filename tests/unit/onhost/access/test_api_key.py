"""The API key of an open port: who passes, judged alone and on the wire."""

from __future__ import annotations

import json
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from onhost_fakes import program
from raw_engine import Pair, proxied

from lockstep.onhost.access import api_key
from lockstep.onhost.core import errors

KEY = "sk-0123456789abcdef"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
BEARER = (b"authorization", f"Bearer {KEY}".encode())


@pytest.mark.parametrize(
    ("method", "path", "header", "status"),
    [
        ("POST", b"/v1/chat/completions", BEARER, 0),
        ("POST", b"/v1/messages", (b"x-api-key", KEY.encode()), 0),
        ("GET", b"/v1/models", (b"authorization", f"bearer  {KEY} ".encode()), 0),
        ("GET", b"/metrics", BEARER, 0),
        ("GET", b"/health", (b"accept", b"*/*"), 0),
        ("POST", b"/health", (b"accept", b"*/*"), 401),
        ("GET", b"/v1/models", (b"accept", b"*/*"), 401),
        ("GET", b"/metrics", (b"accept", b"*/*"), 401),
        ("OPTIONS", b"/v1/models", (b"accept", b"*/*"), 401),
        ("POST", b"/invocations", (b"accept", b"*/*"), 401),
        ("GET", b"/health/../v1/models", (b"accept", b"*/*"), 401),
        ("GET", b"/v1/models", (b"authorization", KEY.encode()), 401),
        ("GET", b"/v1/models", (b"authorization", f"Basic {KEY}".encode()), 401),
        ("GET", b"/v1/models", (b"authorization", f"Bearer {KEY[:-1]}".encode()), 401),
        ("GET", b"/v1/models", (b"authorization", f"Bearer {KEY}x".encode()), 401),
        ("GET", b"/v1/models", (b"authorization", b"Bearer "), 401),
        ("GET", b"/v1/models", (b"cookie", KEY.encode()), 401),
        # What an engine has for whoever runs it is not for clients.
        ("POST", b"/invocations", BEARER, 404),
        ("POST", b"/flush_cache", BEARER, 404),
        ("POST", b"/v1/../pause", BEARER, 404),
    ],
)
def test_who_passes(method: str, path: bytes, header: tuple[bytes, bytes], status: int) -> None:
    assert api_key.Guard(KEY).refusal(method, path, [(b"host", b"a"), header]) == status


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    folder = tmp_path_factory.mktemp("key")
    (folder / "api-key").write_text(KEY + "\n")
    with proxied(folder, "--key", credentials=folder) as found:
        yield found


def ask(pair: Pair, *headers: str) -> tuple[int, dict[str, str], bytes]:
    client = pair.client()
    client.putrequest("GET", "/v1/models")
    for header in headers:
        client.putheader(*header.split(": ", 1))
    client.endheaders()
    if headers:
        wire = pair.accept()
        asked = wire.asked()
        assert [name.lower() for name, _ in asked.headers if "key" in name or "auth" in name] == []
        wire.send(OK)
    answer = client.getresponse()
    return answer.status, dict(answer.getheaders()), answer.read()


def test_with_the_key_the_engine_answers_and_never_sees_it(pair: Pair) -> None:
    assert ask(pair, f"Authorization: Bearer {KEY}")[::2] == (200, b"ok")
    assert ask(pair, f"X-Api-Key: {KEY}")[::2] == (200, b"ok")


def test_without_it_the_answer_says_what_is_missing_and_the_engine_is_not_asked(pair: Pair) -> None:
    status, headers, body = ask(pair)
    assert (status, headers["www-authenticate"]) == (401, "Bearer")
    assert json.loads(body)["error"]["message"] == (
        "an API key is needed: Authorization: Bearer KEY"
    )
    pair.listening.settimeout(0)
    with pytest.raises(BlockingIOError):
        pair.listening.accept()
    pair.listening.settimeout(20)


def test_a_body_without_the_key_is_neither_waited_for_nor_passed_on(pair: Pair) -> None:
    with socket.create_connection(("127.0.0.1", pair.port), timeout=20) as client:
        client.sendall(b"POST /v1/completions HTTP/1.1\r\nhost: a\r\ncontent-length: 9999\r\n\r\n")
        found = b""
        while more := client.recv(65536):
            found += more
    assert found.startswith(b"HTTP/1.1 401 ")


def test_neither_command_line_nor_output_has_the_key(pair: Pair) -> None:
    command = Path(f"/proc/{pair.process.pid}/cmdline").read_bytes()
    assert b"--key" in command and KEY.encode() not in command


@pytest.mark.parametrize(
    ("key", "message"),
    [
        (None, "roles: no API key: expected LoadCredential= in the unit. Deploy again"),
        ("\n", "api-key is empty. Remove the key's file and deploy again"),
    ],
)
def test_without_a_key_the_port_does_not_open(
    tmp_path: Path, key: str | None, message: str
) -> None:
    environment = {}
    if key is not None:
        (tmp_path / "api-key").write_text(key)
        environment = {"CREDENTIALS_DIRECTORY": str(tmp_path)}
    words = ["--port", "1", "--engine", "http://127.0.0.1:1", "--key"]
    done = subprocess.run(
        program("roles-proxy", *words),
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == errors.EXIT_FAILED
    assert message in done.stderr and done.stdout == ""
