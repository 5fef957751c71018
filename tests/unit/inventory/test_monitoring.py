"""Keys of monitoring, the ring of recorders, and receivers of alerts."""

from pathlib import Path
from typing import Any

import pytest
from a_spark import spark

from lockstep.core.errors import InventoryError
from lockstep.host.uploaded_secrets import uploaded_secrets_of
from lockstep.inventory.cluster_join import join_clusters
from lockstep.inventory.host import HostPlan
from lockstep.monitoring.alertmanager import alertmanager_text


def host(number: int, address: str | None = "", **monitoring: Any) -> Any:
    return spark(
        f"spark-{number}",
        fabric_address=f"10.77.0.{number}" if address == "" else address,
        monitoring={"enabled": True, **monitoring},
    )


def test_hosts_record_each_other_in_a_ring() -> None:
    rings = [plan.ring for plan in join_clusters([host(1), host(2), host(3)], "site")]
    recorders = [ring.recorder and ring.recorder.name for ring in rings]
    recorded_hosts = [peer.name for ring in rings for peer in ring.recorded_hosts]
    assert recorders == ["spark-2", "spark-3", "spark-1"]
    assert recorded_hosts == ["spark-3", "spark-1", "spark-2"]


def test_kernels_that_send_to_one_host_have_a_port_each() -> None:
    first, two, three = join_clusters(
        [host(1, netconsole_port=7000), host(2, prometheus=False), host(3)], ""
    )
    # The third records the first two, and the first the third; nobody is left for the second.
    assert two.ring.recorded_hosts == ()
    assert [peer.console for peer in three.ring.recorded_hosts] == [6666, 6667]
    consoles = {plan.name: plan.ring.recorder.console for plan in (first, two, three)}  # type: ignore[union-attr]
    assert consoles == {"spark-1": 6666, "spark-2": 6667, "spark-3": 7000}


def test_what_the_console_gets_is_raised_where_a_kernel_sends_it() -> None:
    own = spark(
        "spark-2",
        sysctls={"kernel.printk": "7 4 1 7"},
        fabric_address="10.77.0.2",
        monitoring={"enabled": True},
    )
    silent = host(3, netconsole=False)
    first, second, third = join_clusters([host(1), own, silent], "site")
    assert first.settings.sysctls["kernel.printk"] == "5 4 1 7"
    assert second.settings.sysctls["kernel.printk"] == "7 4 1 7"
    # That one is recorded without its kernel's words.
    assert third.ring.recorder and third.ring.recorder.console is None
    assert "kernel.printk" not in third.settings.sysctls
    (alone,) = join_clusters([host(1)], "site")
    assert "kernel.printk" not in alone.settings.sysctls


@pytest.mark.parametrize(
    "other_host", [host(2, enabled=False), host(2, "spark-2.fabric")], ids=["off", "a name"]
)
def test_one_that_nobody_can_reach_has_no_part(other_host: Any) -> None:
    plans = join_clusters([host(1), other_host], "site")
    assert [(plan.ring.recorder, plan.ring.recorded_hosts) for plan in plans] == 2 * [(None, ())]


def test_prometheus_on_the_fast_link_is_for_the_other_monitored_hosts() -> None:
    hosts = [host(1, bind="fabric"), host(2), host(3, enabled=False)]
    first, second, _ = join_clusters(hosts, "site")
    assert [reader.name for reader in first.ring.readers] == ["spark-2"]
    assert second.ring.readers == ()
    with pytest.raises(InventoryError, match="fabric_address is no IP address"):
        host(1, None, bind="fabric")


def test_two_parts_have_no_port_in_common_and_ports_of_what_does_not_run_are_free():
    with pytest.raises(InventoryError, match=r"prometheus_port: port 9100 is used twice"):
        host(1, prometheus_port=9100)
    assert host(1, prometheus_port=9100, prometheus=False)
    assert host(1, exporter_port=8090, enabled=False)


def test_the_page_asks_prometheus_where_it_listens() -> None:
    def url(**monitoring: Any) -> str | None:
        return spark(fabric_address="fd00::1", monitoring=monitoring).settings.prometheus_url

    assert url() is url(enabled=True, prometheus=False) is None
    assert url(enabled=True) == "http://127.0.0.1:9090"
    assert url(enabled=True, bind="fabric", prometheus_port=9191) == "http://[fd00::1]:9191"


MAIL = {"email": "a@example.org", "smarthost": "mail.example.org:587", "sender": "s@example.org"}


def alerting(*tell: object, **more: bool) -> HostPlan:
    return spark(monitoring={"enabled": True, "tell": tell, **more})


@pytest.mark.parametrize(
    ("receiver", "message"),
    [
        ({}, "must name one way; found none of them"),
        ({"ntfy": "https://u:pw@ntfy.sh/t"}, "without a login"),
        ({"ntfy": "https://ntfy.sh/"}, "is not the address of a topic"),
        ({"webhook": "ftp://h/x"}, "is not an address to send to"),
        ({"webhook": "http://h", "smarthost": "m:25"}, "webhook does not have; found smarthost"),
        ({**MAIL, "token": {"file": "x"}}, "email does not have; found token"),
        ({"email": "a@example.org"}, "names no mail server"),
        ({**MAIL, "user": "u"}, "has half a login"),
        ({**MAIL, "smarthost": "mail"}, "is not a mail server with its port"),
    ],
)
def test_a_receiver_that_cannot_work_is_refused(receiver: dict[str, object], message: str) -> None:
    with pytest.raises(InventoryError) as error:
        alerting(receiver)
    assert message in str(error.value) and "monitoring.tell[0]" in str(error.value)
    assert "pw" not in str(error.value)


TOKEN = {"ntfy": "https://ntfy.sh/t", "token": {"command": ("pass", "ntfy")}}


def test_a_mail_server_must_speak_tls_unless_the_owner_says_no() -> None:
    for more, line in (({}, "require_tls: true"), ({"starttls": False}, "require_tls: false")):
        assert line in alertmanager_text(alerting({**MAIL, **more}).settings)


def test_secrets_come_from_the_operator_s_machine_for_root_alone(tmp_path: Path) -> None:
    path = tmp_path / "password"
    path.write_text("p4ss\n")
    plan = alerting(TOKEN, {**MAIL, "user": "u", "password": {"file": str(path)}})
    token, password = uploaded_secrets_of(plan)
    assert (token.key, password.key) == ("monitoring.tell[0].token", "monitoring.tell[1].password")
    assert token.path == "/etc/lockstep/secrets/alerts-1-ntfy"
    assert {(secret.mode, secret.group) for secret in (token, password)} == {("0600", "root")}
    # Alertmanager 0.25 would send the end of the line, too.
    assert password.secret_file().text == "p4ss"


def test_where_nothing_tells_no_secret_is_asked_for() -> None:
    for more in ({"enabled": False}, {"alertmanager": False}):
        assert not list(uploaded_secrets_of(alerting(TOKEN, **more)))
