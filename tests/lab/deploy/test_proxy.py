"""The inventory's proxy reaches every client that fetches, and no engine."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from stack import Host, Stack, until

from lab.host import connection, network

PORT = 8118
TOOLS = "/usr/local/lib/lockstep/environments/tools"
PROXY = f"http://10.77.0.1:{PORT}"
#: What each client asks for when it fetches. That an engine's wheels come through it too:
#: tests/unit/onhost/environment/test_engine_build.py.
SIGNS = {
    "apt": ":3141/apt/",
    "tools": ":3141/simple/httpx2/",
    "hub": ":8090/",
    "images": ":5000/v2/",
}


@pytest.fixture(scope="module")
def behind(stack: Stack, first: object) -> Iterator[list[str]]:
    """The addresses that a proxy got from a deploy of spark1.

    Each client had something to fetch.
    """
    log = stack.folder / "proxy.log"
    program = Path(__file__).with_name("forward_proxy.py")
    space = network.NAMESPACES / connection.load(stack.name).namespace
    argv = ["nsenter", f"--net={space}", sys.executable, str(program), str(PORT), str(log)]
    inventory = stack.inventory("proxy", proxy={"http": PROXY, "https": PROXY})
    with subprocess.Popen(argv) as proxy:
        try:
            until(log.exists, "the proxy listens")
            for command in (
                "apt-get -qq -y remove jq",
                f"rm -rf {TOOLS}/lib/python3*/site-packages/httpx2*",
                "/usr/local/bin/uv cache clean -q httpx2",
                "rm -rf /data/models/huggingface/hub/models--lab--tiny-qwen3",
                "docker rmi -f $(docker images -q --no-trunc '*/*/lmsysorg/sglang')"
                " && rm -rf /var/cache/lockstep/layers",
            ):
                stack.spark1.root(command)
            # A host that is deployed alone copies from no other: the proxy is asked for everything.
            stack.good_deploy("-y", "--limit", "spark1", inventory=inventory)
            again = stack.good_deploy("-y", "--limit", "spark1", inventory=inventory)
            assert again.changed_operations == set()
            yield log.read_text(encoding="utf-8").splitlines()
        finally:
            proxy.terminate()
            stack.good_deploy("-y", "--limit", "spark1")
    # Without the proxy in the data, Docker knows none any more.
    assert docker_variables(stack.spark1) == []


def test_each_client_and_docker_itself_fetch_through_the_proxy(
    behind: list[str], lab_host: Host
) -> None:
    requests = [line for line in behind if line.startswith("10.77.0.11 ")]
    assert [
        client for client, sign in SIGNS.items() if not any(sign in line for line in requests)
    ] == []
    assert f"HTTP_PROXY={PROXY}" in docker_variables(lab_host)


def test_engines_know_no_proxy(behind: list[str], lab_host: Host) -> None:
    assert lab_host.switch("qwen").code == 0
    environment = lab_host.get("http://127.0.0.1:30001/standin/argv")["environment"]
    lab_host.switch("none")
    assert [name for name in environment if "proxy" in name.lower()] == []


def docker_variables(host: Host) -> list[str]:
    """Variables about proxies that the running Docker daemon was started with."""
    pid = host.show("docker.service", "MainPID")
    pairs = host.root(f"cat /proc/{pid}/environ").split("\0")
    return [pair for pair in pairs if "proxy" in pair.partition("=")[0].lower()]
