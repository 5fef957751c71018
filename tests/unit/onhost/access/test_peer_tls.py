"""TLS between Sparks: the proof of a name, at any time."""

import socket
import ssl
import subprocess
import threading
from pathlib import Path

import pytest
from an_identity import give_identity

from lockstep.onhost.access import peer_tls
from lockstep.onhost.core import errors, layout


@pytest.fixture
def paths(tmp_path):
    paths = layout.Paths(tmp_path)
    give_identity(paths, "spark1")
    return paths


def identity(paths: layout.Paths) -> Path:
    return peer_tls.identity_path(paths, peer_tls.AGENT, "spark1")


def names_of_client(client: ssl.SSLContext, server: ssl.SSLContext) -> list[str]:
    """The names that the server reads of the client; raise SSLError if one of them refuses."""
    near, far = socket.socketpair()
    names: list[str] = []

    def serve() -> None:
        try:
            with server.wrap_socket(far, server_side=True) as connection:
                names.extend(peer_tls.names_of(connection))
                connection.sendall(b"x")
        except ssl.SSLError:
            far.close()

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        with client.wrap_socket(near) as connection:
            connection.recv(1)
    finally:
        thread.join()
    return names


def both_sides(identity: Path) -> list[ssl.SSLContext]:
    """The contexts of a client and of a server."""
    return [peer_tls.make_context(identity, is_server=side) for side in (False, True)]


@pytest.mark.parametrize("host", ["spark-1.local", "@ssh/spark1", "fe80::1%eth0"])
def test_every_name_of_an_inventory_has_a_certificate(host, tmp_path):
    paths = layout.Paths(tmp_path)
    give_identity(paths, host)
    path = peer_tls.identity_path(paths, peer_tls.AGENT, host)
    assert not set("@:%") & set(path.name)
    assert names_of_client(*both_sides(path)) == [f"lockstep:agent:{host}"]


def test_no_clock_decides(paths):
    """A certificate that has ended is what any is to a host whose clock is years ahead."""
    authority = paths.secrets / "peer-authority.pem"
    text, whole = authority.read_text(), identity(paths).read_text()
    words = ["openssl", "x509", "-in", authority, "-signkey", authority, "-days", "-1"]
    old_certificate = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    certificate = text[text.index("-----BEGIN C") :]
    identity(paths).write_text(whole.replace(certificate, old_certificate))
    client, server = both_sides(identity(paths))
    assert names_of_client(client, server) == ["lockstep:agent:spark1"]
    client.verify_flags = ssl.VerifyFlags.VERIFY_DEFAULT
    with pytest.raises(ssl.SSLError, match="certificate has expired"):
        names_of_client(client, server)


def is_accepted(paths: layout.Paths, name: str = "lockstep:agent:spark1") -> bool:
    authority = paths.secrets / "peer-authority.pem"
    return peer_tls.is_identity_accepted(identity(paths), authority, name)


def test_a_certificate_is_tried_before_another_host_does(paths):
    assert is_accepted(paths)
    assert not is_accepted(paths, "lockstep:agent:spark2")
    assert not is_accepted(paths, "lockstep:gateway:spark1")
    authority = paths.secrets / "peer-authority.pem"
    whole, own_authority = identity(paths).read_text(), authority.read_text()
    give_identity(paths, "spark1", authority="another")
    other_text = identity(paths).read_text()
    # It agrees with itself, and the authority of this host does not know it.
    authority.write_text(own_authority)
    assert not is_accepted(paths)
    key, mark, certificates = whole.partition("-----END PRIVATE KEY-----\n")
    other_key = other_text.partition(mark)[0]
    _, begin, of_authority = certificates.rpartition("-----BEGIN C")
    for damaged_text in (
        "",
        certificates,
        key + mark,
        other_key + mark + certificates,
        # Another authority has signed it.
        other_text.rpartition(begin)[0] + begin + of_authority,
        "\N{SNOWMAN}" + whole,
    ):
        identity(paths).write_text(damaged_text)
        assert not is_accepted(paths), damaged_text
    identity(paths).write_text(whole)
    assert is_accepted(paths)


def test_systemd_gives_an_account_without_rights_its_identity(paths, tmp_path, monkeypatch):
    secret = paths.secrets / "peer-agent-spark1.pem"
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))
    assert identity(paths) == secret
    credential = tmp_path / "peer-agent"
    credential.write_text(secret.read_text())
    assert identity(paths) == credential


@pytest.mark.parametrize("is_there", [False, True])
def test_without_a_usable_identity_there_is_no_wire(is_there, paths):
    path = identity(paths)
    path.unlink()
    if is_there:
        path.write_text("nonsense")
    with pytest.raises(errors.Problem, match=f"{path}: .* Remedy: remove it if it is there"):
        peer_tls.make_context(path, is_server=True)
