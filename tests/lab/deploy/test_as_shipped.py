"""The state of a Spark before its first deploy: Docker's ways to the GPU, and things of its owner
under our names.
"""

import pytest
from stack import Host, state

from lockstep.onhost.records.ownership import ADOPTED_FOLDER, MARK

KEPT = "/root/kept"
TOOLKIT = "/etc/nvidia-container-runtime"
MEND = "sudo nvidia-ctk config --in-place --set nvidia-container-runtime.mode=auto"
NAME = "vllm-mine"
UNIT = f"/etc/systemd/system/{NAME}.service"
THEIRS = "[Service]\nExecStart=/usr/bin/sleep infinity\n[Install]\nWantedBy=multi-user.target\n"
MODELS = {"mine": {"recipe": "qwen3.6-35b-a3b-prismaquant-dflash-k3", "unit": NAME, "port": 8055}}
WEBUI = {"unit": "chat", "volume": "chat"}
# Earlier images of DGX OS: NVIDIA's hook alone, no runtime and no CDI file.
HOOK_ONLY = (
    f"mkdir {KEPT} && cp -p /etc/docker/daemon.json {KEPT}/ && mv /etc/cdi {KEPT}/cdi"
    " && python3 -c \"import json; p = '/etc/docker/daemon.json'; d = json.load(open(p));"
    " del d['runtimes'], d['features']; json.dump(d, open(p, 'w'))\""
    f" && touch -r {KEPT}/daemon.json /etc/docker/daemon.json && systemctl reload docker"
)
# With its time: a file younger than Docker is a reason to restart it.
BACK = f"cp -p {KEPT}/daemon.json /etc/docker/ && mv {KEPT}/cdi /etc/cdi; systemctl reload docker"


@pytest.fixture(scope="module")
def foreign(stack, first):
    """spark2 with a container and a volume as NVIDIA's playbook makes them, and a unit by hand.

    These are called `chat`, and the unit, enabled and running, as that of a model. Its Docker is as
    earlier images have it, and its toolkit in CDI mode.
    """
    host = stack.two
    host.root(HOOK_ONLY)
    host.root(
        "docker volume create chat && docker run --detach --restart always --name chat"
        f" -v chat:/app/backend/data --entrypoint sh {image_of_webui(host)}"
        " -c 'echo mine > /app/backend/data/theirs; sleep infinity'"
    )
    secrets = "/etc/lockstep/secrets/open-webui.env"
    host.root(f"mv {secrets} /root/open-webui.env")
    host.root(
        f"mkdir {TOOLKIT} && printf '[nvidia-container-runtime]\nmode = \"cdi\"\n'"
        f" > {TOOLKIT}/config.toml"
    )
    host.root(f"printf %s '{THEIRS}' > {UNIT}; systemctl daemon-reload")
    host.root(f"systemctl enable --quiet --now {NAME}")
    yield host
    host.root(f"systemctl disable --now --quiet {NAME} || true; rm -rf {UNIT} {ADOPTED_FOLDER}")
    host.root(f"systemctl daemon-reload; systemctl reset-failed {NAME} 2>/dev/null || true")
    host.root(f"rm -r {TOOLKIT}; mv -f /root/open-webui.env {secrets}")
    stack.good_deploy("-y", "--limit", host.name)
    host.root(f"docker rm -f chat; docker volume rm chat; {BACK}; rm -r {KEPT}")


def image_of_webui(host: Host) -> str:
    return host.root("docker inspect -f '{{.Image}}' open-webui").strip()


def test_a_toolkit_in_cdi_mode_and_what_somebody_else_made_are_findings_on_their_host(
    deployed_stack, foreign
):
    earlier_state = state(foreign)
    inventory = deployed_stack.inventory("theirs", webui=WEBUI, models=MODELS)
    result = deployed_stack.deploy(inventory=inventory)
    output = " ".join(result.output.split())
    assert result.code == 1
    assert 'which refuses in the mode "cdi" of its config.toml' in output
    assert MEND in output
    for message in (
        f"{UNIT} was not made by Lockstep (written 2",
        "there is a container chat without the label lockstep.unit",
        "there is a volume chat without the label lockstep.unit",
    ):
        assert f"spark2 error not-ours: {message}" in output
    assert "spark1 error" not in output
    assert "nothing was touched on any host" in output
    assert state(foreign) == earlier_state
    assert foreign.root(f"systemctl is-active {NAME}; systemctl is-enabled {NAME}").split() == [
        *("active", "enabled")
    ]
    # Its name is not enough on the host either.
    answer = foreign.run("sudo /usr/bin/python3 /usr/local/lib/lockstep stop-container chat")
    assert answer.code == 1
    assert "container chat is not Lockstep's" in answer.text


def test_what_somebody_else_made_is_taken_over_on_purpose(deployed_stack, foreign):
    # Once it is mended, NVIDIA's hook alone gives the GPU.
    with_gpu = f"docker run --rm --gpus all --entrypoint true {image_of_webui(foreign)}"
    assert foreign.run(f"sudo -n {with_gpu}").code != 0
    foreign.root(f"{MEND} && {with_gpu}")
    adopt = ("container chat", "volume chat", UNIT)
    inventory = deployed_stack.inventory("adopted", webui=WEBUI, models=MODELS, adopt=adopt)
    result = deployed_stack.good_deploy("-y", "--limit", foreign.name, inventory=inventory)
    assert "docker-gpu" not in result.output
    assert "with the accounts of before" in " ".join(result.closing.split())
    assert foreign.root("docker exec chat cat /app/backend/data/theirs").strip() == "mine"
    assert foreign.show("chat.service", "ActiveState") == "active"
    names = foreign.root("cut -d = -f 1 /etc/lockstep/secrets/open-webui.env").split()
    assert names == ["WEBUI_SECRET_KEY"]
    assert MARK in foreign.root(f"head -n 1 {UNIT}")
    assert foreign.root(f"cat {ADOPTED_FOLDER}{UNIT}") == THEIRS
    assert foreign.run(f"systemctl is-enabled {NAME}").text.strip() == "static"
    # It ran, so it was restarted as what it is now: a model that serves.
    assert foreign.status()["hot"] == "mine"
