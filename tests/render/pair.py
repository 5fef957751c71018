"""Two Sparks that serve models together, for the render tests: everything that can be on."""

from functools import cache
from typing import Any

from a_spark import spark
from example import pins, rendered_files

from lockstep.files.managed_file import PROGRAMS, ManagedFile
from lockstep.inventory.cluster_join import join_clusters
from lockstep.inventory.host import HostPlan
from lockstep.units.all_files import deployed_files

MODELS: dict[str, dict[str, Any]] = {
    "qwen": {
        "recipe": "qwen3.6-35b-a3b-prismaquant-dflash-k3",
        "unit": "vllm-qwen36",
        "start_timeout_s": 600,
    },
    # vLLM in a container, open to other machines.
    "deepseek": {
        "recipe": "deepseek-v4-flash-2x",
        "unit": "vllm-deepseek",
        "cluster": "pair",
        "bind": "0.0.0.0",
        "port": 30002,
    },
    # SGLang, behind a listener that merges roles.
    "mistral": {
        "recipe": "mistral-small-4-119b-nvfp4-sglang",
        "unit": "sglang-mistral4",
        "cluster": "pair",
        "overrides": {"tensor_parallel": 2},
    },
    # vLLM in the venv.
    "fork": {
        "recipe": "mistral-small-4-119b-nvfp4-vllm-fork",
        "unit": "vllm",
        "cluster": "pair",
        "overrides": {"tensor_parallel": 2},
    },
}
CLUSTERS = {"pair": {"hosts": ("spark-1", "spark-2")}}
#: A site behind a proxy, with mirrors of its own.
SITE: dict[str, Any] = {
    "sources": {
        "registries": {"ghcr.io": "registry.example:5000", "docker.io": "registry.example:5000"},
        "apt": ("deb http://packages.example/ubuntu noble main",),
    },
    "proxy": {
        "http": "http://user:pa%24$word@proxy.example:3128",
        "https": "http://proxy.example:3128",
        "no": "localhost,127.0.0.1,10.0.0.0/8,packages.example",
    },
    "gpu": {"max_clock_mhz": 2100},
    "service_user": "engines",
}


def fabric(rank: int) -> dict[str, Any]:
    """Both interfaces of the first port of a Spark."""
    return {
        "interfaces": {
            "enp1s0f0np0": f"10.77.0.{11 + rank}/24",
            "enP2p1s0f0np0": f"10.77.1.{11 + rank}/24",
        },
        "netplan": True,
    }


@cache
def plans() -> tuple[HostPlan, ...]:
    """The two hosts, joined."""
    alone = [
        spark(
            f"spark-{rank + 1}",
            models=MODELS,
            clusters=CLUSTERS,
            fabric=fabric(rank),
            fabric_address=f"10.77.0.{11 + rank}",
            boot="last",
            **SITE,
        )
        for rank in (0, 1)
    ]
    return join_clusters(alone, "site.py")


@cache
def rank_files(rank: int) -> dict[str, ManagedFile]:
    """Path → artefact of one rank, without the programs."""
    plan = plans()[rank]
    files = deployed_files(plan, pins(plan.settings, plan.models), engine_id="0123456789ab")
    return {file.path: file for file in files if not file.path.startswith(f"{PROGRAMS}/")}


#: A host as it comes, and one with everything on.
FILES = {"spark": rendered_files("spark"), "member": rank_files(0)}
