"""Keys of persons: in force on both hosts at once, refused at once, and nowhere but as a hash."""

import subprocess

import pytest
from stack import Host, command_lines

from lab.host import connection
from lab.host.network import NAMESPACES

UNIT = "lockstep-gateway.service"
FOLDER = "/etc/lockstep/gateway"
FILE = f"{FOLDER}/keys.json"
NEEDLE = "/run/needle"
URL = "http://127.0.0.1:8090/v1/models"


def give_secret(host: Host, command: str, text: str) -> str:
    """Run a command of the operator with a secret on its standard input; returns its output."""
    description = connection.load(host.lab)
    argv = connection.ssh_command(description, host.name, [command])
    result = subprocess.run(
        ["nsenter", f"--net={NAMESPACES / description.namespace}", *argv],
        input=text,
        capture_output=True,
        text=True,
        check=True,
    )
    return result.stdout


def key_status(host: Host, secret: str) -> str:
    """The status that the host's gateway answers to a key."""
    curl = f"curl -s -o /dev/null -w '%{{http_code}}' --max-time 20 -K - {URL}"
    return give_secret(host, curl, f'header = "Authorization: Bearer {secret}"\n')


#: Restarts it again and again, and asks with the key all the while.
RESTARTS = f"""
rm -f /run/restarted
{{
    for number in 1 2 3; do systemctl restart {UNIT}; done
    touch /run/restarted
}} &
until test -e /run/restarted; do
    printf 'header = "Authorization: Bearer %s"\\n' "$(cat {NEEDLE})" |
        curl -s -o /dev/null -w '%{{http_code}}\\n' --max-time 120 -K - {URL}
done
rm /run/restarted
"""


@pytest.fixture(scope="module")
def anna(stack, first):
    """A key that was added, the command lines meanwhile, and each gateway's start before."""
    starts = {host.name: host.show(UNIT, "InvocationID") for host in stack.hosts}
    with command_lines() as lines:
        result = stack.lockstep("key add", "anna", "--role", "operate")
    assert result.code == 0, result.text
    secret = result.out.strip()
    give_secret(stack.spark1, f"sudo -n sh -c 'umask 077; cat > {NEEDLE}'", secret + "\n")
    yield secret, "\n".join(lines), starts
    stack.spark1.root(f"rm -f {NEEDLE}")
    stack.lockstep("key revoke", "anna")


def test_it_is_in_force_on_both_hosts_without_a_restart_and_in_the_journal(stack, anna):
    secret, _, starts = anna
    for host in stack.hosts:
        assert key_status(host, secret) == "200"
        assert key_status(host, secret[:-1] + "_") == "401"
        assert host.show(UNIT, "InvocationID") == starts[host.name]
        assert host.root(f"stat -c '%a %U:%G' {FILE}") == "640 root:lockstep-gateway\n"
        assert host.run(f"cat {FILE}").code != 0
        host.logs("spark: key of anna: added, operate", "-t lockstep-audit")


def test_no_command_line_held_it_and_nothing_on_a_host_holds_it(stack, anna):
    secret, lines, _ = anna
    assert "gateway-keys take" in lines and secret not in lines
    folders = "/etc /usr/local /data /var/log /var/lib/lockstep* /tmp /var/tmp /root /home"
    assert stack.spark1.places_with(NEEDLE, folders) == []


def test_while_the_gateway_restarts_nobody_takes_its_port_and_who_asks_is_answered(stack, anna):
    host = stack.spark1
    earlier_start = host.show("lockstep-gateway.socket", "ActiveEnterTimestampMonotonic")
    codes = host.root(RESTARTS).split()
    assert codes and set(codes) == {"200"}
    # systemd held the port all the while.
    assert host.show("lockstep-gateway.socket", "ActiveEnterTimestampMonotonic") == earlier_start


def test_a_revoked_key_is_refused_at_once(stack):
    """A broken file, which refuses all: tests/unit/onhost/gateway/test_keys.py."""
    invocation = stack.spark1.show(UNIT, "InvocationID")
    eve, guest = (stack.lockstep("key add", name).out.strip() for name in ("eve", "guest"))
    assert [key_status(host, eve) for host in stack.hosts] == ["200", "200"]
    assert stack.lockstep("key revoke", "eve").code == 0
    assert [key_status(host, eve) for host in stack.hosts] == ["401", "401"]
    assert key_status(stack.spark1, guest) == "200"
    assert stack.spark1.show(UNIT, "InvocationID") == invocation
    assert stack.lockstep("key revoke", "guest").code == 0
