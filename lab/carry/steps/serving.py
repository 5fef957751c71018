"""Steps from parts to a model that serves."""

from __future__ import annotations

import json
import shlex
import time

from lab.carry.steps.run import VENV, Figures, Run, StepFailure

SITE = "import os, torch; print(os.path.dirname(torch.__path__[0]))"
VERSIONS = (
    "import platform, torch, vllm;"
    "print(platform.python_version(), torch.__version__, vllm.__version__)"
)
CARD = "nvidia-smi --query-gpu=name,driver_version,memory.total,compute_cap --format=csv,noheader"
#: Where vllm.tar.xz is unpacked: its folder is `site`.
UNPACKED = "/site"
#: Puts the trained model into the hub of the lab whose state is a folder.
PUBLISH = """
import sys
from pathlib import Path
from lab.hub import hub_store
folder, state = map(Path, sys.argv[1:])
files = {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.is_file()}
root = state / "services/hub/content"
root.mkdir(parents=True, exist_ok=True)
print(hub_store.commit(root, "lab/trained-qwen3", files, "Trained", "2026-11-29T12:00:00.000Z",
                       licence="apache-2.0"))
"""


def assemble(run: Run) -> Figures:
    """Unpack all parts; PyTorch of this machine goes into wheels, not into the host's root."""
    run.machine("python3", "-m", "tarfile", "-e", f"{run.parts}/vllm.tar.xz", UNPACKED)
    return {"said": run.machine("sh", f"{run.parts}/boot.sh", "assemble", TORCH="/nonexistent")}


def train(run: Run) -> Figures:
    """Train the model that answers sense's questions, if nobody has; wait until it is trained."""
    folder = run.options.trained
    if not (folder / "trained.json").exists() and not run.options.training:
        folder.mkdir(parents=True, exist_ok=True)
        place = str(run.lab / "checkout")
        run.machine(
            "python3", "-m", "benchmarks.cuda.trained_model", str(folder), f"{place}/docs",
            "--seconds", "90", PYTHONPATH=_path(run),
        )  # fmt: skip
    run.until((folder / "trained.json").exists)
    return dict(json.loads((folder / "trained.json").read_text()))


def wheels(run: Run) -> Figures:
    """Make wheels, and an index for the lab's web server, of what is installed here."""
    web = run.lab / "state" / "lab" / "services" / "web"
    web.mkdir(parents=True, exist_ok=True)
    site = run.machine("python3", "-c", SITE)
    need = "vllm torch torchvision mistral_common httpx2 httptools prometheus-client pydantic"
    return {
        "said": run.machine(
            "python3", "-m", "lab.packages.installed_wheels", str(web), f"{UNPACKED}/site",
            site.strip(), f"{run.parts}/more", "--need", *need.split(), "starlette",
            "uvicorn", "uvloop", PYTHONPATH=_path(run),
        )
    }  # fmt: skip


def _path(run: Run) -> str:
    """PYTHONPATH of this machine's Python: the checkout, and packages that the machine lacks."""
    return f"{run.lab / 'checkout'}:{UNPACKED}/site"


def up(run: Run) -> Figures:
    """Publish the trained model, and boot the hosts, each with a GPU."""
    place = str(run.lab / "checkout")
    run.machine(
        "python3", "-c", PUBLISH, str(run.options.trained), str(run.lab / "state/lab"),
        PYTHONPATH=place,
    )  # fmt: skip
    run.machine("sh", f"{run.parts}/boot.sh", "enter")
    return {"said": run.do("lockstep", "lab", "up", "--hosts", str(run.options.hosts), "--gpu")}


def about(run: Run) -> Figures:
    """Card, driver and versions of what is measured."""
    card = {} if run.options.here else {"card": run.on_host(CARD).strip()}
    versions = run.on_host(f"{VENV} -c {shlex.quote(VERSIONS)} 2>/dev/null")
    return {
        **card,
        "python, torch, vllm": versions.strip(),
        "kernel, cores, memory": run.on_host("uname -r; nproc; free -g | sed -n 2p").split("\n"),
    }


def deploy(run: Run) -> Figures:
    """The first deploy."""
    return run.deploy(run.options.inventory)


def deploy_again(run: Run) -> Figures:
    """A second deploy, which changes nothing."""
    again = run.deploy(run.options.inventory)
    if again.get("changed") != "-":
        raise StepFailure("the second deploy changed something", again)
    return again


def diff(run: Run) -> Figures:
    """No drift."""
    began = time.monotonic()
    output = run.do("lockstep", "diff", "--inventory", run.options.inventory)
    return {"seconds": time.monotonic() - began, "said": output.strip().splitlines()[-1]}


def first_switch(run: Run) -> Figures:
    """The model's first start, with everything compiled."""
    return run.switch(run.options.model)
