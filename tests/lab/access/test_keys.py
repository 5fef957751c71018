"""Keys of persons: in force on both hosts at once, refused at once, and nowhere but as a hash."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Iterator

import pytest
from stack import Deployed, Host, Stack, command_lines

from lab.host import connection
from lab.host.network import NAMESPACES

UNIT = "lockstep-gateway.service"
FOLDER = "/etc/lockstep/gateway"
FILE = f"{FOLDER}/keys.json"
NEEDLE = "/run/needle"


def given(host: Host, command: str, text: str) -> str:
    """What a command of the operator says that gets a secret on its standard input."""
    description = connection.load(host.lab)
    argv = connection.ssh_command(description, host.name, [command])
    done = subprocess.run(
        ["nsenter", f"--net={NAMESPACES / description.namespace}", *argv],
        input=text,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


def asked(host: Host, secret: str) -> str:
    """The status that the host's gateway answers to a key."""
    curl = (
        "curl -s -o /dev/null -w '%{http_code}' --max-time 20 -K - http://127.0.0.1:8090/v1/models"
    )
    return given(host, curl, f'header = "Authorization: Bearer {secret}"\n')


#: Any account's: it tries for the gateway's port until the file is there, and then says how often.
SQUATTER = """
import itertools, os, socket
for tries in itertools.count(1):
    with socket.socket() as own:
        own.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            own.bind(("127.0.0.1", 8090))
        except OSError:
            if os.path.exists("/run/restarted"):
                break
        else:
            print("has the port")
            break
print("tried", tries)
"""
#: Restarts it again and again, and asks with the key all the while.
RESTARTS = """
rm -f /run/restarted
runuser -u nobody -- python3 -c "$SQUATTER" >/run/squatter 2>&1 &
squatter=$!
{
    for number in 1 2 3; do systemctl restart lockstep-gateway.service; done
    touch /run/restarted
} &
until test -e /run/restarted; do
    printf 'header = "Authorization: Bearer %s"\n' "$(cat NEEDLE)" |
        curl -s -o /dev/null -w '%{http_code}\n' --max-time 120 -K - $URL
done
wait $squatter
cat /run/squatter
rm -f /run/restarted /run/squatter
""".replace("NEEDLE", NEEDLE).replace("$URL", "http://127.0.0.1:8090/v1/models")


def refusals(host: Host) -> int:
    """How often the gateway has said that it refuses everybody."""
    told = host.root(f"journalctl --sync; journalctl -u {UNIT} -o cat --no-pager")
    return told.count("Every key is refused")


@pytest.fixture(scope="module")
def anna(stack: Stack, first: Deployed) -> Iterator[tuple[str, str, dict[str, str]]]:
    """A key that was added, the command lines meanwhile, and each gateway's start before."""
    assert first.code == 0, first.output[-8000:]
    starts = {host.name: host.show(UNIT, "InvocationID") for host in stack.hosts}
    with command_lines() as seen:
        done = stack.lockstep("key add", "anna", "--role", "operate")
    assert done.code == 0, done.text
    secret = done.out.strip()
    given(stack.one, f"sudo -n sh -c 'umask 077; cat > {NEEDLE}'", secret + "\n")
    yield secret, "\n".join(seen), starts
    stack.one.root(f"rm -f {NEEDLE}")
    stack.lockstep("key revoke", "anna")


def test_it_is_in_force_on_both_hosts_without_a_restart(
    stack: Stack, anna: tuple[str, str, dict[str, str]]
) -> None:
    secret, _, starts = anna
    for host in stack.hosts:
        assert asked(host, secret) == "200"
        assert asked(host, secret[:-1] + "_") == "401"
        assert host.show(UNIT, "InvocationID") == starts[host.name]
        assert host.root(f"stat -c '%a %U %G' {FILE}").split() == [
            "640",
            "root",
            "lockstep-gateway",
        ]
        assert host.run(f"cat {FILE}").code != 0


