"""The lab's hosts as one cluster, besides the models that each serves alone.

`LOCKSTEP_LAB=NAME` chooses the lab; with three or four hosts (`lockstep lab up --hosts 4`) the
stand-in for SGLang is split over all of them, and the real vLLM runs on the first two.
"""

import runpy
from pathlib import Path
from typing import Any

from lockstep.deploy.checked import checked

_hosts, _ = runpy.run_path(str(Path(__file__).with_name("lab.py")))["lab"]
_names = tuple(name for name, _ in _hosts)
_pair = _names[:2]
_clusters = {"pair": {"hosts": _pair}}
_together = {
    # The real vLLM, CPU build: each host has half of the tiny model.
    "pair": {
        "recipe": "tiny-qwen3-2x",
        "unit": "vllm-pair",
        "sense": "off",
        "cluster": "pair",
        # Limit for a rank that hangs while it starts. A start takes a minute, and on a machine with
        # other work beside it it has taken six.
        "start_timeout_s": 900,
    },
}
_all = {
    "recipe": "mistral-sglang-nx",
    "unit": "sglang-all",
    "cluster": "pair" if len(_names) == 2 else "all",
    "overrides": {"tensor_parallel": len(_names)},
    # A stand-in loads in seconds, so a frozen one need not be waited for for half an hour.
    "start_timeout_s": 300,
}
if len(_names) > 2:
    _clusters["all"] = {
        "hosts": _names,
        "topology": "switch",
        "port": 7080,
        "master_port": 29502,
    }


def _models(name: str) -> dict[str, Any]:
    """Return a host's own models, and those of its clusters."""
    return {"all": _all} | (_together if name in _pair else {})


lab_cluster = checked(
    __file__,
    [
        (
            name,
            {
                **data,
                "models": {**data["models"], **_models(name)},
                "clusters": _clusters,
                "fabric_address": data["ssh_hostname"],
                # One cable for everything, and no RDMA.
                "fabric": {"socket": "enP7s7", "mtu": 1500},
            },
        )
        for name, data in _hosts
    ],
)
