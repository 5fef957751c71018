"""Access to the listener on loopback, and to the one for other machines."""

from collections.abc import Callable
from pathlib import Path

import pytest

from lockstep.onhost.core import atomic_files, errors
from lockstep.onhost.gateway import keys
from lockstep.onhost.gateway.configuration import GatewayConfiguration, ListenAddress
from lockstep.onhost.gateway.peer_gateways import Peers
from lockstep.onhost.gateway.request_authentication import Access, Caller, open_port_key
from lockstep.onhost.gateway.wire.gateway_answers import GatewayRefusal

KEY = keys.new_key()
HOST = (b"host", b"127.0.0.1:8090")


def access(folder: Path, host_key: str | None = None, **more: bool) -> Access:
    """The judge of a host where anna has a key."""
    entry = keys.Entry("anna", "2026-11-01T00:00:00Z", keys.key_digest(KEY.encode()))
    atomic_files.write_json(folder / "keys.json", keys.entries_document([entry]))
    gateway = GatewayConfiguration("spark-1", (), ("spark-1.local",), **more)  # type: ignore[arg-type]
    return Access(gateway, keys.Keys(folder / "keys.json"), Peers(gateway), host_key)


def verdict(judge: Callable[[], Caller]) -> str:
    """The person who is let in; the status of the refusal."""
    try:
        return judge().person.name
    except GatewayRefusal as error:
        return str(error.status)


def caller(folder: Path, kind: str, *headers: tuple[bytes, bytes], **more: bool) -> str:
    listener = ListenAddress(kind, "0.0.0.0", 8090)  # type: ignore[arg-type]
    return verdict(lambda: access(folder, **more).caller(listener, list(headers)))


@pytest.mark.parametrize(
    ("header", "local", "elsewhere"),
    [
        ((b"accept", b"*/*"), "local", "401"),
        ((b"x-api-key", KEY.encode()), "anna", "anna"),
        ((b"authorization", b"Bearer " + KEY.encode()), "anna", "anna"),
        # What a program sends that insists on some key.
        ((b"authorization", b"Bearer none"), "local", "401"),
        ((b"x-api-key", b"sk-no-key-required"), "local", "401"),
        # Somebody's key that was revoked does not count as nobody's.
        ((b"authorization", b"Bearer " + keys.new_key().encode()), "401", "401"),
    ],
)
def test_whom_a_key_lets_in(tmp_path, header, local, elsewhere):
    assert caller(tmp_path, "local", HOST, header) == local
    assert caller(tmp_path, "open", HOST, header) == elsewhere
    assert caller(tmp_path, "local", HOST, header, local_keys=True) == elsewhere


@pytest.mark.parametrize("kind", ["local", "open", "peers"])
@pytest.mark.parametrize(
    "twice",
    [
        (HOST, (b"host", b"evil.example")),
        ((b"host", b"evil.example"), HOST),
        ((b"origin", b"http://127.0.0.1:8090"), (b"origin", b"https://evil.example")),
    ],
)
def test_a_header_that_is_judged_may_be_there_once(tmp_path, kind, twice):
    assert caller(tmp_path, kind, *twice) == "400"


@pytest.mark.parametrize(
    ("person", "headers"),
    [
        ("local", {"Host": "localhost:9999"}),
        ("local", {"Host": "SPARK-1."}),
        ("local", {"Host": "[::1]:8090"}),
        ("local", {"Origin": "http://127.0.0.1:8090"}),
        ("local", {"Sec-Fetch-Site": "same-origin"}),
        ("local", {"X-Lockstep-Peer": "k", "X-Lockstep-Person": "x", "X-Lockstep-Role": "operate"}),
        ("403", {"Host": "rebound.example"}),
        ("403", {"Host": "127.0.0.1.rebound.example:8090"}),
        ("403", {"Host": "localhost@rebound.example"}),
        ("403", {"Host": ""}),
        ("403", {"Origin": "null"}),
        ("403", {"Sec-Fetch-Site": "cross-site"}),
        ("401", {"X-Forwarded-For": "10.0.0.9"}),
        ("401", {"Forwarded": "for=10.0.0.9"}),
        ("401", {"X-Real-IP": "10.0.0.9"}),
        ("401", {"Via": "1.1 proxy"}),
    ],
    ids=str,
)
def test_who_does_not_ask_from_here_needs_a_key(tmp_path, person, headers):
    sent_headers = {"Host": "127.0.0.1:8090", **headers}
    pairs = [(name.lower().encode(), value.encode()) for name, value in sent_headers.items()]
    assert caller(tmp_path, "local", *pairs) == person
    assert caller(tmp_path, "local", *pairs, (b"x-api-key", KEY.encode())) == "anna"


