"""Open WebUI's administrator and key, made on the host, and the hub's token, which a program prints
on the operator's machine: each is seen only in its file.
"""

import hashlib
from pathlib import Path

import pytest
from stack import Host, command_lines

FILE = "/etc/lockstep/secrets/open-webui.env"
SECRETS = ("WEBUI_SECRET_KEY", "WEBUI_ADMIN_PASSWORD")
TOKEN_FILE = "/etc/lockstep/hub-token"
ONE = ("-y", "--limit", "spark1")
BROUGHT = "Base | Write secrets from the operator's machine"


@pytest.fixture(scope="module")
def loud(stack, first, tmp_path_factory):
    """Output and command lines of a verbose deploy that makes spark1's secrets anew; the token."""
    folder = tmp_path_factory.mktemp("vault")
    program, token = folder / "program", "hf_" + hashlib.sha256(str(folder).encode()).hexdigest()
    # As unkind as a real one: slow, and it repeats the token where nobody should keep it.
    program.write_text(
        f"#!/bin/sh\necho >> {folder}/runs\nsleep 2\ntee /dev/stderr < {folder}/token\n"
    )
    program.chmod(0o755)
    (folder / "token").write_text(f"{token}\n")
    inventory = stack.inventory("vault", hub_token={"command": (str(program),)})
    stack.spark1.root(f"systemctl stop open-webui && rm {FILE} && docker volume rm -f open-webui")
    verbose_options = ("-vvv", "--diff", "--debug")
    with command_lines() as lines:
        result = stack.typed_deploy(*ONE, *verbose_options, inventory=inventory)
    assert result.code == 0, result.output[-8000:]
    assert {"Open WebUI | Make Open WebUI's keys once", BROUGHT} <= result.changed_operations
    assert (folder / "runs").read_text() == "\n"
    yield result.output, "\n".join(lines), token
    stack.spark1.root(f"rm -f {TOKEN_FILE}")


def generated_secrets(host: Host) -> list[str]:
    """The secrets of Open WebUI that the host made, read as only root can."""
    lines = host.root(f"cat {FILE}").splitlines()
    values = [line.partition("=")[2] for line in lines if line.partition("=")[0] in SECRETS]
    assert len(values) == len(SECRETS) and all(len(value) >= 20 for value in values)
    return values


def test_no_output_and_no_command_line_holds_a_secret(lab_host, loud):
    output, lines, token = loud
    # Everything is shown: the command that makes them, and what the host answers.
    assert f"make-secrets {FILE}" in output and "ActiveState" in output
    assert f"will create {TOKEN_FILE}" in output
    assert "make-secrets" in lines and "deploy.py" in lines and "vault" in lines
    for value in (*generated_secrets(lab_host), token):
        assert value not in output and value not in lines
        assert hashlib.sha256(f"{value}\n".encode()).hexdigest()[:16] not in output


def test_nothing_on_the_host_but_the_file_holds_a_secret(lab_host, loud):
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


def test_only_root_may_read_the_file_and_each_host_has_values_of_its_own(deployed_stack, lab_host):
    assert lab_host.root(f"stat -c '%a %U %G' {FILE}").split() == ["600", "root", "root"]
    assert lab_host.run(f"cat {FILE}").code != 0
    assert lab_host.root(f"stat -c '%a %U' {Path(FILE).parent}").split() == ["700", "root"]
    first_values, two = (generated_secrets(host) for host in deployed_stack.hosts)
    assert not set(first_values) & set(two)
