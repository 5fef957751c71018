"""The state of a Spark before its first deploy: Docker's ways to the GPU, an Open WebUI."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from stack import Host, Stack

KEPT = "/root/kept"
TOOLKIT = "/etc/nvidia-container-runtime"
# Earlier images of DGX OS: NVIDIA's hook alone, no runtime and no CDI file.
HOOK_ONLY = (
    f"mkdir {KEPT} && cp -p /etc/docker/daemon.json {KEPT}/ && mv /etc/cdi {KEPT}/cdi"
    " && python3 -c \"import json; p = '/etc/docker/daemon.json'; d = json.load(open(p));"
    " del d['runtimes'], d['features']; json.dump(d, open(p, 'w'))\""
    f" && touch -r {KEPT}/daemon.json /etc/docker/daemon.json && systemctl reload docker"
)
# With its time: a file younger than Docker is a reason to restart it.
BACK = f"cp -p {KEPT}/daemon.json /etc/docker/ && mv {KEPT}/cdi /etc/cdi; systemctl reload docker"
# The lab has Docker 26. Before it stands what answers as 29 does; the toolkit has a second program.
DOCKER_29 = """cat > /root/docker29.py <<'END'
import http.client, http.server, json, socket, socketserver
class Docker(http.client.HTTPConnection):
    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect("/run/docker26.sock")
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        docker = Docker("docker")
        docker.request("GET", self.path)
        answer = docker.getresponse()
        said = answer.read()
        if self.path.endswith("/info"):
            device = {"Source": "cdi", "ID": "nvidia.com/gpu=all"}
            new = {"ServerVersion": "29.2.1", "DiscoveredDevices": [device]}
            said = json.dumps(json.loads(said) | new).encode()
        self.send_response(answer.status)
        self.send_header("Api-Version", answer.getheader("Api-Version"))
        self.send_header("Content-Length", len(said))
        self.end_headers()
        self.wfile.write(said if self.command == "GET" else b"")
    do_HEAD = do_GET
    def address_string(self):
        return "socket"
server = socketserver.ThreadingUnixStreamServer("/run/docker29.sock", Handler)
server.serve_forever()
END
systemd-run --quiet --unit docker29 python3 /root/docker29.py
until [ -S /run/docker29.sock ]; do sleep 0.1; done
mv /run/docker.sock /run/docker26.sock && mv /run/docker29.sock /run/docker.sock
install -m 0755 /bin/true /usr/local/bin/nvidia-cdi-hook
cp /etc/cdi/nvidia.yaml /root/nvidia.yaml
echo '# libcuda.so.570.1' >> /etc/cdi/nvidia.yaml"""
DOCKER_26 = (
    "systemctl stop docker29; mv /run/docker26.sock /run/docker.sock;"
    " rm /root/docker29.py /usr/local/bin/nvidia-cdi-hook; mv /root/nvidia.yaml /etc/cdi/"
)


@pytest.fixture
def bare(deployed_stack: Stack) -> Iterator[Host]:
    """spark2 with Docker as earlier images have it."""
    deployed_stack.two.root(HOOK_ONLY)
    yield deployed_stack.two
    deployed_stack.two.root(f"{BACK}; rm -r {KEPT}")


@pytest.fixture
def updated_host(deployed_stack: Stack) -> Iterator[Host]:
    """spark2 with Docker 29, and the CDI file of the driver before."""
    deployed_stack.two.root(DOCKER_29)
    yield deployed_stack.two
    deployed_stack.two.root(DOCKER_26)


def test_a_stale_cdi_file_ends_a_deploy_from_docker_29_on(
    deployed_stack: Stack, updated_host: Host
) -> None:
    result = deployed_stack.deploy("--dry", "--limit", updated_host.name)
    output = " ".join(result.output.split())
    assert result.code == 1
    assert "error cdi-stale: /etc/cdi/nvidia.yaml was made for driver 570.1" in output
    assert "sudo systemctl restart nvidia-cdi-refresh" in output


@pytest.fixture
def foreign(bare: Host, deployed_stack: Stack) -> Iterator[Host]:
    """spark2 with a container and a volume as NVIDIA's playbook makes them, called `chat`.

    Its Docker is that of earlier images, and its toolkit in CDI mode.
    """
    host, image = bare, image_of_webui(bare)
    host.root(
        "docker volume create chat && docker run --detach --restart always --name chat"
        f" -v chat:/app/backend/data --entrypoint sh {image}"
        " -c 'echo mine > /app/backend/data/theirs; sleep infinity'"
    )
    secrets = "/etc/lockstep/secrets/open-webui.env"
    host.root(f"mv {secrets} /root/open-webui.env")
    host.root(
        f"mkdir {TOOLKIT} && printf '[nvidia-container-runtime]\nmode = \"cdi\"\n'"
        f" > {TOOLKIT}/config.toml"
    )
    yield host
    host.root(f"rm -r {TOOLKIT}; mv -f /root/open-webui.env {secrets}")
    deployed_stack.good_deploy("-y", "--limit", host.name)
    host.root("docker rm -f chat; docker volume rm chat")


def image_of_webui(host: Host) -> str:
    return host.root("docker inspect -f '{{.Image}}' open-webui").strip()


def test_a_toolkit_in_cdi_mode_and_what_somebody_else_made_are_refused_then_mended_and_taken_over(
    deployed_stack: Stack, foreign: Host
) -> None:
    with_gpu = f"docker run --rm --gpus all --entrypoint true {image_of_webui(foreign)}"
    assert foreign.run(f"sudo -n {with_gpu}").code != 0
    webui = {"unit": "chat", "volume": "chat"}
    options = ("-y", "--limit", foreign.name)
    result = deployed_stack.deploy(
        *options, inventory=deployed_stack.inventory("theirs", webui=webui)
    )
    output = " ".join(result.output.split())
    assert result.code == 1
    assert 'which refuses in the mode "cdi" of its config.toml' in output
    mend = "sudo nvidia-ctk config --in-place --set nvidia-container-runtime.mode=auto"
    assert mend in output
    assert "error not-ours: there is a container chat without the label lockstep.unit" in output
    assert "error not-ours: there is a volume chat without the label lockstep.unit" in output
    assert "Beginning operation run" not in result.output
    # NVIDIA's hook alone gives the GPU.
    foreign.root(f"{mend} && {with_gpu}")
    # Its name is not enough on the host either.
    answer = foreign.run("sudo /usr/bin/python3 /usr/local/lib/lockstep stop-container chat")
    assert answer.code == 1
    assert "container chat is not Lockstep's" in answer.text
    adopt = ("container chat", "volume chat")
    inventory = deployed_stack.inventory("adopted", webui=webui, adopt=adopt)
    result = deployed_stack.good_deploy(*options, inventory=inventory)
    assert "docker-gpu" not in result.output
    assert "with the accounts of before" in " ".join(result.closing.split())
    assert foreign.root("docker exec chat cat /app/backend/data/theirs").strip() == "mine"
    assert foreign.show("chat.service", "ActiveState") == "active"
    names = foreign.root("cut -d = -f 1 /etc/lockstep/secrets/open-webui.env").split()
    assert names == ["WEBUI_SECRET_KEY"]
