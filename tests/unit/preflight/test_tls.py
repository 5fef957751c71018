"""The gateway's certificate before a deploy."""

from __future__ import annotations

import datetime
from typing import Any

import pytest
from a_spark import pins_for, spark
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.x509 import CertificateBuilder, Name, random_serial_number

from lockstep import preflight

YOURS = {"certificate": "/etc/ssl/spark.pem", "key": "/etc/ssl/spark.key"}
NAME = "spark-1.tail1234.ts.net"


def plan(tls: object, *names: str) -> Any:
    return spark(gateway={"bind": "0.0.0.0", "tls": tls, "names": names})


@pytest.mark.parametrize(
    ("intended_host", "expected_question"),
    [
        (spark(), {}),
        (plan(YOURS), YOURS),
        (plan("own"), {"own": True}),
        (plan("tailscale", NAME, "10.0.0.5"), {"tailscale": [NAME]}),
    ],
)
def test_a_host_is_asked_for_what_is_wanted(intended_host: Any, expected_question: Any) -> None:
    assert preflight.questions(intended_host, pins_for(intended_host))["tls"] == expected_question


def pem(days: int) -> tuple[str, str]:
    """A certificate that ends so many days after 1970-01-11, with its key."""
    key, start = generate_private_key(SECP256R1()), datetime.datetime(1970, 1, 1)
    end = datetime.datetime(1970, 1, 11) + datetime.timedelta(days=days)
    builder = CertificateBuilder(Name([]), Name([]), key.public_key(), random_serial_number())
    chain = builder.not_valid_before(start).not_valid_after(end).sign(key, hashes.SHA256())
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return chain.public_bytes(serialization.Encoding.PEM).decode(), private.decode()


def test_one_that_the_deploy_brings_is_judged_on_this_machine() -> None:
    tls_files = {"certificate": {"file": "/chain"}, "key": {"file": "/key"}}
    assert preflight.questions(plan(tls_files), pins_for(plan(tls_files)))["tls"] == {}
    now = 10 * 86400.0
    chain, key = pem(30)
    _, other_key = pem(30)
    assert preflight.given_certificate(chain + pem(90)[0], key, now) == {"fault": "", "days": 30}
    assert "does not belong" in preflight.given_certificate(chain, other_key, now)["fault"]
    assert "certificate is no PEM" in preflight.given_certificate(key, key, now)["fault"]
    assert "key is no PEM" in preflight.given_certificate(chain, "sk-1", now)["fault"]
    assert "has ended on 1970-01-10" in preflight.given_certificate(*pem(-1), now)["fault"]
