"""The authority of an inventory's gateways: made once, taken over, believed for private names."""

from __future__ import annotations

import io
import re
import stat
import subprocess
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from unittest import mock

import pytest

from lockstep.onhost.access import certificate_authority
from lockstep.onhost.core import errors

KEY = "-----BEGIN PRIVATE KEY-----"


def run(*argv: object, stdin: str = "") -> subprocess.CompletedProcess[str]:
    words, out, err = list(map(str, argv)), io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err), mock.patch("sys.stdin", io.StringIO(stdin)):
        code = errors.run_main("make-authority", lambda: certificate_authority.main(words))
    return subprocess.CompletedProcess(words, code, out.getvalue(), err.getvalue())


def openssl(*argv: object, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
    words = ["openssl", *map(str, argv)]
    return subprocess.run(words, input=stdin, capture_output=True, text=True, check=False)


def signed_certificate(folder: Path, name: str) -> Path:
    """A certificate for a name, by the authority that is in a folder."""
    leaf, extension = folder / "leaf.crt", folder / "leaf.cnf"
    kind = "IP" if re.fullmatch(r"[\d.]+", name) else "DNS"
    extension.write_text(f"subjectAltName = {kind}:{name}\n")
    new = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", "/CN=leaf")
    request = openssl("req", "-new", *new, "-keyout", folder / "leaf.key").stdout
    by = ("-CA", folder / "authority.crt", "-CAkey", folder / "secrets/authority.pem")
    more = ("-days", 1, "-extfile", extension, "-out", leaf)
    result = openssl("x509", "-req", *by, "-CAcreateserial", *more, stdin=request)
    assert result.returncode == 0, result.stderr
    return leaf


@pytest.fixture
def authority_file(tmp_path: Path) -> Path:
    """The authority's file, in the folder of secrets."""
    path = tmp_path / "secrets/authority.pem"
    result = run(path, "spark1", "gpu.example.com")
    assert (result.returncode, result.stderr) == (0, "")
    assert KEY not in result.stdout
    return path


def test_its_key_is_for_root_alone_and_its_certificate_for_everybody(
    authority_file: Path, tmp_path: Path
) -> None:
    assert stat.S_IMODE(authority_file.stat().st_mode) == 0o600
    public = tmp_path / "authority.crt"
    assert stat.S_IMODE(public.stat().st_mode) == 0o644
    assert KEY in authority_file.read_text() and authority_file.read_text().endswith(
        public.read_text()
    )
    assert public.read_text().startswith("-----BEGIN CERTIFICATE-----")
    assert KEY not in public.read_text()


def test_it_is_made_once_and_its_certificate_comes_back(
    authority_file: Path, tmp_path: Path
) -> None:
    earlier_text = authority_file.read_text()
    (tmp_path / "authority.crt").unlink()
    authority_file.chmod(0o644)
    assert run(authority_file, "spark1").returncode == 0
    assert (
        authority_file.read_text() == earlier_text
        and stat.S_IMODE(authority_file.stat().st_mode) == 0o600
    )
    assert (tmp_path / "authority.crt").read_text() in earlier_text


def test_one_of_another_host_takes_its_place(authority_file: Path, tmp_path: Path) -> None:
    target_path = tmp_path / "other/secrets/authority.pem"
    assert run(target_path, "spark2").returncode == 0
    result = run("--take", target_path, stdin=authority_file.read_text() + "\n")
    assert (result.returncode, result.stderr) == (0, "")
    assert target_path.read_text() == authority_file.read_text()
    assert (tmp_path / "other/authority.crt").read_text() in authority_file.read_text()


def test_a_damaged_one_stays_for_people_to_decide(authority_file: Path) -> None:
    damaged_text = authority_file.read_bytes()[30:] + b"\xff"
    authority_file.write_bytes(damaged_text)
    result = run(authority_file, "spark1")
    assert result.returncode == errors.EXIT_FAILED
    assert f"{authority_file} is damaged. Remedy: bring it back from a backup" in result.stderr
    assert authority_file.read_bytes() == damaged_text


@pytest.mark.parametrize("content", ["", "nonsense\n", "only the certificate"])
def test_nothing_else_is_taken(content: str, authority_file: Path, tmp_path: Path) -> None:
    earlier_text = authority_file.read_text()
    text = (tmp_path / "authority.crt").read_text() if "only" in content else content
    result = run("--take", authority_file, stdin=text)
    assert result.returncode == errors.EXIT_FAILED
    assert "expected a key and its certificate" in result.stderr
    assert authority_file.read_text() == earlier_text


@pytest.mark.parametrize(
    ("name", "is_believed"),
    [
        ("spark1", True),
        ("spark-1.local", True),
        ("gpu.example.com", True),
        ("10.1.2.3", True),
        ("100.100.1.1", True),
        ("spark2", False),
        ("www.example.org", False),
        ("example.com", False),
        ("8.8.8.8", False),
    ],
)
def test_it_is_believed_for_private_names_and_those_of_the_hosts(
    name: str, is_believed: bool, authority_file: Path, tmp_path: Path
) -> None:
    result = openssl(
        "verify", "-CAfile", tmp_path / "authority.crt", signed_certificate(tmp_path, name)
    )
    assert (result.returncode == 0) is is_believed, result.stdout + result.stderr
    assert is_believed or "permitted subtree violation" in result.stderr


@pytest.mark.parametrize("argv", [[], ["--take"], ["--take", "a", "b"], ["-x"]])
def test_wrong_use(argv: list[str]) -> None:
    result = run(*argv)
    assert result.returncode == errors.EXIT_USAGE
    assert "usage: make-authority" in result.stderr