HOST_KEY = "sk-0123456789abcdef"
BEARER = (b"authorization", f"Bearer {HOST_KEY}".encode())


@pytest.mark.parametrize(
    ("method", "path", "header", "person"),
    [
        ("POST", b"/v1/chat/completions", BEARER, "host-key"),
        ("POST", b"/v1/messages", (b"x-api-key", HOST_KEY.encode()), "host-key"),
        ("GET", b"/health", (b"accept", b"*/*"), "local"),
        ("POST", b"/health", (b"accept", b"*/*"), "401"),
        ("GET", b"/health", (b"content-length", b"9"), "401"),
        ("GET", b"/health", (b"transfer-encoding", b"chunked"), "401"),
        ("GET", b"/v1/models", (b"accept", b"*/*"), "401"),
        ("GET", b"/health/../v1/models", (b"accept", b"*/*"), "401"),
        ("GET", b"/v1/models", (b"authorization", f"Bearer {HOST_KEY}x".encode()), "401"),
        # What an engine has for whoever runs it is not for clients.
        ("POST", b"/invocations", BEARER, "404"),
        ("POST", b"/v1/../pause", BEARER, "404"),
    ],
)
def test_who_passes_at_a_models_own_port_that_is_open(tmp_path, method, path, header, person):
    listener = ListenAddress("model", "0.0.0.0", 30001, ("qwen",))
    judge = access(tmp_path, HOST_KEY).caller_at_model_port
    assert verdict(lambda: judge(listener, method, path, [HOST, header])) == person


@pytest.mark.parametrize(
    ("outcome", "headers"),
    [
        ("local", {"host": "127.0.0.1:30001"}),
        ("local", {"host": "spark-1:30001", "origin": "http://spark-1:30001"}),
        # A proxy that somebody put before the port, and a client with the engine's own key.
        ("local", {"host": "localhost", "x-forwarded-for": "10.0.0.9", "x-api-key": HOST_KEY}),
        ("403", {"host": "rebound.example:30001", "x-api-key": "sk-no-key-required"}),
        ("403", {"host": "localhost:30001", "origin": "https://rebound.example"}),
        ("403", {"host": "localhost:30001", "sec-fetch-site": "cross-site"}),
        ("local", {"host": "rebound.example:30001", "x-api-key": KEY}),
    ],
    ids=range(7),
)
def test_no_web_page_passes_at_a_models_own_port_on_loopback(tmp_path, outcome, headers):
    listener = ListenAddress("model", "127.0.0.1", 30001, ("qwen",))
    pairs = [(name.encode(), value.encode()) for name, value in headers.items()]
    judge = access(tmp_path).caller_at_model_port
    for path in (b"/v1/chat/completions", b"/health"):
        assert verdict(lambda path=path: judge(listener, "GET", path, pairs)) == outcome
    if outcome == "local":
        assert not judge(listener, "GET", b"/health", pairs).is_limited


@pytest.mark.parametrize(
    ("key", "message"),
    [
        (None, "no API key: expected LoadCredential= in the unit. Deploy again"),
        ("\n", "api-key is empty. Remove the key's file and deploy again"),
    ],
)
def test_without_its_key_an_open_port_does_not_open(tmp_path, monkeypatch, key, message):
    monkeypatch.delenv("CREDENTIALS_DIRECTORY", raising=False)
    if key is not None:
        (tmp_path / "api-key").write_text(key)
        monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))
    wide, own = (ListenAddress("model", address, 1, ("q",)) for address in ("0.0.0.0", "127.0.0.1"))
    with pytest.raises(errors.Problem, match=message.replace("=", ".")):
        open_port_key(GatewayConfiguration("spark-1", (wide,)))
    assert open_port_key(GatewayConfiguration("spark-1", (own,))) is None
