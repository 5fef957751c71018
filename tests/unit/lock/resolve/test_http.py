"""HTTP for the resolvers: one retry, the inventory's proxy, and failures in plain words."""

import base64
from pathlib import Path

import pytest
from local_server import LocalServer, Reply, refused_address, serving

from lockstep.core.errors import ResolveError
from lockstep.inventory.settings import Proxy
from lockstep.lock.resolve import http

DIRECT = Proxy()


def failure(url: str, proxy: Proxy = DIRECT) -> str:
    with pytest.raises(ResolveError) as error:
        http.ask(url, proxy=proxy)
    return str(error.value)


def test_a_login_is_sent_to_its_server_and_not_along_a_redirect() -> None:
    login = "Basic " + base64.b64encode(b"anna:g@heim").decode()
    with serving({"/b": Reply(b"elsewhere")}) as other_server:
        # Another name of the same machine is another host to whoever sends a token.
        away = other_server.url.replace("127.0.0.1", "localhost")
        answers = {
            "/a": Reply(b"body"),
            "/away": Reply(status=302, headers={"Location": f"{away}/b"}),
            "/here": Reply(status=302, headers={"Location": "/a"}),
            "/refused": Reply(status=503),
        }
        with serving(answers) as server:
            private = server.url.replace("http://", "http://anna:g%40heim@")
            answer = http.ask(f"{private}/a", proxy=DIRECT, token="of the public hub")
            assert answer.url == f"{server.url}/a"
            assert http.hash_download(f"{private}/a", proxy=DIRECT)[1] == 4
            assert http.ask(f"{private}/here", proxy=DIRECT).body == b"body"
            assert {request.headers.get("Authorization") for request in server.requests} == {login}
            assert http.ask(f"{private}/away", proxy=DIRECT).body == b"elsewhere"
            answer = http.ask(f"{server.url}/away", proxy=DIRECT, token="secret")
            assert answer.body == b"elsewhere"
            assert server.requests[-1].headers["Authorization"] == "Bearer secret"
            assert all("Authorization" not in ask.headers for ask in other_server.requests)
            assert "heim" not in failure(f"{private}/refused")


def test_a_password_with_a_sign_that_should_be_quoted_is_taken_out_whole() -> None:
    text = http.without_credentials("of http://anna:ge@heim@host/a?b=c@d")
    assert text == "of http://host/a?b=c@d"


def test_a_server_that_fails_is_asked_again_once():
    replies = [Reply(status=503), Reply(b"now"), *2 * [Reply(status=502)]]
    replies += 2 * [Reply(status=429, headers={"Retry-After": "60"})]
    with serving({"/a": lambda request: replies.pop(0)}) as server:
        assert http.ask(f"{server.url}/a", proxy=DIRECT).body == b"now"
        assert "the server failed twice; found HTTP 502" in failure(f"{server.url}/a")
        assert "found HTTP 429, Retry-After 60." in failure(f"{server.url}/a")


def test_a_server_that_is_not_there_is_named_without_its_password() -> None:
    address = refused_address()
    assert failure(f"http://user:secret@{address}/a").startswith(
        f"http://{address}/a: the server cannot be reached; found [Errno 111] Connection refused."
    )


def test_a_silent_server_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "TIMEOUT", (1.0, 0.05))
    waiting = LocalServer({})  # listens, and nobody answers
    try:
        assert "the server does not answer in time" in failure(f"{waiting.url}/a")
    finally:
        waiting._server.server_close()


def test_an_endless_answer_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "LARGEST_ANSWER", 2**20)
    with serving({"/a": Reply(b"x" * (2**20 + 1))}) as server:
        assert "the answer is too large; found more than 1 MiB" in failure(f"{server.url}/a")


@pytest.mark.parametrize("url", ["nonsense", "ftp://127.0.0.1/x", "http://[::1"])
def test_an_address_that_is_none_is_refused_at_once(url: str) -> None:
    assert "the address cannot be asked" in failure(url)


def test_what_is_not_json_is_shown() -> None:
    with serving({"/a": Reply(b"<html>login</html>")}) as server:
        answer = http.ask(f"{server.url}/a", proxy=DIRECT)
        with pytest.raises(ResolveError, match="the answer is not JSON; found b'<html>login"):
            answer.json()


def test_the_inventorys_proxy_is_used_and_its_exceptions_are_kept(monkeypatch):
    behind = {"http://hub.example/a": Reply(b"proxied")}
    with serving(behind) as proxy, serving({"/a": Reply(b"direct")}) as server:
        settings = Proxy(http=proxy.url, no="127.0.0.1,other.example")
        assert http.ask("http://hub.example/a", proxy=settings).body == b"proxied"
        # This machine's own proxy counts for neither.
        monkeypatch.setenv("http_proxy", f"http://{refused_address()}")
        assert http.ask(f"{server.url}/a", proxy=settings).body == b"direct"


def test_a_proxy_that_fails_is_named_as_the_fault() -> None:
    message = failure("http://hub.example/a", Proxy(http=f"http://{refused_address()}"))
    assert message.startswith("http://hub.example/a: the proxy cannot be used; found ")
    with serving({"http://hub.example/a": Reply(status=407)}) as proxy:
        message = failure("http://hub.example/a", Proxy(http=proxy.url))
    assert "the proxy demands a login; found HTTP 407" in message


def test_netrc_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login me password secret\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    with serving({"/a": Reply(b"x")}) as server:
        http.ask(f"{server.url}/a", proxy=DIRECT)
    assert "Authorization" not in server.requests[0].headers
