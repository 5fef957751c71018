"""The authority of an inventory's gateways: made once, taken over, believed for private names."""

import io
import re
import stat
import subprocess
from contextlib import redirect_stderr, redirect_stdout
from unittest import mock

import pytest

from lockstep.onhost.access import certificate_authority
from lockstep.onhost.core import errors

KEY = "-----BEGIN PRIVATE KEY-----"


def run(*argv: object, stdin: str = "") -> tuple[int, str]:
    words, out = list(map(str, argv)), io.StringIO()
    with redirect_stdout(out), redirect_stderr(out), mock.patch("sys.stdin", io.StringIO(stdin)):
        code = errors.run_main("make-authority", lambda: certificate_authority.main(words))
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


@pytest.mark.parametrize("name", ["spark1", "a.local", "gpu.example.com", "10.1.2.3"])
def test_it_is_believed_for_private_names_and_those_of_the_hosts(name, authority_file, tmp_path):
    result = verify(tmp_path, name)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize("name", ["spark2", "example.com", "8.8.8.8"])
def test_it_is_believed_for_no_other_name(name, authority_file, tmp_path):
    result = verify(tmp_path, name)
    assert result.returncode != 0 and "permitted subtree violation" in result.stderr
