"""Access to the listener on loopback, and to the one for other machines."""

from __future__ import annotations

from pathlib import Path

import pytest

from lockstep.onhost.core import atomic_files, errors
from lockstep.onhost.gateway import keys, request_authentication
from lockstep.onhost.gateway.configuration import GatewayConfiguration, ListenAddress
from lockstep.onhost.gateway.peer_gateways import Peers
from lockstep.onhost.gateway.wire.gateway_answers import GatewayRefusal

KEY = keys.new_key()
HOST = (b"host", b"127.0.0.1:8090")


def caller(folder: Path, kind: str, *headers: tuple[bytes, bytes], **more: bool) -> str:
    """The person whom a listener lets in; the status it refuses with."""
    entry = keys.Entry("anna", "2026-11-01T00:00:00Z", keys.key_digest(KEY.encode()))
    atomic_files.write_json(folder / "keys.json", keys.entries_document([entry]))
    gateway = GatewayConfiguration("spark-1", (), ("spark-1.local",), **more)  # type: ignore[arg-type]
    judge = request_authentication.Access(
        gateway, keys.Keys(folder / "keys.json"), Peers(gateway), None
    )
    try:
        return judge.caller(ListenAddress(kind, "0.0.0.0", 8090), list(headers)).person.name  # type: ignore[arg-type]
    except GatewayRefusal as error:
        return str(error.status)


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
def test_whom_a_key_lets_in(
    tmp_path: Path, header: tuple[bytes, bytes], local: str, elsewhere: str
) -> None:
    assert caller(tmp_path, "local", HOST, header) == local
    assert caller(tmp_path, "open", HOST, header) == elsewhere
    keyed_person = caller(tmp_path, "local", HOST, header, local_keys=True)
    assert keyed_person == elsewhere


@pytest.mark.parametrize("kind", ["local", "open", "peers"])
@pytest.mark.parametrize(
    "twice",
    [
        (HOST, (b"host", b"evil.example")),
        ((b"host", b"evil.example"), HOST),
        ((b"origin", b"http://127.0.0.1:8090"), (b"origin", b"https://evil.example")),
    ],
)
def test_a_header_that_is_judged_may_be_there_once(
    tmp_path: Path, kind: str, twice: tuple[tuple[bytes, bytes], ...]
) -> None:
    assert caller(tmp_path, kind, *twice) == "400"


@pytest.mark.parametrize(
    ("person", "headers"),
    [
        ("local", {"Host": "localhost:9999"}),
        ("local", {"Host": "SPARK-1."}),
        ("local", {"Host": "spark-1.local"}),
        ("local", {"Host": "[::1]:8090"}),
        ("local", {"Origin": "http://127.0.0.1:8090"}),
        ("local", {"Sec-Fetch-Site": "same-origin"}),
        ("local", {"X-Lockstep-Peer": "k", "X-Lockstep-Person": "x", "X-Lockstep-Role": "operate"}),
        ("403", {"Host": "rebound.example"}),
        ("403", {"Host": "127.0.0.1.rebound.example:8090"}),
        ("403", {"Host": "localhost@rebound.example"}),
        ("403", {"Host": ""}),
        ("403", {"Origin": "https://rebound.example"}),
        ("403", {"Origin": "null"}),
        ("403", {"Sec-Fetch-Site": "cross-site"}),
        ("401", {"X-Forwarded-For": "10.0.0.9"}),
        ("401", {"Forwarded": "for=10.0.0.9"}),
        ("401", {"X-Forwarded-Host": "a"}),
        ("401", {"X-Real-IP": "10.0.0.9"}),
        ("401", {"Via": "1.1 proxy"}),
    ],
    ids=str,
)
def test_who_does_not_ask_from_here_needs_a_key(
    tmp_path: Path, person: str, headers: dict[str, str]
) -> None:
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
        ("POST", b"/v1/messages", (b"x-api-key", KEY.encode()), "anna"),
        ("GET", b"/v1/models", (b"authorization", f"bearer  {HOST_KEY} ".encode()), "host-key"),
        ("GET", b"/metrics", BEARER, "host-key"),
        ("GET", b"/health", (b"accept", b"*/*"), "local"),
        ("POST", b"/health", (b"accept", b"*/*"), "401"),
        ("GET", b"/health", (b"content-length", b"9"), "401"),
        ("GET", b"/health", (b"transfer-encoding", b"chunked"), "401"),
        ("GET", b"/v1/models", (b"accept", b"*/*"), "401"),
        ("GET", b"/metrics", (b"accept", b"*/*"), "401"),
        ("OPTIONS", b"/v1/models", (b"accept", b"*/*"), "401"),
        ("POST", b"/invocations", (b"accept", b"*/*"), "401"),
        ("GET", b"/health/../v1/models", (b"accept", b"*/*"), "401"),
        ("GET", b"/v1/models", (b"authorization", f"Bearer {HOST_KEY[:-1]}".encode()), "401"),
        ("GET", b"/v1/models", (b"authorization", f"Bearer {HOST_KEY}x".encode()), "401"),
        # What an engine has for whoever runs it is not for clients.
        ("POST", b"/invocations", BEARER, "404"),
        ("POST", b"/flush_cache", BEARER, "404"),
        ("POST", b"/v1/../pause", BEARER, "404"),
    ],
)
def test_who_passes_at_a_models_own_port_that_is_open(
    tmp_path: Path, method: str, path: bytes, header: tuple[bytes, bytes], person: str
) -> None:
    entry = keys.Entry("anna", "2026-11-01T00:00:00Z", keys.key_digest(KEY.encode()))
    atomic_files.write_json(tmp_path / "keys.json", keys.entries_document([entry]))
    gateway = GatewayConfiguration("spark-1", ())
    judge = request_authentication.Access(
        gateway, keys.Keys(tmp_path / "keys.json"), Peers(gateway), HOST_KEY
    )
    listener = ListenAddress("model", "0.0.0.0", 30001, ("qwen",))
    try:
        passed_person = judge.caller_at_model_port(
            listener, method, path, [HOST, header]
        ).person.name
    except GatewayRefusal as error:
        passed_person = str(error.status)
    assert passed_person == person


