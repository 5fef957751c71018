"""The lab's first two hosts, each with a GPU of this machine, as one cluster.

`lockstep lab up --hosts 2 --gpu`. Each serves models of its own too (`inventories/lab_gpu.py`).
"""

import runpy
from pathlib import Path

from lockstep.deploy.checked import checked

_hosts, _ = runpy.run_path(str(Path(__file__).with_name("lab_gpu.py")))["lab_gpu"]
_pair = _hosts[:2]
_together = {"recipe": "trained-qwen3-2x-cuda", "unit": "vllm-pair", "cluster": "pair"}

lab_gpu_cluster = checked(
    __file__,
    [
        (
            name,
            {
                **data,
                "models": {**data["models"], "pair": _together},
                "clusters": {"pair": {"hosts": tuple(member for member, _ in _pair)}},
                "fabric_address": data["ssh_hostname"],
                # One cable for everything, and no RDMA.
                "fabric": {"socket": "enP7s7", "mtu": 1500},
            },
        )
        for name, data in _pair
    ],
)
