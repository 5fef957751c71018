"""The GPU as programs and containers of a host see it."""

from __future__ import annotations

import json
import shlex
import time

from lab.carry.steps.run import APPS, VENV, Figures, Run, StepFailure

IMAGE = "whole-run/host"
PORT = 8555
#: Docker before 28.3 takes CDI devices only where this is set (docs.docker.com, CDI devices).
_FEATURE = """
import json, pathlib
path = pathlib.Path("/etc/docker/daemon.json")
path.with_suffix(".whole-run").write_text(path.read_text() if path.exists() else "{}")
settings = json.loads(path.with_suffix(".whole-run").read_text())
path.write_text(json.dumps({**settings, "features": {**settings.get("features", {}), "cdi": True}}))
"""
#: A product of matrices, and which GPU made it.
_MATRICES = """
import torch
a = torch.ones(2048, 2048, device="cuda", dtype=torch.bfloat16)
print(torch.cuda.get_device_name(), (a @ a)[0, 0].item())
"""


def smi(run: Run) -> Figures:
    """Answers of the real nvidia-smi, which the lab's stand-in has to give as well."""
    run.make_hot(run.options.model)
    unit = "sudo systemd-run --wait --collect --pipe -q --uid=spark"
    alone, policy = f"{unit} -p PrivateDevices=yes", f"{unit} -p DevicePolicy=closed"
    commands = {
        "screen": "nvidia-smi",
        "no devices": f"{alone} nvidia-smi",
        "no devices, query": f"{alone} nvidia-smi --query-gpu=name --format=csv",
        "no devices, list": f"{alone} nvidia-smi -L",
        "no devices, apps": f"{alone} {APPS}",
        "a closed policy": f"{policy} nvidia-smi -L",
        "its nodes let through": f"{policy} -p 'DeviceAllow=char-nvidia* rw' nvidia-smi -L",
        "apps": "nvidia-smi --query-compute-apps=pid,process_name,used_memory --format=csv",
        "apps, two words": "nvidia-smi --query-compute-apps=pid,name,used_gpu_memory --format=csv",
        "unknown field": "nvidia-smi --query-gpu=nonsense --format=csv",
        "unknown option": "nvidia-smi --nonsense",
        "reasons": "nvidia-smi --query-gpu=clocks_event_reasons.active,clocks.sm,pstate,power.draw,"
        "clocks.gr,temperature.gpu,utilization.gpu,persistence_mode,mig.mode.current --format=csv",
        "no units": "nvidia-smi --query-gpu=clocks.sm,power.draw,memory.used"
        " --format=csv,noheader,nounits",
        "cap as a user": "nvidia-smi -lgc 300,1200",
    }
    found = {}
    for name, command in commands.items():
        output = run.on_host(f"{command} 2>&1; echo code $?")
        found[name] = output.strip().splitlines()[-12:]
    return found


def container(run: Run) -> Figures:
    """The host's own files as an image, under Docker with the lab's CDI file: the engine in it."""
    found: Figures = {"docker": run.on_host("sudo docker version -f '{{.Server.Version}}'").strip()}
    run.on_host("sudo python3 - && sudo systemctl restart docker", text=_FEATURE)
    try:
        found |= _in_containers(run)
    finally:
        run.on_host(
            "sudo docker rm -f whole-run; sudo docker rmi -f " + IMAGE + "; cd /etc/docker && "
            "sudo mv daemon.whole-run daemon.json && sudo systemctl restart docker", (0, 1),
        )  # fmt: skip
    return found


def _in_containers(run: Run) -> Figures:
    leave_out = "opt data home var/lib/docker var/cache proc sys dev run tmp mnt lab"
    words = " ".join(f"--exclude=./{folder}" for folder in leave_out.split())
    began = time.monotonic()
    run.on_host(
        f"sudo tar -C / --one-file-system {words} -c . | sudo docker import - {IMAGE}"
        " && sudo mkdir -p /tmp/compiled"
    )
    found: Figures = {"image_s": time.monotonic() - began}
    device = "--device nvidia.com/gpu=all"
    # Triton asks ldconfig for the driver, which is not in the image's list of libraries.
    more = (
        "--network host --ipc host -v /opt/lockstep:/opt/lockstep:ro -e HOME=/tmp"
        " -e VLLM_NO_USAGE_STATS=1 -e VLLM_USE_FLASHINFER_SAMPLER=0 -e HF_HUB_OFFLINE=1"
        " -e TRITON_LIBCUDA_PATH=/usr/lib/x86_64-linux-gnu"
    )
    docker = "sudo docker run --rm"
    alone = run.on_host(f"{docker} {IMAGE} nvidia-smi -L 2>&1 | tail -n 1", (0, 1)).strip()
    found["without the device"] = alone
    found["nvidia-smi"] = run.on_host(f"{docker} {device} {IMAGE} nvidia-smi -L 2>&1").strip()
    found["matrices"] = run.on_host(
        f"{docker} -i {device} {more} {IMAGE} {VENV} -", text=_MATRICES
    ).strip()
    run.on_host("sudo /data/scripts/llm/switch.sh none")
    copy = (
        "rm -rf /tmp/in-image; file=$(find /data /var -path '*snapshots*' -name tokenizer.json"
        f" | grep {run.options.folder} | head -n 1); cp -rL $(dirname $file) /tmp/in-image"
    )
    run.on_host(f"sudo sh -c {shlex.quote(copy)} 2>&1")
    began = time.monotonic()
    run.on_host(
        f"sudo docker run -d --name whole-run {device} {more} -v /tmp/in-image:/model:ro {IMAGE}"
        f" {VENV.replace('bin/python', 'bin/vllm')} serve /model --port {PORT} --dtype bfloat16"
        " --max-model-len 1024 --gpu-memory-utilization 0.1 --served-model-name in-image"
    )
    health = f"curl -sf 127.0.0.1:{PORT}/health && echo well"
    log = "sudo docker logs --tail 8 whole-run 2>&1"
    lives = "sudo docker ps -q -f name=whole-run"

    def serves() -> bool:
        if not run.on_host(lives).strip():
            raise RuntimeError("the container ended")
        return run.on_host(health, (0, 7, 22)).strip() == "well"

    try:
        run.until(serves)
    except (RuntimeError, StepFailure):
        raise StepFailure(f"it does not serve: {run.on_host(log, (0, 1))[-500:]}", found) from None
    found["ready_s"] = time.monotonic() - began
    body = {"model": "in-image", "max_tokens": 16,
            "messages": [{"role": "user", "content": "Say hello."}]}  # fmt: skip
    answer = run.on_host(
        f"curl -s 127.0.0.1:{PORT}/v1/chat/completions -H 'Content-Type: application/json' -d @-",
        text=json.dumps(body),
    )
    found["answer"] = json.loads(answer)["choices"][0]["message"]["content"]
    found |= run.gpu()
    began = time.monotonic()
    run.on_host("sudo docker stop whole-run")
    return {**found, "stopped_s": time.monotonic() - began, "after": run.gpu()}
