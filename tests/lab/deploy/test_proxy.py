"""The inventory's proxy reaches every client that fetches, and no engine."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from stack import Host, Stack, forget_leases, until

from lab.host import connection, network
from lockstep.lock import lockfile

PORT = 8118
STORE = "/opt/lockstep/engines/store"
PROXY = f"http://10.77.0.1:{PORT}"
#: What each client asks for when it fetches.
SIGNS = {
    "apt": ":3141/apt/",
    "wheels": ":3141/simple/mistral-common/",
    "hub": ":8090/",
    "images": ":5000/v2/",
}


@pytest.fixture(scope="module")
def behind(stack: Stack, first: object) -> Iterator[list[str]]:
    """spark1 deployed again behind a proxy, with something to fetch for each client: what the
    proxy was asked for."""
    log = stack.folder / "proxy.log"
    program = Path(__file__).with_name("forward_proxy.py")
    space = network.NAMESPACES / connection.load(stack.name).namespace
    argv = ["nsenter", f"--net={space}", sys.executable, str(program), str(PORT), str(log)]
    # What spark2 has would come from there, and no proxy would be asked for it.
    inventory = stack.inventory("proxy", proxy={"http": PROXY, "https": PROXY}, copying=False)
    with subprocess.Popen(argv) as proxy:
        try:
            until(log.exists, "the proxy listens")
            # A deploy that was killed leaves its copies open for a while.
            for host in stack.hosts:
                forget_leases(host)
            for command in (
                "apt-get -qq -y remove jq",
                "/usr/local/bin/uv pip uninstall mistral-common"
                " --python /opt/lockstep/engines/current/venv/bin/python",
                "/usr/local/bin/uv cache clean -q --cache-dir /opt/lockstep/engines/uv-cache"
                " mistral-common",
                # By its hash: a build that was cut off has left files here without their names.
                f"rm -f {STORE}/{wheel_hash(stack, 'mistral-common')}",
                "rm -rf /data/models/huggingface/hub/models--lab--tiny-qwen3",
                "docker rmi -f $(docker images -q --no-trunc '*/*/lmsysorg/sglang')"
                " && rm -rf /var/cache/lockstep/layers",
            ):
                stack.one.root(command)
            stack.good_deploy("-y", "--limit", "spark1", inventory=inventory)
            again = stack.good_deploy("-y", "--limit", "spark1", inventory=inventory)
            assert again.changed == set()
            yield log.read_text(encoding="utf-8").splitlines()
        finally:
            proxy.terminate()
            stack.good_deploy()
    # Without the proxy in the data, Docker knows none any more.
    assert docker_variables(stack.one) == []
    assert stack.good_deploy().changed == set()


@pytest.mark.parametrize("client", SIGNS)
def test_each_client_fetches_through_the_proxy(
    deployed: Stack, behind: list[str], client: str
) -> None:
    asked = [line for line in behind if line.startswith("10.77.0.11 ")]
    assert [line for line in asked if SIGNS[client] in line] != []


def test_the_docker_daemon_runs_with_the_proxy(behind: list[str], one: Host) -> None:
    assert f"HTTP_PROXY={PROXY}" in docker_variables(one)


def test_engines_know_no_proxy(behind: list[str], one: Host) -> None:
    assert one.switch("qwen").code == 0
    environment = one.get("http://127.0.0.1:30001/standin/argv")["environment"]
    one.switch("none")
    assert [name for name in environment if "proxy" in name.lower()] == []


def wheel_hash(stack: Stack, name: str) -> str:
    """SHA-256 of the wheel that the lock has of a package."""
    pins = lockfile.load(stack.lock).python.values()
    [found] = {wheel.sha256 for pin in pins for wheel in pin.packages if wheel.name == name}
    return found


def docker_variables(host: Host) -> list[str]:
    """Variables about proxies that the running Docker daemon was started with."""
    pid = host.show("docker.service", "MainPID")
    pairs = host.root(f"cat /proc/{pid}/environ").split("\0")
    return [pair for pair in pairs if "proxy" in pair.partition("=")[0].lower()]
