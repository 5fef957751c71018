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

from lockstep.onhost.access import authority
from lockstep.onhost.core import errors

KEY = "-----BEGIN PRIVATE KEY-----"


def run(*argv: object, given: str = "") -> subprocess.CompletedProcess[str]:
    words, out, err = list(map(str, argv)), io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err), mock.patch("sys.stdin", io.StringIO(given)):
        code = errors.ended("make-authority", lambda: authority.main(words))
    return subprocess.CompletedProcess(words, code, out.getvalue(), err.getvalue())


def openssl(*argv: object, given: str | None = None) -> subprocess.CompletedProcess[str]:
    words = ["openssl", *map(str, argv)]
    return subprocess.run(words, input=given, capture_output=True, text=True, check=False)


def signed(folder: Path, name: str) -> Path:
    """A certificate for a name, by the authority that is in a folder."""
    leaf, extension = folder / "leaf.crt", folder / "leaf.cnf"
    kind = "IP" if re.fullmatch(r"[\d.]+", name) else "DNS"
    extension.write_text(f"subjectAltName = {kind}:{name}\n")
    new = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", "/CN=leaf")
    request = openssl("req", "-new", *new, "-keyout", folder / "leaf.key").stdout
    by = ("-CA", folder / "authority.crt", "-CAkey", folder / "secrets/authority.pem")
    more = ("-days", 1, "-extfile", extension, "-out", leaf)
    done = openssl("x509", "-req", *by, "-CAcreateserial", *more, given=request)
    assert done.returncode == 0, done.stderr
    return leaf


@pytest.fixture
def made(tmp_path: Path) -> Path:
    """Its file, in the folder of secrets."""
    path = tmp_path / "secrets/authority.pem"
    done = run(path, "spark1", "gpu.example.com")
    assert (done.returncode, done.stderr) == (0, "")
    assert KEY not in done.stdout
    return path


def test_its_key_is_for_root_alone_and_its_certificate_for_everybody(
    made: Path, tmp_path: Path
) -> None:
    assert stat.S_IMODE(made.stat().st_mode) == 0o600
    public = tmp_path / "authority.crt"
    assert stat.S_IMODE(public.stat().st_mode) == 0o644
    assert KEY in made.read_text() and made.read_text().endswith(public.read_text())
    assert public.read_text().startswith("-----BEGIN CERTIFICATE-----")
    assert KEY not in public.read_text()


def test_it_is_made_once_and_its_certificate_comes_back(made: Path, tmp_path: Path) -> None:
    before = made.read_text()
    (tmp_path / "authority.crt").unlink()
    made.chmod(0o644)
    assert run(made, "spark1").returncode == 0
    assert made.read_text() == before and stat.S_IMODE(made.stat().st_mode) == 0o600
    assert (tmp_path / "authority.crt").read_text() in before


def test_one_of_another_host_takes_its_place(made: Path, tmp_path: Path) -> None:
    other = tmp_path / "other/secrets/authority.pem"
    assert run(other, "spark2").returncode == 0
    done = run("--take", other, given=made.read_text() + "\n")
    assert (done.returncode, done.stderr) == (0, "")
    assert other.read_text() == made.read_text()
    assert (tmp_path / "other/authority.crt").read_text() in made.read_text()


@pytest.mark.parametrize("what", ["", "nonsense\n", "only the certificate"])
def test_nothing_else_is_taken(what: str, made: Path, tmp_path: Path) -> None:
    before = made.read_text()
    given = (tmp_path / "authority.crt").read_text() if "only" in what else what
    done = run("--take", made, given=given)
    assert done.returncode == errors.EXIT_FAILED
    assert "expected a key and its certificate" in done.stderr
    assert made.read_text() == before


@pytest.mark.parametrize(
    ("name", "believed"),
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
    name: str, believed: bool, made: Path, tmp_path: Path
) -> None:
    done = openssl("verify", "-CAfile", tmp_path / "authority.crt", signed(tmp_path, name))
    assert (done.returncode == 0) is believed, done.stdout + done.stderr
    assert believed or "permitted subtree violation" in done.stderr


@pytest.mark.parametrize("argv", [[], ["--take"], ["--take", "a", "b"], ["-x"]])
def test_wrong_use(argv: list[str]) -> None:
    done = run(*argv)
    assert done.returncode == errors.EXIT_USAGE
    assert "usage: make-authority" in done.stderr
