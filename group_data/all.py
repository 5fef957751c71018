"""Defaults for every Spark. `inventories/*.py` and `group_data/<inventory>.py` override them.

Every key is described in lockstep/inventory/settings.py; an unknown one is refused before any
connection.
"""

# pyinfra: operations and facts run as root, with secure host keys.
_sudo = True
ssh_strict_host_key_checking = "yes"

python = "3.12"

# The names that `switch.sh` accepts, and the recipe each one starts. One is hot at a time.
models = {
    "qwen": {
        # Article 004's update: it sees. Its fallback is the earlier model: other weights, text
        # only.
        "recipe": "qwen3.6-35b-a3b-autoround-dflash-k3-vision",
        "fallback": "qwen3.6-35b-a3b-prismaquant-dflash-k3",
        "unit": "vllm-qwen36",
        "launcher": "/data/scripts/vllm/qwen36-launch.sh",
        "scripts": (
            "/data/scripts/vllm/qwen36-PRODUCTION.sh",
            "/data/scripts/llm/qwen36-switch-from-mistral.sh",
        ),
    },
    "mistral": {
        "recipe": "mistral-small-4-119b-nvfp4-sglang-eagle",
        # Another engine, without EAGLE: one fault of a kernel or of the draft does not break both.
        "fallback": "mistral-small-4-119b-nvfp4-vllm-fork",
        # The same context; it starts from 99.2 GiB, the memory minimum included, where the model
        # needs 95.9. A smaller share leaves no room in the worse observed case.
        "fallback_overrides": {"gpu_memory_utilization": 0.72, "max_model_len": 32768},
        # Articles 000 and 001: 36.5 tok/s, 29 without EAGLE, 12.5 on an image that had regressed.
        "minimum": {"decode_tok_s": 25},
        "unit": "sglang-mistral4",
        "launcher": "/data/scripts/llm/sglang-mistral4-launch.sh",
        "scripts": ("/data/scripts/llm/start-mistral.sh",),
    },
    "mistral-vllm": {
        "recipe": "mistral-small-4-119b-nvfp4-vllm-fork",
        "unit": "vllm",
    },
}

# Debian and Ubuntu packages (article 003 and the community's reports).
packages = (
    "ca-certificates",
    "curl",
    "earlyoom",
    "g++",
    "git",
    "jq",
    "nftables",
    "ninja-build",
    "python3-dev",
    "python3-venv",
    "rsync",
)

# Reports of Spark operators: keep anonymous memory, and leave the kernel room to free pages.
sysctls = {
    "vm.swappiness": "10",
    "vm.min_free_kbytes": "1048576",
}

# Every port that is not opened is closed to other machines: docs/security.md.
firewall = {
    "enabled": True,
    "ssh_ports": (22,),
    "open": (),
    "peers": (),
}

# Programs in their own venv on the host: requirement strings, resolved once.
# The gateway uses all but uv and pip. pip fetches the engine's wheels; since 25.2 it resumes a
# broken download.
tools = {
    "uv": "uv",
    "pip": "pip>=25.2",
    "httpx2": "httpx2",
    "httptools": "httptools",
    "prometheus-client": "prometheus-client",
    "pydantic": "pydantic",
    "starlette": "starlette",
    "uvicorn": "uvicorn",
    "uvloop": "uvloop",
}
