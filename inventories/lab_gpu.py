"""The lab's hosts with a GPU of this machine: what differs from stand-in Sparks, as data.

`lockstep lab up --hosts 1 --gpu`, or as many as there are GPUs, with the engine's wheels in the
lab's index (docs/cuda.md).
"""

import runpy
from pathlib import Path

from lockstep.deploy.checked import checked

_hosts, _ = runpy.run_path(str(Path(__file__).with_name("lab.py")))["lab"]
#: An H200. The engine's environment is PyTorch's of the machine, with the vLLM that asks for it.
_machine = {
    "python": "3.12",
    "expected": {
        "architecture": "x86_64",
        "compute_capability": "9.0",
        "engine_cuda": "13",
        "free_disk_gib": 2.0,
    },
    "engine": {
        "release": "vllm==0.26.0",
        "torch": "torch==2.11.0",
        "flashinfer": False,
        "disk_gib": 12.0,
    },
    "models": {
        "trained": {"recipe": "trained-qwen3-cuda", "unit": "vllm-trained"},
        "tiny": {"recipe": "tiny-qwen3-cuda", "unit": "vllm", "sense": "off"},
        "vectors": {
            "recipe": "tiny-qwen3-vectors-cuda",
            "unit": "vllm-vectors",
            "sense": "off",
        },
    },
    # Its image is none of the parts that a machine without a network gets.
    "webui": {"enabled": False},
    "packages": ("earlyoom", "git", "jq", "nftables", "python3-venv", "python3.12-dev", "rsync"),
}

lab_gpu = checked(__file__, [(name, {**data, **_machine}) for name, data in _hosts])
