"""Receivers of alerts in an inventory; those that cannot work are refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from a_spark import spark

from lockstep.core.errors import InventoryError
from lockstep.host.uploaded_secrets import uploaded_secrets_of
from lockstep.inventory.host import HostPlan
from lockstep.monitoring.alertmanager import alertmanager_text

MAIL = {"email": "a@example.org", "smarthost": "mail.example.org:587", "sender": "s@example.org"}


def alerting(*tell: object, **more: bool) -> HostPlan:
    return spark(monitoring={"enabled": True, "tell": tell, **more})


@pytest.mark.parametrize(
    ("receiver", "message"),
    [
        ({}, "must name one way; found none of them"),
        ({"ntfy": "https://n/t", "webhook": "http://h"}, "found ntfy and webhook"),
        ({"ntfy": "https://u:pw@ntfy.sh/t"}, "without a login"),
        ({"ntfy": "https://ntfy.sh/"}, "is not the address of a topic"),
        ({"webhook": "ftp://h/x"}, "is not an address to send to"),
        ({"webhook": "http://h", "smarthost": "m:25"}, "webhook does not have; found smarthost"),
        ({**MAIL, "token": {"file": "x"}}, "email does not have; found token"),
        ({"email": "a@example.org"}, "names no mail server"),
        ({**MAIL, "user": "u"}, "has half a login"),
        ({**MAIL, "smarthost": "mail"}, "is not a mail server with its port"),
        ({"ntfy": "https://n/t", "token": "tk_1"}, "must be a mapping"),
        ({"nfty": "https://n/t"}, "Did you mean 'ntfy'?"),
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
    assert (token.key, token.path) == (
        "monitoring.tell[0].token",
        "/etc/lockstep/secrets/alerts-1-ntfy",
    )
    assert (password.key, password.path) == (
        "monitoring.tell[1].password",
        "/etc/lockstep/secrets/alerts-2-email",
    )
    assert {(secret.mode, secret.group) for secret in (token, password)} == {("0600", "root")}
    # Alertmanager 0.25 would send the end of the line, too.
    assert password.secret_file().text == "p4ss"


def test_where_nothing_tells_no_secret_is_asked_for() -> None:
    for more in ({"enabled": False}, {"alertmanager": False}):
        assert not list(uploaded_secrets_of(alerting(TOKEN, **more)))
