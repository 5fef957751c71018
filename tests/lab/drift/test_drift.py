"""A change that somebody made on a host is put right by the next run, and nothing else changes."""

from __future__ import annotations

import json
from typing import Any

from stack import Host, Stack

ENGINE = "/opt/lockstep/engines/current"
HUB = "/data/models/huggingface/hub"
QWEN = f"{HUB}/models--rdtand--Qwen3.6-35B-A3B-PrismaQuant-4.75bit-vllm"
DRAFT = f"{HUB}/models--z-lab--Qwen3.6-35B-A3B-DFlash"
SECRETS = "/etc/lockstep/secrets/open-webui.env"

# Operation → what is done to the host behind its back. An engine's environment that has drifted:
# test_drift_is_named; an image that is gone: deploy/test_proxy.
DRIFT = {
    "Base | Create the service accounts and the operators' group": (
        "gpasswd -d spark lockstep-operators"
    ),
    "Base | Write folders, programs and settings": "chmod 777 /data/models",
    "Base | Install packages": "apt-get -qq -y remove jq",
    "Base | Turn on services of the system that are off": "systemctl disable -q --now earlyoom",
    "Base | Apply kernel settings": "sysctl -w vm.swappiness=60",
    "Firewall | Bring the rules into force": "nft insert rule inet lockstep input accept",
    "Weights | Fetch and verify weights": (
        # One file too short, another of the right size with another first byte.
        f"truncate -s 1000 $(readlink -f $(ls {QWEN}/snapshots/*/*00001-of-*.safetensors));"
        f" printf X | dd conv=notrunc status=none"
        f" of=$(readlink -f $(ls {DRAFT}/snapshots/*/*.safetensors))"
    ),
    "Services | Write launchers and units": (
        "echo 'MemoryMax=1G' >> /etc/systemd/system/vllm-qwen36.service"
    ),
    "Switch | Write switch.sh and what watches": "chmod 600 /data/scripts/llm/switch.sh",
    "Open WebUI | Make Open WebUI's keys once": f"chmod 644 {SECRETS}",
}


def test_the_next_run_repairs_exactly_what_has_drifted(
    deployed_stack: Stack, lab_host: Host
) -> None:
    # Whatever ran before has its own settings.
    limit = ("--limit", lab_host.name)
    deployed_stack.good_deploy("-y", *limit)
    secrets = lab_host.root(f"cat {SECRETS}")
    good = sums(lab_host)
    for command in DRIFT.values():
        lab_host.root(command)
    assert sums(lab_host) != good
    # It is the first host of the inventory, and no model for the other one.
    drift = differences(deployed_stack)
    off = [(item["host"], item["how"]) for item in drift if "earlyoom" in item["item"]]
    assert off == [("spark1", "deploy")]
    assert [item for item in drift if "disable" in item["command"]] == []
    result = deployed_stack.good_deploy("-y", *limit)
    # systemd may have read the edited unit, and is then told to read the one that replaces it.
    assert result.changed_operations - {
        "Services | Reload systemd, restart what is outdated"
    } == set(DRIFT)
    assert sums(lab_host) == good
    assert lab_host.root(f"cat {SECRETS}; stat -c %a {SECRETS}") == f"{secrets}600\n"
    assert lab_host.root("sysctl -n vm.swappiness").strip() == "10"
    assert lab_host.root("stat -c %a /data/models").strip() == "755"
    assert "MemoryMax=1G" not in lab_host.root("systemctl cat vllm-qwen36.service")
    assert lab_host.show("vllm-qwen36.service", "NeedDaemonReload") == "no"
    assert lab_host.run("jq --version").code == 0
    assert lab_host.root("systemctl is-enabled earlyoom; systemctl is-active earlyoom").split() == [
        *("enabled", "active")
    ]
    assert "lockstep-operators" in lab_host.root("id -nG spark").split()
    assert deployed_stack.good_deploy("-y", *limit).changed_operations == set()


def test_rot_that_no_time_stamp_shows_is_found_by_reading_everything(deployed_stack: Stack) -> None:
    two = deployed_stack.two
    rot = {
        "weights content": f"$(readlink -f $(ls {DRAFT}/snapshots/*/*.safetensors | head -n 1))",
        "changed package file": f"$(ls {ENGINE}/venv/lib/python3*/site-packages/idna/core.py)",
    }
    for number, path in enumerate(rot.values()):
        two.root(
            f"cp -p {path} /run/rot{number}; printf X | dd conv=notrunc bs=1 seek=9 status=none"
            f" of={path}; touch -r /run/rot{number} {path}"
        )
    try:
        quick, deep = (
            drift_items(deployed_stack, *how, "--limit", two.name) for how in ((), ("--deep",))
        )
    finally:
        for number, path in enumerate(rot.values()):
            two.root(f"dd conv=notrunc status=none if=/run/rot{number} of={path};")
            two.root(f"touch -r /run/rot{number} {path}; rm /run/rot{number}")
    assert {(host, kind) for host, kind, _ in deep - quick} == {("spark2", kind) for kind in rot}


def drift_items(deployed_stack: Stack, *options: str) -> set[tuple[str, str, str]]:
    """Host, kind and item of every difference that `lockstep diff` names."""
    drift = differences(deployed_stack, *options)
    return {(item["host"], item["kind"], item["item"]) for item in drift}


def differences(deployed_stack: Stack, *options: str) -> list[dict[str, Any]]:
    """The differences that `lockstep diff` names."""
    document = json.loads(deployed_stack.diff("--json", *options).stdout)
    return list(document["differences"])


def sums(host: Host) -> str:
    """Hash of every weight file, by its name in the snapshot."""
    return host.root(f"sha256sum {HUB}/models--*/snapshots/*/*.safetensors")
