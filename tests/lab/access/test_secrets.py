"""Open WebUI's administrator and key, made on the host, and the hub's token, which a program prints
on the operator's machine: each is seen only in its file.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from stack import Host, Stack, command_lines

FILE = "/etc/lockstep/secrets/open-webui.env"
SECRETS = ("WEBUI_SECRET_KEY", "WEBUI_ADMIN_PASSWORD")
TOKEN_FILE = "/etc/lockstep/hub-token"
ONE = ("-y", "--limit", "spark1")
BROUGHT = "Base | Write secrets from the operator's machine"


@pytest.fixture(scope="module")
def token(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The token that the program prints; the file holds a token, and `program` lies beside it."""
    folder = tmp_path_factory.mktemp("vault")
    program = folder / "program"
    # As unkind as a real one: slow, and it repeats the token where nobody should keep it.
    program.write_text(
        f"#!/bin/sh\necho >> {folder}/runs\nsleep 2\ntee /dev/stderr < {folder}/token\n"
    )
    program.chmod(0o755)
    (folder / "token").write_text("hf_" + hashlib.sha256(str(folder).encode()).hexdigest() + "\n")
    return folder / "token"


@pytest.fixture(scope="module")
def inventory(stack: Stack, token: Path) -> Iterator[Path]:
    """The lab's inventory with that program."""
    yield stack.inventory("vault", hub_token={"command": (str(token.parent / "program"),)})
    stack.spark1.root(f"rm -f {TOKEN_FILE}")


@pytest.fixture(scope="module")
def loud(stack: Stack, first: object, inventory: Path, token: Path) -> tuple[str, str]:
    """Output and command lines of a verbose deploy that makes spark1's secrets anew."""
    stack.spark1.root(f"systemctl stop open-webui && rm {FILE} && docker volume rm -f open-webui")
    verbose_options = ("-vvv", "--diff", "--debug")
    with command_lines() as lines:
        result = stack.typed_deploy(*ONE, *verbose_options, inventory=inventory)
    assert result.code == 0, result.output[-8000:]
    assert {"Open WebUI | Make Open WebUI's keys once", BROUGHT} <= result.changed_operations
    assert (token.parent / "runs").read_text() == "\n"
    return result.output, "\n".join(lines)


def generated_secrets(host: Host) -> list[str]:
    """The secrets of Open WebUI that the host made, read as only root can."""
    lines = host.root(f"cat {FILE}").splitlines()
    values = [line.partition("=")[2] for line in lines if line.partition("=")[0] in SECRETS]
    assert len(values) == len(SECRETS) and all(len(value) >= 20 for value in values)
    return values


def secrets(host: Host) -> list[str]:
    """The generated secrets, and the token that the deploy brought."""
    token = host.root(f"cat {TOKEN_FILE}").strip()
    assert len(token) >= 20
    return [*generated_secrets(host), token]


def start_times(host: Host) -> dict[str, str]:
    """The time at which each unit of ours became active, by its name.

    A check that a timer runs is never active, and systemd knows it only while it runs: left out.
    """
    output = host.root(
        "systemctl show --property=Id,ActiveEnterTimestampMonotonic 'lockstep-*' open-webui"
    )
    units = [
        dict(line.split("=", 1) for line in unit.splitlines()) for unit in output.split("\n\n")
    ]
    times = {unit["Id"]: unit["ActiveEnterTimestampMonotonic"] for unit in units}
    return {name: time for name, time in times.items() if time != "0"}


def test_no_output_and_no_command_line_holds_a_secret(
    lab_host: Host, loud: tuple[str, str]
) -> None:
    output, lines = loud
    # Everything is shown: the command that makes them, and what the host answers.
    assert f"make-secrets {FILE}" in output and "ActiveState" in output
    assert f"will create {TOKEN_FILE}" in output
    assert "make-secrets" in lines and "deploy.py" in lines and "vault" in lines
    for value in secrets(lab_host):
        assert value not in output and value not in lines
        assert hashlib.sha256(f"{value}\n".encode()).hexdigest()[:16] not in output


def test_nothing_on_the_host_but_the_file_holds_a_secret(
    lab_host: Host, loud: tuple[str, str]
) -> None:
    names = r"\|".join(SECRETS)
    needles = "/run/needles"
    values = f"sed -n 's/^\\({names}\\)=//p' {FILE}; cat {TOKEN_FILE}"
    lab_host.root(f"umask 077; {{ {values}; }} > {needles}")
    assert lab_host.root(f"wc -l < {needles}").strip() == "3"
    places = lab_host.places_with(
        needles,
        "/var/log /run/log /data /opt/lockstep/engines -maxdepth 3",
        "/etc /usr/local ! -path '*/secrets/*' ! -name hub-token",
        "/tmp /var/tmp /root /home",
    )
    lab_host.root(f"rm {needles}")
    assert places == []


def test_only_root_may_read_the_file_and_each_host_has_values_of_its_own(
    deployed_stack: Stack, lab_host: Host
) -> None:
    assert lab_host.root(f"stat -c '%a %U %G' {FILE}").split() == ["600", "root", "root"]
    assert lab_host.run(f"cat {FILE}").code != 0
    assert lab_host.root(f"stat -c '%a %U' {Path(FILE).parent}").split() == ["700", "root"]
    first_values, two = (generated_secrets(host) for host in deployed_stack.hosts)
    assert not set(first_values) & set(two)


def test_the_values_are_those_that_open_webui_runs_with(lab_host: Host) -> None:
    """Signing in with them works, and a stranger can't sign up."""
    sign_in = (
        f'. {FILE}; printf \'{{"email": "%s", "password": "%s"}}\''
        ' "$WEBUI_ADMIN_EMAIL" "$WEBUI_ADMIN_PASSWORD" |'
        " curl -fsS -d @- http://127.0.0.1:8080/api/v1/auths/signin"
    )
    assert '"role": "admin"' in lab_host.root(sign_in)
    stranger = '{"email": "a@b.c", "password": "x", "name": "x"}'
    status = lab_host.root(
        "curl -s -o /dev/null -w '%{http_code}'"
        f" -d '{stranger}' http://127.0.0.1:8080/api/v1/auths/signup"
    )
    assert status == "403"


def test_the_token_that_a_program_prints_is_for_those_who_fetch_and_nowhere_on_this_machine(
    stack: Stack, lab_host: Host, loud: tuple[str, str], token: Path
) -> None:
    assert lab_host.root(f"stat -c '%a %U %G' {TOKEN_FILE}").split() == ["640", "root", "lockstep"]
    assert lab_host.root(f"cat {TOKEN_FILE}") == token.read_text()
    value = token.read_text().strip()
    assert value not in stack.lock.read_text()
    files = (path for path in stack.folder.rglob("*") if path.is_file())
    assert [path for path in files if value.encode() in path.read_bytes()] == []


def test_another_token_is_brought_and_all_else_stays(
    stack: Stack, lab_host: Host, loud: tuple[str, str], inventory: Path, token: Path
) -> None:
    """No unit starts anew, and what was made on the host is kept.

    A deploy with the same token, and a program that fails: tests/operations/test_given_secrets.py.
    """
    earlier_state = start_times(lab_host), generated_secrets(lab_host)
    token.write_text(token.read_text().strip() + "-newer\n")
    assert stack.good_deploy(*ONE, inventory=inventory).changed_operations == {BROUGHT}
    assert lab_host.root(f"cat {TOKEN_FILE}") == token.read_text()
    assert (start_times(lab_host), generated_secrets(lab_host)) == earlier_state