@pytest.mark.parametrize(
    ("status", "headers"),
    [
        (None, [(b"host", b"127.0.0.1:30001")]),
        (None, [(b"host", b"spark-1:30001"), (b"origin", b"http://spark-1:30001")]),
        # A proxy that somebody put before the port, and a client with the engine's own key.
        (None, [(b"host", b"localhost"), (b"x-forwarded-for", b"10.0.0.9"), BEARER]),
        (403, [(b"host", b"rebound.example:30001")]),
        (403, [(b"host", b"rebound.example:30001"), (b"x-api-key", b"sk-no-key-required")]),
        (403, [(b"host", b"localhost:30001"), (b"origin", b"https://rebound.example")]),
        (403, [(b"host", b"localhost:30001"), (b"sec-fetch-site", b"cross-site")]),
        (None, [(b"host", b"rebound.example:30001"), (b"x-api-key", KEY.encode())]),
    ],
    ids=range(8),
)
def test_no_web_page_passes_at_a_models_own_port_on_loopback(
    tmp_path: Path, status: int | None, headers: list[tuple[bytes, bytes]]
) -> None:
    entry = keys.Entry("anna", "2026-11-01T00:00:00Z", keys.key_digest(KEY.encode()))
    atomic_files.write_json(tmp_path / "keys.json", keys.entries_document([entry]))
    gateway = GatewayConfiguration("spark-1", ())
    judge = request_authentication.Access(
        gateway, keys.Keys(tmp_path / "keys.json"), Peers(gateway), None
    )
    listener = ListenAddress("model", "127.0.0.1", 30001, ("qwen",))
    for path in (b"/v1/chat/completions", b"/health"):
        try:
            caller = judge.caller_at_model_port(listener, "GET", path, headers)
        except GatewayRefusal as error:
            assert error.status == status
        else:
            assert (status, caller) == (
                None,
                request_authentication.Caller(request_authentication.LOCAL, is_limited=False),
            )


@pytest.mark.parametrize(
    ("key", "message"),
    [
        (None, "no API key: expected LoadCredential= in the unit. Deploy again"),
        ("\n", "api-key is empty. Remove the key's file and deploy again"),
    ],
)
def test_without_its_key_an_open_port_does_not_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str | None, message: str
) -> None:
    monkeypatch.delenv("CREDENTIALS_DIRECTORY", raising=False)
    if key is not None:
        (tmp_path / "api-key").write_text(key)
        monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))
    gateway = GatewayConfiguration(
        "spark-1", (ListenAddress("model", "0.0.0.0", 30001, ("qwen",)),)
    )
    with pytest.raises(errors.Problem, match=message.replace("=", ".")):
        request_authentication.open_port_key(gateway)
    assert (
        request_authentication.open_port_key(
            GatewayConfiguration("spark-1", (ListenAddress("model", "127.0.0.1", 1, ("q",)),))
        )
        is None
    )
