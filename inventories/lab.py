"""Stand-in Sparks on this machine (`lockstep lab up`): the same deploy, only the data differ.

No task knows that a lab exists. A site without internet would name its own mirrors here; this file
names the lab's servers. Likewise the facts of a Spark are those of a stand-in.
"""

from lab import RECIPES
from lab.host import connection
from lockstep.defaults import models
from lockstep.defaults import packages as _packages
from lockstep.deploy.checked import checked

# The lab has a network of its own; this process joins it.
_lab = connection.join()
_services = _lab.services
_option = "" if _lab.name == "lab" else f" --name {_lab.name}"
_in_root = {"ca-certificates", "curl", "g++"}

_data = {
    "ssh_user": _lab.ssh_user,
    "ssh_key": str(_lab.ssh_key),
    "ssh_known_hosts_file": str(_lab.known_hosts),
    "operators": (_lab.ssh_user,),
    "python": "3.11",
    # The content of a lab's servers differs between machines, so its lock stays with the lab.
    "lock": str(_lab.folder / "lab.lock.yaml"),
    "recipe_folders": (RECIPES,),
    "sources": {
        "python_index": _services["python_index"],
        "torch_index": _services["torch_index"],
        "flashinfer_index": _services["flashinfer_index"],
        "vllm_wheels": _services["vllm_wheels"],
        "hub": _services["hub"],
        "git": {
            "https://github.com/juliendenize/": _services["git"],
            "https://github.com/vllm-project/": _services["git"],
        },
        "registries": dict.fromkeys(("ghcr.io", "docker.io"), _services["registry"]),
        "plain_registries": (_services["registry"],),
        "apt": (f"deb [trusted=yes] {_services['apt']} ./",),
    },
    # The lab's archive offers packages that the hosts lack; these they have from the start.
    "packages": tuple(name for name in _packages if name not in _in_root),
    # Debian 13 has earlyoom 1.8, which counts its percentages otherwise.
    "waive": ("earlyoom-late",),
    "expected": {"architecture": "x86_64", "engine_cuda": None, "free_disk_gib": 2.0},
    "engine": {"torch": "torch==2.13.0", "transformers": "transformers", "disk_gib": 4.0},
    # The third name on a Spark is a venv engine too. Here it serves a tiny random model, whose
    # answers are nonsense by nature.
    "models": {
        # The recipe of its fallback on a Spark, alone: tests break its start and its files, and a
        # fallback would stand in for it.
        "qwen": {
            **{key: value for key, value in models["qwen"].items() if key != "fallback"},
            "recipe": models["qwen"]["fallback"],
        },
        # Its fallback on a Spark is the fork in the venv, which here has no GPU to compute with.
        "mistral": {**models["mistral"], "fallback": "mistral-on-vllm"},
        "tiny": {"recipe": "tiny-qwen3", "unit": "vllm", "sense": "off"},
    },
}

lab = checked(
    __file__,
    [
        (
            host.name,
            {
                **_data,
                "ssh_hostname": host.address,
                "login": f".venv/bin/lockstep lab ssh{_option} {host.name} --",
            },
        )
        for host in _lab.hosts
    ],
)
