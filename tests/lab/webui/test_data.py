"""Data of Open WebUI: a chat, an update, a rollback, a wiped host, and the chat is there."""

import json
import shlex
from typing import Any

import pytest
from earlier_state import EarlierState
from stack import Host, until

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


def webui_answer(host: Host, path: str, body: object = None, token: str = "") -> Any:
    """The JSON that Open WebUI answers to its administrator."""
    body_option = f"-d {shlex.quote(json.dumps(body))}" if body is not None else ""
    header = f"-H 'Authorization: Bearer {token}'" if token else ""
    return json.loads(host.root(f"curl -fsS --max-time 20 {header} {body_option} {URL}{path}"))


def token(host: Host) -> str:
    lines = host.root(f"cat {SECRETS}").splitlines()
    settings = dict(line.split("=", 1) for line in lines if "=" in line)
    credentials = {
        "email": settings["WEBUI_ADMIN_EMAIL"],
        "password": settings["WEBUI_ADMIN_PASSWORD"],
    }
    return str(webui_answer(host, "/api/v1/auths/signin", credentials)["token"])


def say(host: Host, title: str) -> None:
    """Keep a chat."""
    webui_answer(host, "/api/v1/chats/new", {"chat": {"title": title}}, token(host))


def chats(host: Host) -> set[str]:
    return {chat["title"] for chat in webui_answer(host, "/api/v1/chats/", token=token(host))}


def version(host: Host) -> str:
    return str(webui_answer(host, "/api/version")["version"])


def updating(host: Host) -> bool:
    return json.loads(host.root(f"cat {RECORD}"))["update"] is not None


@pytest.fixture(scope="module")
def inventories(stack, first):
    """Name → inventory of spark1 alone, with the older image, and chats; undone afterwards."""
    tags = {"old": f"v{OLD}", "new": f"v{NEW}", "broken": "broken"}
    paths = {
        name: stack.inventory(name, webui={"image": f"{IMAGE}:{tag}"}, spark2=None)
        for name, tag in tags.items()
    }
    stack.spark1.root(
        f"systemctl stop {UNIT}; docker volume rm open-webui; rm -rf {RECORD} {COPIES}"
    )
    stack.good_deploy(inventory=paths["old"])
    say(stack.spark1, "of the old image")
    yield paths
    stack.good_deploy()
    for host in stack.hosts:
        leftovers = (
            "/etc/lockstep/backup* /etc/lockstep/secrets/backup-ssh* /etc/ssh/*.d/*lockstep*"
        )
        assert host.root(f"ls -d {leftovers} 2>/dev/null || true") == ""
        assert host.run("id lockstep-backup").code != 0
        assert host.show("lockstep-backup-listener.service", "LoadState") == "not-found"
    owners = (
        "find /var/lib/lockstep-backup -printf '%u\\n' | sort -u; rm -r /var/lib/lockstep-backup"
    )
    assert stack.two.root(owners).split() == ["root"]


def test_a_broken_update_ends_with_the_old_image_and_its_chats(stack, inventories):
    earlier_state = EarlierState.of(stack.spark1)
    result = stack.deploy(inventory=inventories["broken"])
    assert result.code != 0
    assert earlier_state.differences() == []
    assert "is back, with its data" in " ".join(result.output.split())
    assert version(stack.spark1) == OLD
    assert not updating(stack.spark1)
    assert chats(stack.spark1) == {"of the old image"}


def test_a_killed_update_is_done_or_taken_back_and_keeps_the_chats(stack, inventories):
    stack.start(inventory=inventories["new"]).kill_at("restart open-webui")
    until(lambda: not updating(stack.spark1), "the update has ended")
    stack.spark1.root(f"systemctl kill --signal=KILL {UNIT}; docker kill open-webui || true")
    until(lambda: stack.spark1.look(f"curl -fs {URL}/health").code == 0, "Open WebUI is up")
    assert chats(stack.spark1) == {"of the old image"}
    stack.good_deploy(inventory=inventories["new"])
    assert version(stack.spark1) == NEW
    assert chats(stack.spark1) == {"of the old image"}


def test_a_rollback_brings_the_chats_of_before_and_says_which_it_loses(stack, inventories):
    say(stack.spark1, "of the new image")
    old = inventories["old"]
    preview = stack.lockstep("rollback", "--dry", inventory=old)
    assert "1 chat(s) that were begun or continued since are not in it" in preview.out
    refusal = stack.lockstep("rollback", inventory=old)
    assert refusal.code == 2 and "--data return" in refusal.err
    assert version(stack.spark1) == NEW

    back = stack.lockstep("rollback", "--yes", "--data", "return", inventory=old)
    assert back.code == 0, back.text
    assert version(stack.spark1) == OLD
    assert chats(stack.spark1) == {"of the old image"}


@pytest.fixture(scope="module")
def backed_up(stack, inventories):
    """An inventory whose first Spark keeps its backups on the second too, deployed."""
    target_path = stack.inventory(
        "backup",
        spark1__webui={"image": f"{IMAGE}:v{OLD}"},
        spark1__backup={"enabled": True, "to": ("peer",)},
        **stack.fabric_addresses(),
    )
    stack.good_deploy("-y", inventory=target_path)
    yield target_path
    stack.lockstep("key revoke", "anna")
    stack.spark1.root(f"rm -rf {BACKUP} {PASSWORD}")


def test_the_listener_of_a_peer_is_for_backups_alone(stack, backed_up):
    first_host, two = stack.hosts
    assert first_host.root("echo ls -a | sftp -b - spark2.lockstep").split()[-1] == "spark1"
    for words in ("ssh spark2.lockstep id", "ssh -N -o ExitOnForwardFailure=yes -L 1:a:1 "):
        assert first_host.run(f"sudo -n timeout 20 {words}").code != 0
    destination = f"{two.address} -p 7076"
    # From another address, with the key; and the host key is that of nobody else.
    key = "/etc/lockstep/secrets/backup-ssh"
    options = f"-F none -i {key} -o BatchMode=yes -o StrictHostKeyChecking=no"
    ssh_command = f"ssh {options} -o UserKnownHostsFile=/dev/null -l"
    for account in ("spark", "root"):
        answer = first_host.run(f"sudo -n {ssh_command} {account} {destination} true")
        assert "Permission denied" in answer.err
    assert first_host.run(f"sudo -n {ssh_command} lockstep-backup {two.address} true").code != 0
    unknown_host = "ssh -o UserKnownHostsFile=/dev/null spark2.lockstep"
    assert "Host key verification failed" in first_host.run(f"sudo -n {unknown_host}").err


def test_a_wiped_host_has_its_chats_and_keys_again(stack, backed_up):
    host = stack.spark1
    say(host, "of before")
    earlier_chats = chats(host)
    assert stack.lockstep("key add", "anna", inventory=backed_up).code in (0, 2)
    backup = stack.lockstep("backup now", "spark1", inventory=backed_up)
    assert backup.code == 0, backup.text
    assert f"backed up to {PLACE}" in backup.out
    # As each night does, confined.
    host.root("systemctl start lockstep-backup.service")
    clean = stack.lockstep("backup check", "spark1", inventory=backed_up)
    assert clean.code == 0 and clean.out.count(": whole") == 2, clean.text
    assert host.places_with(PASSWORD) == []

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
    assert chats(host) == earlier_chats
    assert "anna" in stack.lockstep("key list", inventory=backed_up).out
