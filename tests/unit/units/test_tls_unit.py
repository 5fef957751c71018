"""Caddy before the gateway: for which names, with whose certificate, and what hosts share."""

import pytest
from a_spark import pins_for, spark
from monitored_spark import file_text

from lockstep.core.errors import InventoryError
from lockstep.host.desired_state import DesiredState
from lockstep.inventory.cluster_join import join_clusters
from lockstep.resources.fact_comparison import SubjectView
from lockstep.resources.files import expectations, future_key_hash, whole_key_hash
from lockstep.system.firewall import RULES
from lockstep.units.tls_unit import CADDYFILE, ROOT, UNIT

YOURS = {"certificate": "/etc/ssl/spark.pem", "key": "/etc/ssl/spark.key"}
NAME = "spark-1.tail1234.ts.net"
GATEWAY = "lockstep-gateway.service"


def hosts(**gateway: object) -> list[DesiredState]:
    """The desired state of two hosts."""
    plans = []
    for number, name in ((11, "Spark-1.local"), (12, "spark2")):
        addresses = {"fabric_address": f"10.77.0.{number}", "ssh_hostname": f"192.168.1.{number}"}
        plans.append(spark(name, gateway=gateway, **addresses))
    return [DesiredState(plan, pins_for(plan)) for plan in join_clusters(plans, "site.py")]


def sites(intended_host: DesiredState) -> str:
    """The names that Caddy serves."""
    lines = file_text(intended_host, CADDYFILE).splitlines()
    return next(line for line in lines if line.startswith("https://")).rstrip(" {")


def test_with_tls_caddy_is_installed_and_starts_at_boot_and_without_there_is_none() -> None:
    first, _ = hosts(bind="0.0.0.0", tls="own")
    assert "caddy" in first.packages and first.gateway_units[-1] == UNIT
    assert "WantedBy=multi-user.target" in file_text(first, UNIT)
    assert "bind 0.0.0.0\n" in file_text(first, CADDYFILE)
    for gateway in ({}, {"bind": "0.0.0.0", "plain": True}):
        first, _ = hosts(**gateway)
        assert file_text(first, CADDYFILE) == file_text(first, UNIT) == ""
        assert "caddy" not in first.packages and UNIT not in first.gateway_units
        assert first.shared_keys == ()


def test_a_certificate_has_every_name_of_the_host() -> None:
    first, second = hosts(bind="0.0.0.0", tls="own", tls_port=9443, names=("fd00::5", "AI.lan"))
    assert sites(first) == (
        "https://spark-1.local:9443, https://192.168.1.11:9443, "
        "https://[fd00::5]:9443, https://ai.lan:9443"
    )
    assert "https://spark2:9443" in sites(second)
    first, _ = hosts(bind="10.0.0.9", tls="own")
    assert "https://10.0.0.9:8443" in sites(first)


def test_the_authority_is_the_same_on_all_hosts_and_another_one_for_other_names() -> None:
    first, second = hosts(bind="0.0.0.0", tls="own", names=("gpu.example.com",))
    (key,), (again,) = first.shared_keys, second.shared_keys
    assert key == again and key.hosts == ("Spark-1.local", "spark2") and key.units == (UNIT,)
    # Private names and addresses are permitted by themselves.
    assert key.make[-3:] == (key.path, "gpu.example.com", "spark2")
    assert f"LoadCredential=authority:{key.path}\n" in file_text(first, UNIT)
    assert hosts(bind="0.0.0.0", tls="own")[0].shared_keys[0].path != key.path


def test_a_host_without_the_authority_s_certificate_lacks_a_part_of_it_and_has_its_key() -> None:
    first, second = hosts(bind="0.0.0.0", tls="own")
    (key,) = first.shared_keys
    owners = {"kind": "file", "owner": "root", "group": "root"}
    files_without_root = {key.path: {"mode": "0600", "seal": "a", **owners}, ROOT: None}
    whole = {**files_without_root, ROOT: {"mode": "0644", "seal": "b", **owners}}
    for desired_state in (first, second):
        name = desired_state.plan.name
        assert whole_key_hash(key, name, files_without_root) is None
        assert whole_key_hash(key, name, whole) == "a"
        # Who has it takes none from a host that lacks the certificate alone.
        assert future_key_hash(key, name, files_without_root) == "a"
        rows = expectations(desired_state, SubjectView({}, b"k"))
        expected_rows = [(row.kind, row.item, row.value) for row in rows]
        assert ("secret", ROOT, "0644 root:root") in expected_rows


def test_a_certificate_of_yours_is_read_by_systemd_alone() -> None:
    first, _ = hosts(bind="0.0.0.0", tls=YOURS)
    unit = file_text(first, UNIT)
    assert "LoadCredential=certificate:/etc/ssl/spark.pem\n" in unit
    assert "LoadCredential=key:/etc/ssl/spark.key\n" in unit and "DynamicUser=yes" in unit
    assert sites(first) == "https://:8443" and first.shared_keys == ()


def test_tailscale_s_is_for_tailscale_s_name_and_the_account_that_it_trusts() -> None:
    first, _ = hosts(bind="0.0.0.0", tls="tailscale", names=(NAME,))
    assert sites(first) == f"https://{NAME}:8443"
    assert "User=caddy\n" in file_text(first, UNIT) and "Credential" not in file_text(first, UNIT)
    with pytest.raises(InventoryError, match=r"gateway\.names"):
        hosts(bind="0.0.0.0", tls="tailscale")


def test_another_certificate_restarts_caddy() -> None:
    units = {
        file_text(hosts(bind="0.0.0.0", tls="own", **more)[0], UNIT)
        for more in ({}, {"names": ("ai.lan",)}, {"tls_port": 9443})
    }
    assert len(units) == 3


def test_gateways_of_peers_have_certificates_of_one_authority_and_reach_each_other_alone() -> None:
    # Group data names all of them, the host itself too.
    first, second = hosts(peers=("Spark-1.local", "spark2"))
    (key,), (second_key,) = first.shared_keys, second.shared_keys
    assert (key.path, key.hosts) == (second_key.path, second_key.hosts)
    assert (key.hosts[0], key.units) == ("Spark-1.local", (GATEWAY,))
    (identity,) = key.certificates
    assert f"LoadCredential=peer-gateway:{identity}\n" in file_text(first, GATEWAY)
    rule = 'ip saddr { 10.77.0.12/32 } tcp dport 8090 accept comment "gateways"'
    assert rule in file_text(first, RULES)
    alone, _ = hosts()
    assert alone.shared_keys == () and "peer-" not in file_text(alone, GATEWAY)
    assert "gateways" not in file_text(alone, RULES)
