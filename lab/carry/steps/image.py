"""A model in an image: the host's own files, locked by digest, deployed and served as any other."""

from __future__ import annotations

import json
import time

from lab.carry.steps.run import Figures, Run, StepFailure

MODEL = "in-image"
REPOSITORY, TAG = "whole-run/vllm", "1"
#: The lab's inventory takes this registry's images from the lab's own.
REFERENCE = f"ghcr.io/{REPOSITORY}:{TAG}"
PORT = 8040
_LEFT_OUT = "data home var/lib/docker var/lib/containerd var/cache proc sys dev run tmp mnt lab"
#: Puts a tar into a registry as an image of one layer that is not compressed.
PUSH = """
import hashlib, http.client, json, os, sys
registry, repository, tag, path, architecture, *environment = sys.argv[1:]
def ask(method, target, body=None, **headers):
    link = http.client.HTTPConnection(registry, timeout=120)
    link.request(method, target, body, {key.replace("_", "-"): headers[key] for key in headers})
    answer = link.getresponse()
    if answer.status >= 300:
        sys.exit(f"{method} {target}: {answer.status} {answer.read()[:300]}")
    return answer
def blob(file, size, digest, kind):
    place = ask("POST", f"/v2/{repository}/blobs/uploads/", Content_Length="0")
    target = place.getheader("Location").partition(registry)[2]
    ask("PUT", f"{target}&digest={digest}", file, Content_Length=str(size),
        Content_Type="application/octet-stream")
    return {"mediaType": f"application/vnd.oci.image.{kind}", "digest": digest, "size": size}
def digest_of(data):
    return "sha256:" + hashlib.sha256(data).hexdigest()
with open(path, "rb") as file:
    layer = "sha256:" + hashlib.file_digest(file, "sha256").hexdigest()
    file.seek(0)
    layers = [blob(file, os.path.getsize(path), layer, "layer.v1.tar")]
config = json.dumps({
    "architecture": architecture, "os": "linux", "created": "2026-11-29T12:00:00Z",
    "config": {"Env": environment, "Cmd": ["/bin/sh"]},
    "rootfs": {"type": "layers", "diff_ids": [layer]},
}).encode()
kind = "application/vnd.oci.image.manifest.v1+json"
manifest = json.dumps({
    "schemaVersion": 2, "mediaType": kind, "layers": layers,
    "config": blob(config, len(config), digest_of(config), "config.v1+json"),
}).encode()
ask("PUT", f"/v2/{repository}/manifests/{tag}", manifest, Content_Type=kind)
print(json.dumps({"digest": digest_of(manifest), "gib": os.path.getsize(path) / 2**30}))
"""


def push(run: Run) -> Figures:
    """The host's own files, with the engine's environment, as an image in the lab's registry."""
    began = time.monotonic()
    words = " ".join(f"--exclude=./{folder}" for folder in _LEFT_OUT.split())
    # The list of libraries then has the driver's, as NVIDIA's hook would make it.
    run.on_host(
        "sudo ldconfig; sudo mkdir -p /data/whole-run && sudo tar -C / --one-file-system --owner=0"
        f" --group=0 {words} -cf /data/whole-run/layer.tar . 2>&1", (0, 1),
    )  # fmt: skip
    packed_s = time.monotonic() - began
    registry = run.on_host(
        'python3 -c \'import json; print(json.load(open("/etc/docker/daemon.json"))'
        '["insecure-registries"][0])\''
    ).strip()
    path = "/opt/lockstep/engines/current/venv/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    # `lockstep lock` reads CUDA_VERSION of an image. The machine's toolkit was 13.0 on 2026-11-29.
    output = run.on_host(
        f"sudo python3 - {registry} {REPOSITORY} {TAG} /data/whole-run/layer.tar amd64 PATH={path}"
        " CUDA_VERSION=13.0 && sudo rm -r /data/whole-run", text=PUSH,
    )  # fmt: skip
    return {"packed_s": packed_s, **json.loads(output.strip().splitlines()[-1])}


def recipe(run: Run) -> Figures:
    """The recipe of the venv engine with that image: deployed, hot, asked, and its GPU's memory."""
    run.on_host("sudo /data/scripts/llm/switch.sh none")
    began = time.monotonic()
    deploy = run.deploy(_inventory(run), "--limit", run.host)
    found: Figures = {"deploy": deploy, "switch": run.switch(MODEL)}
    found["seconds"] = time.monotonic() - began
    found["image"] = run.on_host(
        f"sudo docker inspect -f '{{{{.Config.Image}}}} {{{{json .HostConfig.DeviceRequests}}}}'"
        f" vllm-{MODEL}"
    ).strip()
    if not run.options.here:
        found["in it"] = run.on_host(f"sudo docker exec vllm-{MODEL} nvidia-smi -L").strip()
    found["chat"] = run.probe("ask", "chat", MODEL)
    if found["chat"]["code"] != 200:
        raise StepFailure("no answer", found)
    began = time.monotonic()
    run.on_host("sudo /data/scripts/llm/switch.sh none")
    return {**found, "none_s": time.monotonic() - began, "after": run.gpu()}


def _inventory(run: Run) -> str:
    """Path of the inventory with one model more, whose recipe is the usual one with the image."""
    recipes = run.checkout / "measured/whole-run/recipes"
    recipes.mkdir(parents=True, exist_ok=True)
    source = run.checkout / "lab/recipes" / f"{run.options.recipe}.yaml"
    text = source.read_text().replace("runtime: vllm\n", f"runtime: vllm\ncontainer: {REFERENCE}\n")
    (recipes / f"{MODEL}.yaml").write_text(text)
    model = {
        "recipe": MODEL, "unit": f"vllm-{MODEL}", "sense": "off", "port": PORT,
        "overrides": {"served_model_name": MODEL},
    }  # fmt: skip
    place = recipes if run.options.here else "/lockstep/measured/whole-run/recipes"
    return run.changed_inventory({MODEL: model}, (str(place),))
