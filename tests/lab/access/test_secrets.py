"""Open WebUI's administrator and key: made on the host, seen nowhere else."""

from __future__ import annotations

from pathlib import Path

import pytest
from stack import Deployed, Host, Stack, command_lines

FILE = "/etc/lockstep/secrets/open-webui.env"
SECRETS = ("WEBUI_SECRET_KEY", "WEBUI_ADMIN_PASSWORD")


@pytest.fixture(scope="module")
def loud(stack: Stack, first: Deployed) -> tuple[str, str]:
    """Output and command lines of a deploy with everything shown that makes new secrets."""
    for host in stack.hosts:
        host.root(f"systemctl stop open-webui && rm {FILE} && docker volume rm -f open-webui")
    with command_lines() as seen:
        done = stack.good_deploy("-y", "-vvv", "--diff", "--debug")
    assert "Open WebUI | Make Open WebUI's keys once" in done.changed
    return done.output, "\n".join(seen)


def secrets(host: Host) -> list[str]:
    """The values, read as only root can."""
    lines = host.root(f"cat {FILE}").splitlines()
    found = [line.partition("=")[2] for line in lines if line.partition("=")[0] in SECRETS]
    assert len(found) == len(SECRETS) and all(len(value) >= 20 for value in found)
    return found


def test_no_output_holds_a_secret(host: Host, loud: tuple[str, str]) -> None:
    output, _ = loud
    # Everything is shown: the command that makes them, and what the host answers.
    assert f"make-secrets {FILE}" in output and "ActiveState" in output
    assert [value for value in secrets(host) if value in output] == []


def test_no_command_line_holds_a_secret(host: Host, loud: tuple[str, str]) -> None:
    _, lines = loud
    assert "make-secrets" in lines and "deploy.py" in lines
    assert [value for value in secrets(host) if value in lines] == []
    now = host.root("ps -efww")
    assert "open-webui" in now
    assert [value for value in secrets(host) if value in now] == []


@pytest.mark.parametrize(
    "place",
    [
        "systemctl cat '*.service'",
        "systemctl show '*.service'",
        "journalctl --no-pager --all -o export",
        "find /var/log /run/log /data /opt/lockstep/engines -maxdepth 3 -type f -size -4M"
        " -exec cat {} +",
        "find /etc /usr/local -type f -size -4M ! -path '*/secrets/*' -exec cat {} +",
        "find /tmp /var/tmp /root /home -type f -exec cat {} +",
    ],
)
def test_nothing_on_the_host_but_the_file_holds_a_secret(
    host: Host, loud: tuple[str, str], place: str
) -> None:
    """The host searches itself, with the values read from a file: they are in no argument."""
    names = r"\|".join(SECRETS)
    needles = "/run/needles"
    host.root(f"umask 077; sed -n 's/^\\({names}\\)=//p' {FILE} > {needles}")
    assert host.root(f"wc -l < {needles}").strip() == "2"
    found = host.root(f"{{ {place}; }} 2>/dev/null | grep -a -c -F -f {needles} || true")
    host.root(f"rm {needles}")
    assert found.strip() == "0"


def test_only_root_may_read_the_file(host: Host) -> None:
    assert host.root(f"stat -c '%a %U %G' {FILE}").split() == ["600", "root", "root"]
    assert host.run(f"cat {FILE}").code != 0
    assert host.root(f"stat -c '%a %U' {Path(FILE).parent}").split() == ["700", "root"]


def test_each_host_has_values_of_its_own(deployed: Stack) -> None:
    one, two = (secrets(host) for host in deployed.hosts)
    assert not set(one) & set(two)


def test_the_values_are_those_that_open_webui_runs_with(host: Host) -> None:
    """Signing in with them works, and a stranger can't sign up."""
    sign_in = (
        f'. {FILE}; printf \'{{"email": "%s", "password": "%s"}}\''
        ' "$WEBUI_ADMIN_EMAIL" "$WEBUI_ADMIN_PASSWORD" |'
        " curl -fsS -d @- http://127.0.0.1:8080/api/v1/auths/signin"
    )
    assert '"role": "admin"' in host.root(sign_in)
    stranger = '{"email": "a@b.c", "password": "x", "name": "x"}'
    status = host.root(
        "curl -s -o /dev/null -w '%{http_code}'"
        f" -d '{stranger}' http://127.0.0.1:8080/api/v1/auths/signup"
    )
    assert status == "403"


def test_a_second_deploy_keeps_them(deployed: Stack, one: Host) -> None:
    before = secrets(one)
    assert deployed.good_deploy().changed == set()
    assert secrets(one) == before
