"""Certificates for the gateway: those of yours, and Tailscale's."""

import subprocess
import time
from pathlib import Path
from typing import Any

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


def test_a_certificate_with_its_key_is_good_until_it_ends(tmp_path):
    question: dict[str, Any] = make_certificate(tmp_path)
    assert tls.read(question) == {"fault": "", "days": 89}
    assert list(tls.findings(question)) == []
    question["now"] = time.time() + 69.5 * 86400
    assert tls.read(question) == {"fault": "", "days": 20}
    assert [value for _, _, value in tls.findings(question)] == ["ends in 20 days"]
    question["now"] = time.time() + 90 * 86400 + 1
    ((_, _, message),) = tls.findings(question)
    assert "has ended on" in str(message)


def test_what_is_missing_does_not_fit_or_is_no_certificate_is_named(tmp_path):
    good, other_certificate = make_certificate(tmp_path), make_certificate(tmp_path, "other")
    junk = tmp_path / "junk.pem"
    junk.write_text("no certificate\n")
    for words, question in (
        ("the key does not belong to it", {**good, "key": other_certificate["key"]}),
        ("/gone.key: No such file", {**good, "key": str(tmp_path / "gone.key")}),
        ("/gone.pem: No such file", {**good, "certificate": str(tmp_path / "gone.pem")}),
        ("junk.pem with ", {**good, "certificate": str(junk)}),
    ):
        fault = tls.read(question)["fault"]
        assert words in fault
        assert [value for _, _, value in tls.findings(question)] == [fault]


def test_an_authority_needs_openssl_and_where_none_is_wanted_nothing_is_wrong(monkeypatch):
    assert tls.read({}) == {"fault": "", "days": None}
    assert list(tls.findings({})) == []
    assert tls.read({"own": True})["fault"] == ""
    monkeypatch.setenv("PATH", "/nonexistent")
    assert "no openssl" in tls.read({"own": True})["fault"]


def tailscale_fault(name: str = NAME) -> str:
    return str(tls.read({"tailscale": [name]})["fault"])


def test_tailscale_s_is_good_where_its_daemon_gives_it_to_caddy(tmp_path, monkeypatch):
    variables = {}
    unit = units.Unit("tailscaled.service", main_pid=7)
    monkeypatch.setattr(units, "units_by_name", lambda _: {"tailscaled.service": unit})
    monkeypatch.setattr(tls.process_liveness, "variables", {7: variables}.get)
    # Its local interface speaks as Docker's does.
    daemon = FakeDocker(tmp_path / "tailscaled.sock")
    daemon.answers["/localapi/v0/status"] = {"CertDomains": [NAME]}
    monkeypatch.setattr(tls, "_TAILSCALED", str(daemon.path))
    assert "TS_PERMIT_CERT_UID=caddy into /etc/default/tailscaled" in tailscale_fault()
    variables["TS_PERMIT_CERT_UID"] = "caddy"
    assert tailscale_fault() == ""
    other_name = "spark-2.x.ts.net"
    assert f"no certificate for {other_name}, but for {NAME}" in tailscale_fault(other_name)
    daemon.answers["/localapi/v0/status"] = {"CertDomains": None}
    assert "enable HTTPS in its admin console" in tailscale_fault()
    daemon.close()
    assert "tailscaled does not answer at" in tailscale_fault()
