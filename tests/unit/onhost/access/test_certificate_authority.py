"""The authorities of gateways and of Sparks: made once, taken over, believed for private names."""

import io
import re
import stat
import subprocess
from contextlib import redirect_stderr, redirect_stdout
from functools import partial
from pathlib import Path
from unittest import mock

import pytest

from lockstep.onhost.access import certificate_authority, peer_certificates, peer_tls
from lockstep.onhost.core import errors

KEY = "-----BEGIN PRIVATE KEY-----"


def run(*argv: object, stdin: str = "", program=certificate_authority) -> tuple[int, str]:
    words, out = list(map(str, argv)), io.StringIO()
    with redirect_stdout(out), redirect_stderr(out), mock.patch("sys.stdin", io.StringIO(stdin)):
        code = errors.run_main("lockstep", lambda: program.main(words))
    assert KEY not in out.getvalue()
    return code, out.getvalue()


def openssl(*argv, stdin=None):
    words = ["openssl", *map(str, argv)]
    return subprocess.run(words, input=stdin, capture_output=True, text=True, check=False)


def verify(folder, name):
    """Verify a certificate for a name, by the authority that is in a folder."""
    leaf, extension, authority = folder / "leaf.crt", folder / "leaf.cnf", folder / "authority.crt"
    kind = "IP" if re.fullmatch(r"[\d.]+", name) else "DNS"
    extension.write_text(f"subjectAltName = {kind}:{name}\n")
    new = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", "/CN=leaf")
    request = openssl("req", "-new", *new, "-keyout", folder / "leaf.key").stdout
    by = ("-CA", authority, "-CAkey", folder / "secrets/authority.pem", "-CAcreateserial")
    more = ("-days", 1, "-extfile", extension, "-out", leaf)
    result = openssl("x509", "-req", *by, *more, stdin=request)
    assert result.returncode == 0, result.stderr
    return openssl("verify", "-CAfile", authority, leaf)


@pytest.fixture
def authority_file(tmp_path):
    """The authority's file, in the folder of secrets."""
    path = tmp_path / "secrets/authority.pem"
    assert run(path, "spark1", "gpu.example.com") == (0, f"made {path}\n")
    return path


def test_it_is_made_once_for_root_alone_and_its_certificate_for_everybody(authority_file, tmp_path):
    public = tmp_path / "authority.crt"
    earlier_text, certificate = authority_file.read_text(), public.read_text()
    assert KEY in earlier_text and KEY not in certificate and earlier_text.endswith(certificate)
    public.unlink()
    authority_file.chmod(0o644)
    assert run(authority_file, "spark1") == (0, f"kept {authority_file}\n")
    assert (authority_file.read_text(), public.read_text()) == (earlier_text, certificate)
    modes = [stat.S_IMODE(path.stat().st_mode) for path in (authority_file, public)]
    assert modes == [0o600, 0o644]


def test_one_of_another_host_takes_its_place_and_nothing_else(authority_file, tmp_path):
    target_path = tmp_path / "other/secrets/authority.pem"
    assert run(target_path, "spark2")[0] == 0
    whole = authority_file.read_text()
    assert run("--take", target_path, stdin=whole + "\n") == (0, f"took {target_path}\n")
    assert target_path.read_text() == whole
    certificate = (tmp_path / "other/authority.crt").read_text()
    assert certificate in whole
    code, output = run("--take", target_path, stdin=certificate)
    assert code == errors.EXIT_FAILED and "expected a key and its certificate" in output
    assert target_path.read_text() == whole


def test_a_damaged_one_stays_for_people_to_decide(authority_file):
    damaged_text = authority_file.read_bytes()[30:] + b"\xff"
    authority_file.write_bytes(damaged_text)
    code, output = run(authority_file, "spark1")
    assert code == errors.EXIT_FAILED
    assert f"{authority_file} is damaged. Remedy: bring it back from a backup" in output
    assert authority_file.read_bytes() == damaged_text


OWN, OTHER = ("spark1", "a.local", "gpu.example.com", "10.1.2.3"), ("example.com", "8.8.8.8")


@pytest.mark.parametrize("name", [*OWN, *OTHER])
def test_it_is_believed_for_private_names_and_those_of_the_hosts_alone(
    name, authority_file, tmp_path
):
    result = verify(tmp_path, name)
    assert (result.returncode == 0) is (name in OWN)
    assert ("permitted subtree violation" in result.stderr) is (name in OTHER)


# peer_certificates.py

ROLES = ("agent", "gateway")
run_peers = partial(run, program=peer_certificates)


@pytest.fixture
def authority(tmp_path):
    path = tmp_path / "spark1/peer-authority.pem"
    assert run_peers(path, "spark1", *ROLES)[0] == 0
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
    assert run_peers(authority, "spark1", "agent")[0] == 0
    assert authority.read_text() == earlier_text
    assert stat.S_IMODE(authority.stat().st_mode) == 0o600
    assert identity.exists()
    authority.write_text(earlier_text[:-60])
    assert run_peers(authority, "spark1", "agent")[0] == 0
    assert peer_tls.is_identity_accepted(identity, authority, "lockstep:agent:spark1")


def test_the_authority_of_another_host_takes_the_place_of_ones_own_and_nothing_else(
    authority, tmp_path
):
    path = tmp_path / "spark2/peer-authority.pem"
    assert run_peers(path, "spark2", "agent")[0] == 0
    assert run_peers("--take", path, "spark2", "agent", stdin=authority.read_text() + "\n")[0] == 0
    assert path.read_text() == authority.read_text()
    identity = path.with_name("peer-agent-spark2.pem").read_text()
    assert identity.endswith(authority_certificate(authority))
    code, output = run_peers("--take", path, "spark2", "agent", stdin="nonsense\n")
    assert code == errors.EXIT_FAILED and "expected a key and its certificate" in output
    assert path.read_text() == authority.read_text()
