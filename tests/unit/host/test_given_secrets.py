"""Secrets that a deploy brings to a host: where, and for whom."""

from __future__ import annotations

from fnmatch import fnmatch
from pathlib import Path

from a_spark import pins_for, spark

from lockstep.deploy.questions import questions
from lockstep.files.tree import KEY
from lockstep.host.intended import Intended
from lockstep.units.tls_unit import UNIT

HUB_TOKEN = "/etc/lockstep/hub-token"


def this(**data: object) -> Intended:
    plan = spark(**data)
    return Intended(plan, pins_for(plan))


def test_an_inventory_without_any_brings_none() -> None:
    assert this().given_secrets == ()


def test_the_account_that_fetches_may_read_the_token_and_no_other(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("hf_x\n")
    [given] = this(hub_token={"file": str(tmp_path / "token")}).given_secrets
    file = given.fetched()
    assert (file.path, file.text) == (HUB_TOKEN, "hf_x\n")
    assert (file.mode, file.owner, file.group) == ("0640", "root", "lockstep")


def test_caddy_is_given_a_certificate_that_the_deploy_brings() -> None:
    tls = {"certificate": {"file": "~/chain.pem"}, "key": {"command": ("pass", "spark")}}
    host = this(gateway={"bind": "0.0.0.0", "tls": tls})
    chain, key = host.given_secrets
    assert (chain.key, key.key) == ("gateway.tls.certificate", "gateway.tls.key")
    assert key.mode == chain.mode == "0600"
    unit = next(file.text for file in host.all_files if file.path.endswith(UNIT))
    assert f"LoadCredential=certificate:{chain.path}\n" in unit
    assert f"LoadCredential=key:{key.path}\n" in unit


def test_a_host_is_asked_for_it_by_a_keyed_hash_and_no_file_is_planned_with_it() -> None:
    host = this(hub_token={"command": ("false",)})
    asked = questions(host)["files"]
    assert HUB_TOKEN in asked["private"] and HUB_TOKEN not in asked["known"]
    assert asked["key"] == KEY and len(bytes.fromhex(KEY)) == 32
    assert HUB_TOKEN not in host.paths


def test_one_that_the_inventory_names_no_more_is_found_and_so_removed() -> None:
    source = {"command": ("false",)}
    hook = {"webhook": "https://example.org/hook", "token": source}
    monitoring = {"enabled": True, "tell": (hook,)}
    tls = {"certificate": source, "key": source}
    with_all = this(gateway={"bind": "0.0.0.0", "tls": tls}, monitoring=monitoring)
    patterns = questions(this())["files.marked"]["named"]
    paths = [given.path for given in with_all.given_secrets]
    assert len(paths) == 3
    for path in paths:
        assert any(fnmatch(path, pattern) for pattern in patterns), path
