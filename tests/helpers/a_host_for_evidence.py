"""An answer of one host to `lockstep evidence`, with something in every part."""

from typing import Any

from a_spark import spark

from lockstep.drift.hosts import HostSnapshot
from lockstep.evidence.report import Evidence, judge
from lockstep.fleet.hosts import Host

PLANS = [
    spark("spark-1.attic.example", operators=("anna",)),
    spark("spark-2.attic.example", proxy={"http": "http://bob:hunter2@proxy.attic.example:3128"}),
]
HOSTS = [Host(plan, {"ssh_user": "karl", "ssh_hostname": "192.168.7.11"}) for plan in PLANS]
LOCK = "0123456789abcdef"


def answer() -> dict[str, Any]:
    """The answer of the program on a host."""
    return {
        "facts": {
            "DGX OS": {"DGX_OTA_VERSION": "7.5.0", "os-release ID": "ubuntu"},
            "DGX factory": {"DGX_SWBUILD_VERSION": "7.2.3"},
            "kernel": {"release": "6.17.0-1031-nvidia", "command line": "root=(own) ro quiet"},
            "firmware": {"bios version": "5.36_0ACUM018", "adapter rocep1s0f0": "28.45.4028"},
            "CUDA": {"nvcc": "13.0", "version.json": 32 * "e"},
            "apt package": {
                "dgx-spark-ota-update-meta": "26.02.1",
                "nvidia-container-toolkit": "1.19.0-1",
                "docker-ce": "5:29.2.1-1~ubuntu.24.04~noble",
                "vim": "2:9.1.0016-1ubuntu7",
            },
            "apt hold": {"docker-ce": "5:29.2.1-1~ubuntu.24.04~noble"},
            "driver": {"GPU": "NVIDIA GB10", "version": "580.142"},
            "gpu": {"gpu-hot": "the GPU is held down (power brake) at 93 °C"},
            "gpu now": {"power W": "38.0", "rail sys_total W": "61.0"},
            "device": {
                "/dev/nvidia0": "0666 root:root",
                "/dev/infiniband/uverbs0": "0666 root:root",
            },
            "docker": {
                "version": "29.2.1",
                "hook nvidia-cdi-hook": "present",
                "mirror registry.attic.example": "present",
            },
            "toolkit": {"nvidia-ctk": "NVIDIA Container Toolkit CLI version 1.19.0"},
            "CDI driver": {"/var/run/cdi/nvidia.yaml": "580.95.05"},
            "apt now": {"locks": "free", "one-shot upgrade": "state enabled, done no"},
            "service": {"ssh.socket": "active (listening), enabled, since 2026-11-22 18:07:36"},
            "memory now": {"MemAvailable GiB": "102.20", "CmaFree GiB": "0.03"},
            "memory": {"swap /swap.img": "file 16.0 GiB", "MemTotal GiB": "121.7"},
            "link": {"enp1s0f0np0": "carrier yes, mtu 9000, speed 200000, rdma device rocep1s0f0"},
            "RDMA device": {"rocep1s0f0": "4: ACTIVE, 200 Gb/sec (2X NDR)"},
            "OOM score": {"a session over SSH (this one)": "-900", "sshd": "-1000, -900"},
            "engine": {"vllm": "0.17.2.dev0+g8e6f4314.precompiled", "transformers": "5.4.0"},
            "deployed": {"number": "3", "digest": "68d4993b48304043", "lock": LOCK},
            "accepted speed": {"qwen": "decode_tok_s 87.5, runs 87.4, 87.5, 87.6"},
            "lines": {
                "updates of DGX OS": 'DGX_OTA_VERSION="7.5.0"',
                "gpu": "|   0  NVIDIA GB10   On  |   0000000F:01:00.0 Off |   N/A |",
                "apt": "2026-11-22 17:44:23 apt: apt-get install docker-ce, 7 s, anna (1000)",
                "start of vllm.service": (
                    "2026-11-22 18:11:16 vllm: lockstep gate: 83.1 of 121.7 GiB available, 79.0"
                    " GiB needed\n"
                    "2026-11-22 18:12:16 vllm: [nvfp4.py:209] Using 'MARLIN' NvFp4 MoE backend\n"
                    "2026-11-22 18:12:17 vllm: INFO Using FlashInferCutlassNvFp4LinearKernel for"
                    " NVFP4 GEMM\n"
                    "2026-11-22 18:12:18 vllm: KV Cache is allocated. #tokens: 371661, K: 12 GB"
                ),
                "kernel, this boot": (
                    "2026-11-22 18:13:16 kernel: NVRM: Xid (PCI:000f:01:00): 13, pid=4242"
                ),
            },
        },
        "faults": {"machine.firmware": "PermissionError: /sys/class/dmi/id/bios_version"},
        "answers": {
            "identifying_words": {
                "hosts": ["spark-c0ffee", "nas.attic.example"],
                "accounts": [["anna", "Anna Lovelace", "anna"], ["karl", "", "karl"]],
                "domains": ["attic.example"],
                "serials": ["1794824001337", "To Be Filled By O.E.M."],
            }
        },
    }


def evidence(*answers: dict[str, Any] | None, fault: str = "no connection: timed out") -> Evidence:
    """The evidence of as many of `PLANS` as there are answers; None stands for no answer."""
    host_snapshots = [
        HostSnapshot(plan.name, host_answer, "" if host_answer else fault)
        for plan, host_answer in zip(PLANS, answers, strict=False)
    ]
    return judge(HOSTS, host_snapshots, lock=LOCK, now=0.0)
