"""The certificates by which Sparks know each other: made on each, by one authority."""

import io
import stat
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from unittest import mock

import pytest

from lockstep.onhost.access import peer_certificates, peer_tls
from lockstep.onhost.core import errors

KEY = "-----BEGIN PRIVATE KEY-----"
ROLES = ("agent", "gateway")


def run(*argv: object, stdin: str = "") -> tuple[int, str]:
    words, out = list(map(str, argv)), io.StringIO()
    with redirect_stdout(out), redirect_stderr(out), mock.patch("sys.stdin", io.StringIO(stdin)):
        code = errors.run_main("peer-certificates", lambda: peer_certificates.main(words))
    assert KEY not in out.getvalue()
    return code, out.getvalue()


@pytest.fixture
def authority(tmp_path):
    path = tmp_path / "spark1/peer-authority.pem"
    assert run(path, "spark1", *ROLES)[0] == 0
    return path


def authority_certificate(path: Path) -> str:
    return path.read_text().partition("-----END PRIVATE KEY-----\n")[2]


def test_each_role_has_a_key_of_its_own_for_root_alone(authority):
    paths = [authority, *(authority.with_name(f"peer-{role}-spark1.pem") for role in ROLES)]
    assert [stat.S_IMODE(path.stat().st_mode) for path in paths] == [0o600] * 3
    texts = [path.read_text() for path in paths]
    assert len({text.partition("-----END")[0] for text in texts}) == 3
    assert all(text.endswith(authority_certificate(authority)) for text in texts)


def test_the_authority_is_made_once_and_anew_where_it_is_damaged(authority):
    identity = authority.with_name("peer-agent-spark1.pem")
    earlier_text = authority.read_text()
    authority.chmod(0o644)
    identity.unlink()
    assert run(authority, "spark1", "agent")[0] == 0
    assert authority.read_text() == earlier_text
    assert stat.S_IMODE(authority.stat().st_mode) == 0o600
    assert identity.exists()
    authority.write_text(earlier_text[:-60])
    assert run(authority, "spark1", "agent")[0] == 0
    assert peer_tls.is_identity_accepted(identity, authority, "lockstep:agent:spark1")


def test_the_authority_of_another_host_takes_the_place_of_ones_own_and_nothing_else(
    authority, tmp_path
):
    path = tmp_path / "spark2/peer-authority.pem"
    assert run(path, "spark2", "agent")[0] == 0
    assert run("--take", path, "spark2", "agent", stdin=authority.read_text() + "\n")[0] == 0
    assert path.read_text() == authority.read_text()
    identity = path.with_name("peer-agent-spark2.pem").read_text()
    assert identity.endswith(authority_certificate(authority))
    code, output = run("--take", path, "spark2", "agent", stdin="nonsense\n")
    assert code == errors.EXIT_FAILED and "expected a key and its certificate" in output
    assert path.read_text() == authority.read_text()
