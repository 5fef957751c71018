"""The inventory's proxy, here that of the lab, reaches every client that fetches."""

from stack import Host

TOOLS = "/usr/local/lib/lockstep/environments/tools"
PROXY = "http://10.77.0.1:3128"
#: What each client asks for when it fetches. That an engine's wheels come through it too:
#: tests/unit/onhost/environment/test_engine_build.py.
SIGNS = {
    **{"apt": ":3141/apt/", "tools": ":3141/simple/httpx2/"},
    **{"hub": ":8090/", "images": ":5000/v2/"},
}


def test_each_client_and_docker_itself_fetch_through_the_proxy(deployed_stack, lab_host):
    stack = deployed_stack
    inventory = stack.inventory("proxy", proxy={"http": PROXY, "https": PROXY})
    # Each client has something to fetch.
    lab_host.root(
        f"apt-get -qq -y remove jq; rm -rf {TOOLS}/lib/python3*/site-packages/httpx2*;"
        " /usr/local/bin/uv cache clean -q httpx2;"
        " rm -rf /data/models/huggingface/hub/models--lab--tiny-qwen3;"
        " docker rmi -f $(docker images -q --no-trunc '*/*/lmsysorg/sglang')"
        " && rm -rf /var/cache/lockstep/layers"
    )
    try:
        # A host that is deployed alone copies from no other: the proxy is asked for everything.
        stack.good_deploy("-y", "--limit", "spark1", inventory=inventory)
        variables = docker_variables(lab_host)
    finally:
        stack.good_deploy("-y", "--limit", "spark1")
    address = lab_host.address
    paths = [request.path for request in stack.requests("proxy") if request.client == address]
    assert [
        client for client, sign in SIGNS.items() if not any(sign in path for path in paths)
    ] == []
    assert f"HTTP_PROXY={PROXY}" in variables
    # Without the proxy in the data, Docker knows none any more.
    assert docker_variables(lab_host) == []


def docker_variables(host: Host) -> list[str]:
    """Variables about proxies that the running Docker daemon was started with."""
    pid = host.show("docker.service", "MainPID")
    pairs = host.root(f"cat /proc/{pid}/environ").split("\0")
    return [pair for pair in pairs if "proxy" in pair.partition("=")[0].lower()]
