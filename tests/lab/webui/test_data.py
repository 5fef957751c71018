"""Data of Open WebUI: a chat, an update, a rollback, a wiped host, and the chat is there."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from stack import Host, Stack, until

IMAGE = "ghcr.io/open-webui/open-webui"
OLD, NEW = "0.12.3", "0.12.4"
UNIT = "open-webui.service"
URL = "http://127.0.0.1:8080"
SECRETS = "/etc/lockstep/secrets/open-webui.env"
RECORD = "/var/lib/lockstep-deploy/webui.json"
COPIES = "/var/lib/lockstep-deploy/webui"
BACKUP = "/var/lib/lockstep-deploy/backup"
PASSWORD = "/etc/lockstep/secrets/backup.key"
KEPT = "/root/backup.key"
PLACE = "sftp:spark2.lockstep:/spark1"


def asked(host: Host, path: str, body: object = None, token: str = "") -> Any:
    """JSON that Open WebUI answers to its administrator."""
    sent = f"-d {shlex.quote(json.dumps(body))}" if body is not None else ""
    header = f"-H 'Authorization: Bearer {token}'" if token else ""
    return json.loads(host.root(f"curl -fsS --max-time 20 {header} {sent} {URL}{path}"))


def token(host: Host) -> str:
    lines = host.root(f"cat {SECRETS}").splitlines()
    known = dict(line.split("=", 1) for line in lines if "=" in line)
    who = {"email": known["WEBUI_ADMIN_EMAIL"], "password": known["WEBUI_ADMIN_PASSWORD"]}
    return str(asked(host, "/api/v1/auths/signin", who)["token"])


def say(host: Host, title: str) -> None:
    """Keep a chat."""
    asked(host, "/api/v1/chats/new", {"chat": {"title": title}}, token(host))


def chats(host: Host) -> set[str]:
    return {chat["title"] for chat in asked(host, "/api/v1/chats/", token=token(host))}


def version(host: Host) -> str:
    return str(asked(host, "/api/version")["version"])


def updating(host: Host) -> bool:
    return json.loads(host.root(f"cat {RECORD}"))["update"] is not None


@pytest.fixture(scope="module")
def inventories(stack: Stack, first: object) -> Iterator[dict[str, Path]]:
    """Name → inventory of spark1 alone, with the older image, and chats; as it was afterwards."""
    tags = {"old": f"v{OLD}", "new": f"v{NEW}", "broken": "broken"}
    found = {
        name: stack.inventory(name, webui={"image": f"{IMAGE}:{tag}"}, spark2=None)
        for name, tag in tags.items()
    }
    stack.one.root(f"systemctl stop {UNIT}; docker volume rm open-webui; rm -rf {RECORD} {COPIES}")
    stack.good_deploy(inventory=found["old"])
    say(stack.one, "of the old image")
    yield found
    stack.good_deploy()
    for host in stack.hosts:
        left = "/etc/lockstep/backup* /etc/lockstep/secrets/backup-ssh* /etc/ssh/*.d/*lockstep*"
        assert host.root(f"ls -d {left} 2>/dev/null || true") == ""
        assert host.run("id lockstep-backup").code != 0
        assert host.show("lockstep-backup-door.service", "LoadState") == "not-found"
    owners = (
        "find /var/lib/lockstep-backup -printf '%u\\n' | sort -u; rm -r /var/lib/lockstep-backup"
    )
    assert stack.two.root(owners).split() == ["root"]


def test_a_broken_update_ends_with_the_old_image_and_its_chats(
    stack: Stack, inventories: dict[str, Path]
) -> None:
    done = stack.deploy(inventory=inventories["broken"])
    assert done.code != 0
    assert "is back, with its data" in " ".join(done.output.split())
    assert version(stack.one) == OLD
    assert not updating(stack.one)
    assert chats(stack.one) == {"of the old image"}


def test_a_killed_update_is_done_or_taken_back_each_time(
    stack: Stack, inventories: dict[str, Path]
) -> None:
    stack.start(inventory=inventories["new"]).kill_at("restart open-webui")
    until(lambda: not updating(stack.one), "the update has ended")
    for _ in range(2):
        stack.one.root(f"systemctl kill --signal=KILL {UNIT}; docker kill open-webui || true")
        until(lambda: stack.one.look(f"curl -fs {URL}/health").code == 0, "Open WebUI is up")
        assert chats(stack.one) == {"of the old image"}
    stack.good_deploy(inventory=inventories["new"])
    assert version(stack.one) == NEW
    assert chats(stack.one) == {"of the old image"}


def test_a_rollback_brings_the_chats_of_before_and_says_which_it_loses(
    stack: Stack, inventories: dict[str, Path]
) -> None:
    say(stack.one, "of the new image")
    old = inventories["old"]
    seen = stack.lockstep("rollback", "--dry", inventory=old)
    assert "1 chat(s) that were begun or continued since are not in it" in seen.out
    unasked = stack.lockstep("rollback", inventory=old)
    assert unasked.code == 2 and "--data return" in unasked.err
    assert version(stack.one) == NEW

    back = stack.lockstep("rollback", "--yes", "--data", "return", inventory=old)
    assert back.code == 0, back.text
    assert version(stack.one) == OLD
    assert chats(stack.one) == {"of the old image"}


@pytest.fixture(scope="module")
def backed_up(stack: Stack, inventories: dict[str, Path]) -> Iterator[Path]:
    """An inventory whose first Spark keeps its backups on the second too, deployed."""
    links = {f"{host.name}__fabric_address": address(host) for host in stack.hosts}
    found = stack.inventory(
        "backup",
        spark1__webui={"image": f"{IMAGE}:v{OLD}"},
        spark1__backup={"enabled": True, "to": ("twin",)},
        **links,
    )
    stack.good_deploy("-y", inventory=found)
    yield found
    stack.lockstep("key revoke", "anna")
    stack.one.root(f"rm -rf {BACKUP} {PASSWORD}")


def address(host: Host) -> str:
    return host.root("hostname -I").split()[0]


def test_the_door_of_a_twin_is_for_backups_alone(stack: Stack, backed_up: Path) -> None:
    one, two = stack.hosts
    assert one.root("echo ls -a | sftp -b - spark2.lockstep").split()[-1] == "spark1"
    for words in ("ssh spark2.lockstep id", "ssh -N -o ExitOnForwardFailure=yes -L 1:a:1 "):
        assert one.run(f"sudo -n timeout 20 {words}").code != 0
    there = f"{address(two)} -p 7076"
    # From another address, with the key; and the host key is that of nobody else.
    key = "/etc/lockstep/secrets/backup-ssh"
    options = f"-F none -i {key} -o BatchMode=yes -o StrictHostKeyChecking=no"
    here = f"ssh {options} -o UserKnownHostsFile=/dev/null -l"
    assert "Permission denied" in one.run(f"sudo -n {here} spark {there} true").err
    assert "Permission denied" in one.run(f"sudo -n {here} root {there} true").err
    assert one.run(f"sudo -n {here} lockstep-backup {address(two)} true").code != 0
    other = "-o UserKnownHostsFile=/dev/null"
    assert "Host key verification failed" in one.run(f"sudo -n ssh {other} spark2.lockstep").err


def test_a_wiped_host_has_its_chats_and_keys_again(stack: Stack, backed_up: Path) -> None:
    host = stack.one
    say(host, "of before")
    kept = chats(host)
    assert stack.lockstep("key add", "anna", inventory=backed_up).code in (0, 2)
    made = stack.lockstep("backup now", "spark1", inventory=backed_up)
    assert made.code == 0, made.text
    assert f"backed up to {PLACE}" in made.out
    # As each night does, confined.
    host.root("systemctl start lockstep-backup.service")
    clean = stack.lockstep("backup check", "spark1", inventory=backed_up)
    assert clean.code == 0 and clean.out.count(": whole") == 2, clean.text
    for shown in ("journalctl --no-pager --all -o export", "cat /etc/systemd/system/lockstep-*"):
        assert host.root(f"{shown} | grep -a -c -F -f {PASSWORD} || true").strip() == "0"

    host.root(
        f"mv {PASSWORD} {KEPT}; systemctl stop {UNIT} lockstep-gateway.socket lockstep-gateway;"
        " docker volume rm open-webui;"
        f" rm -rf {RECORD} {COPIES} {BACKUP} /etc/lockstep/gateway/keys.json"
    )
    stack.good_deploy("-y", "--limit", "spark1", inventory=backed_up)
    assert chats(host) == set()
    host.root(f"mv {KEPT} {PASSWORD}")
    back = stack.lockstep("backup restore", "spark1", "--from", PLACE, "-y", inventory=backed_up)
    assert back.code == 0, back.text
    assert chats(host) == kept
    assert "anna" in stack.lockstep("key list", inventory=backed_up).out
