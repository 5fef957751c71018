"""TLS between Sparks: the proof of a name, at any time."""

import subprocess
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


def is_accepted(paths: layout.Paths, host: str = "spark1", role: str = peer_tls.AGENT) -> bool:
    authority, name = paths.secrets / "peer-authority.pem", f"lockstep:{role}:{host}"
    return peer_tls.is_identity_accepted(identity(paths), authority, name)


@pytest.mark.parametrize("host", ["spark-1.local", "@ssh/spark1", "fe80::1%eth0"])
def test_every_name_of_an_inventory_has_a_certificate(host, paths):
    give_identity(paths, host)
    path = peer_tls.identity_path(paths, peer_tls.AGENT, host)
    assert not set("@:%") & set(path.name)
    authority = paths.secrets / "peer-authority.pem"
    assert peer_tls.is_identity_accepted(path, authority, f"lockstep:agent:{host}")


def test_no_clock_decides(paths):
    """A certificate that has ended is what any is to a host whose clock is years ahead."""
    authority = paths.secrets / "peer-authority.pem"
    words = ["openssl", "x509", "-in", authority, "-signkey", authority, "-days", "-1"]
    old_certificate = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    _, begin, certificate = authority.read_text().rpartition("-----BEGIN C")
    for path in (authority, identity(paths)):
        path.write_text(path.read_text().replace(begin + certificate, old_certificate))
    is_at_its_end = subprocess.run(
        ["openssl", "x509", "-in", authority, "-checkend", "0"]
    ).returncode
    assert is_at_its_end and is_accepted(paths)


def test_a_certificate_is_tried_before_another_host_does(paths):
    assert is_accepted(paths)
    assert not is_accepted(paths, host="spark2")
    assert not is_accepted(paths, role=peer_tls.GATEWAY)
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
