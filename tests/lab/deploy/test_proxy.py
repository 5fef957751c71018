"""The inventory's proxy reaches every client that fetches."""

import subprocess
import sys
from pathlib import Path

from stack import Host, until

from lab.host import connection, network

PORT = 8118
TOOLS = "/usr/local/lib/lockstep/environments/tools"
PROXY = f"http://10.77.0.1:{PORT}"
#: What each client asks for when it fetches. That an engine's wheels come through it too:
#: tests/unit/onhost/environment/test_engine_build.py.
SIGNS = {
    **{"apt": ":3141/apt/", "tools": ":3141/simple/httpx2/"},
    **{"hub": ":8090/", "images": ":5000/v2/"},
}


def test_each_client_and_docker_itself_fetch_through_the_proxy(deployed_stack, lab_host):
    stack, log = deployed_stack, deployed_stack.folder / "proxy.log"
    program = Path(__file__).with_name("forward_proxy.py")
    space = network.NAMESPACES / connection.load(stack.name).namespace
    argv = ["nsenter", f"--net={space}", sys.executable, str(program), str(PORT), str(log)]
    inventory = stack.inventory("proxy", proxy={"http": PROXY, "https": PROXY})
    with subprocess.Popen(argv) as proxy:
        try:
            until(log.exists, "the proxy listens")
            # Each client has something to fetch.
            lab_host.root(
                f"apt-get -qq -y remove jq; rm -rf {TOOLS}/lib/python3*/site-packages/httpx2*;"
                " /usr/local/bin/uv cache clean -q httpx2;"
                " rm -rf /data/models/huggingface/hub/models--lab--tiny-qwen3;"
                " docker rmi -f $(docker images -q --no-trunc '*/*/lmsysorg/sglang')"
                " && rm -rf /var/cache/lockstep/layers"
            )
            # A host that is deployed alone copies from no other: the proxy is asked for everything.
            stack.good_deploy("-y", "--limit", "spark1", inventory=inventory)
            variables = docker_variables(lab_host)
        finally:
            proxy.terminate()
            stack.good_deploy("-y", "--limit", "spark1")
    requests = [line for line in log.read_text().splitlines() if line.startswith("10.77.0.11 ")]
    assert [
        client for client, sign in SIGNS.items() if not any(sign in line for line in requests)
    ] == []
    assert f"HTTP_PROXY={PROXY}" in variables
    # Without the proxy in the data, Docker knows none any more.
    assert docker_variables(lab_host) == []


def docker_variables(host: Host) -> list[str]:
    """Variables about proxies that the running Docker daemon was started with."""
    pid = host.show("docker.service", "MainPID")
    pairs = host.root(f"cat /proc/{pid}/environ").split("\0")
    return [pair for pair in pairs if "proxy" in pair.partition("=")[0].lower()]
