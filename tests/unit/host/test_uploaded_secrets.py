"""Secrets that a deploy brings to a host: where, and for whom.

How the hub's token comes there, unseen: tests/operations/test_given_secrets.py.
"""

from fnmatch import fnmatch

from a_spark import pins_for, spark

from lockstep.deploy.questions import questions
from lockstep.host.desired_state import DesiredState
from lockstep.units.tls_unit import UNIT


def intended_host(**data: object) -> DesiredState:
    plan = spark(**data)
    return DesiredState(plan, pins_for(plan))


def test_caddy_is_given_a_certificate_that_the_deploy_brings() -> None:
    tls = {"certificate": {"file": "~/chain.pem"}, "key": {"command": ("pass", "spark")}}
    host = intended_host(gateway={"bind": "0.0.0.0", "tls": tls})
    chain, key = host.uploaded_secrets
    assert (chain.key, key.key) == ("gateway.tls.certificate", "gateway.tls.key")
    assert key.mode == chain.mode == "0600"
    unit = next(file.text for file in host.all_files if file.path.endswith(UNIT))
    assert f"LoadCredential=certificate:{chain.path}\n" in unit
    assert f"LoadCredential=key:{key.path}\n" in unit


def test_one_that_the_inventory_names_no_more_is_found_and_so_removed() -> None:
    source = {"command": ("false",)}
    hook = {"webhook": "https://example.org/hook", "token": source}
    monitoring = {"enabled": True, "tell": (hook,)}
    tls = {"certificate": source, "key": source}
    with_all = intended_host(gateway={"bind": "0.0.0.0", "tls": tls}, monitoring=monitoring)
    patterns = questions(intended_host())["files.leftovers"]["named"]
    paths = [secret.path for secret in with_all.uploaded_secrets]
    assert len(paths) == 3
    for path in paths:
        assert any(fnmatch(path, pattern) for pattern in patterns), path