def test_no_command_line_held_it(anna: tuple[str, str, dict[str, str]]) -> None:
    secret, lines, _ = anna
    assert "gateway-keys take" in lines
    assert secret not in lines


@pytest.mark.parametrize(
    "place",
    [
        "systemctl show '*.service'; systemctl cat '*.service'",
        "journalctl --no-pager --all -o export",
        "ps -efww",
        "find /etc /usr/local /data /var/log /var/lib/lockstep* /tmp /var/tmp /root /home"
        " -type f -size -4M -exec cat {} +",
    ],
)
def test_nothing_on_a_host_holds_it(
    stack: Stack, anna: tuple[str, str, dict[str, str]], place: str
) -> None:
    """The host searches itself, with the key read from a file: it is in no argument."""
    assert asked(stack.one, anna[0]) == "200"
    found = stack.one.root(f"{{ {place}; }} 2>/dev/null | grep -a -c -F -f {NEEDLE} || true")
    assert found.strip() == "0"


def test_each_change_is_a_line_in_the_journal(
    stack: Stack, anna: tuple[str, str, dict[str, str]]
) -> None:
    for host in stack.hosts:
        host.logs("spark: key of anna: added, operate", "-t lockstep-audit")


def test_while_the_gateway_restarts_nobody_takes_its_port_and_who_asks_is_answered(
    stack: Stack, anna: tuple[str, str, dict[str, str]]
) -> None:
    host = stack.one
    before = host.show("lockstep-gateway.socket", "ActiveEnterTimestampMonotonic")
    *codes, tried = host.root(f"SQUATTER={shlex.quote(SQUATTER)}; {RESTARTS}").splitlines()
    assert re.fullmatch(r"tried \d+", tried)
    assert codes and set(codes) == {"200"}
    assert host.show("lockstep-gateway.socket", "ActiveEnterTimestampMonotonic") == before


def test_a_host_that_was_away_learns_of_it_later(stack: Stack) -> None:
    stack.two.root(f"mount --bind {FOLDER} {FOLDER} && mount -o remount,bind,ro {FOLDER}")
    try:
        done = stack.lockstep("key add", "ben")
    finally:
        stack.two.root(f"umount {FOLDER}")
    assert done.code == 2 and "spark2: " in done.err, done.text
    secret = done.out.strip()
    assert [asked(host, secret) for host in stack.hosts] == ["200", "401"]
    assert stack.lockstep("key list").code == 1
    assert stack.lockstep("key list", "--fix").code == 0
    assert asked(stack.two, secret) == "200"
    assert stack.lockstep("key revoke", "ben").code == 0


def test_a_revoked_key_is_refused_at_once_and_a_broken_file_refuses_all(stack: Stack) -> None:
    started = stack.one.show(UNIT, "InvocationID")
    eve, guest = (stack.lockstep("key add", name).out.strip() for name in ("eve", "guest"))
    assert [asked(host, eve) for host in stack.hosts] == ["200", "200"]
    assert stack.lockstep("key revoke", "eve").code == 0
    assert [asked(host, eve) for host in stack.hosts] == ["401", "401"]
    assert asked(stack.one, guest) == "200"
    before = refusals(stack.one)
    stack.one.root(
        f"cp -a {FILE} {FILE}.good; echo '{{' > {FILE}.bad; chgrp lockstep-gateway"
        f" {FILE}.bad; chmod 640 {FILE}.bad; mv {FILE}.bad {FILE}"
    )
    assert [asked(stack.one, guest) for _ in range(2)] == ["401", "401"]
    assert refusals(stack.one) == before + 1
    stack.one.root(f"mv {FILE}.good {FILE}")
    assert asked(stack.one, guest) == "200"
    assert stack.one.show(UNIT, "InvocationID") == started
    assert stack.lockstep("key revoke", "guest").code == 0
