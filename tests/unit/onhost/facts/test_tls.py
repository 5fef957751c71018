"""Certificates for the gateway: those of yours, and Tailscale's."""

from __future__ import annotations

import re
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from onhost_fakes import FakeDocker

from lockstep.onhost.facts import tls
from lockstep.onhost.systemd import units

NAME = "spark-1.tail1234.ts.net"


def make_certificate(folder: Path, name: str = "spark", days: int = 90) -> dict[str, str]:
    """A certificate with its key, in two files."""
    certificate, key = folder / f"{name}.pem", folder / f"{name}.key"
    argv = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    argv += ["-nodes", "-days", str(days), "-subj", f"/CN={name}"]
    subprocess.run([*argv, "-keyout", key, "-out", certificate], capture_output=True, check=True)
    return {"certificate": str(certificate), "key": str(key)}


def ends(question: dict[str, str]) -> float:
    argv = ["openssl", "x509", "-in", question["certificate"], "-noout", "-enddate"]
    output = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
    return ssl.cert_time_to_seconds(output.strip().partition("=")[2])


def test_a_certificate_with_its_key_is_good_until_it_ends(tmp_path: Path) -> None:
    question: dict[str, Any] = make_certificate(tmp_path)
    assert tls.read(question) == {"fault": "", "days": 89}
    assert list(tls.findings(question)) == []
    question["now"] = ends(question) - 20.5 * 86400
    assert tls.read(question) == {"fault": "", "days": 20}
    assert list(tls.findings(question)) == [
        ("certificate", question["certificate"], "ends in 20 days")
    ]
    question["now"] = ends(question) + 1
    ((_, _, message),) = tls.findings(question)
    assert "has ended on" in str(message)


def test_what_is_missing_does_not_fit_or_is_no_certificate_is_named(tmp_path: Path) -> None:
    good, other_certificate = make_certificate(tmp_path), make_certificate(tmp_path, "other")
    junk = tmp_path / "junk.pem"
    junk.write_text("no certificate\n")
    cases: dict[str, dict[str, Any]] = {
        "the key does not belong to it": {**good, "key": other_certificate["key"]},
        "/gone.key: No such file": {**good, "key": str(tmp_path / "gone.key")},
        "/gone.pem: No such file": {**good, "certificate": str(tmp_path / "gone.pem")},
        "junk.pem with ": {**good, "certificate": str(junk)},
    }
    for words, question in cases.items():
        fault = tls.read(question)["fault"]
        assert words in fault
        assert [value for _, _, value in tls.findings(question)] == [fault]


def test_where_no_certificate_is_wanted_nothing_is_wrong() -> None:
    assert tls.read({}) == {"fault": "", "days": None}
    assert list(tls.findings({})) == []


def test_an_authority_needs_openssl(monkeypatch: pytest.MonkeyPatch) -> None:
    assert tls.read({"own": True})["fault"] == ""
    monkeypatch.setenv("PATH", "/nonexistent")
    assert "no openssl" in tls.read({"own": True})["fault"]


@pytest.fixture
def daemon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeDocker]:
    """tailscaled's local interface, which speaks as Docker's does."""
    server = FakeDocker(tmp_path / "tailscaled.sock")
    gives(server, [NAME])
    monkeypatch.setattr(tls, "_TAILSCALED", str(server.path))
    yield server
    server.close()


def gives(daemon: FakeDocker, names: list[str] | None) -> None:
    daemon.answers["/localapi/v0/status"] = {"CertDomains": names}


@pytest.fixture
def unit(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The variables of a running tailscaled.service, played by a process of this test's."""
    variables: list[str] = []
    processes: list[subprocess.Popen[bytes]] = []

    def show(names: list[str]) -> dict[str, units.Unit]:
        process = subprocess.Popen(
            ["cat"], stdin=subprocess.PIPE, env=dict(pair.split("=") for pair in variables)
        )
        processes.append(process)
        # Its variables are those of before until the program is in its place.
        while Path(f"/proc/{process.pid}/comm").read_text() != "cat\n":
            pass
        return {name: units.Unit(name, main_pid=process.pid) for name in names}

    monkeypatch.setattr(units, "units_by_name", show)
    yield variables
    for process in processes:
        process.communicate()


def fault(*names: str) -> str:
    return str(tls.read({"tailscale": list(names or (NAME,))})["fault"])


def test_tailscale_s_is_good_where_its_daemon_gives_it_to_caddy(
    daemon: FakeDocker, unit: list[str]
) -> None:
    assert re.search(r"TS_PERMIT_CERT_UID=caddy into /etc/default/tailscaled", fault())
    unit.append("TS_PERMIT_CERT_UID=caddy")
    assert fault() == ""
    assert f"no certificate for spark-2.x.ts.net, but for {NAME}" in fault("spark-2.x.ts.net")
    gives(daemon, None)
    assert "enable HTTPS in its admin console" in fault()


def test_without_tailscaled_that_is_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tls, "_TAILSCALED", "/nonexistent/tailscaled.sock")
    assert "tailscaled does not answer at" in fault()
