"""The NVIDIA GPUs of this machine, one for each host: devices, driver, toolkit, CDI file."""

from __future__ import annotations

import json
import platform
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from lab.core.errors import LabError
from lab.core.state import Host

#: The device node of one GPU, and those that every program with a GPU opens.
_GPU = re.compile(r"nvidia(\d+)")
_SHARED = ("nvidiactl", "nvidia-modeset", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-caps")
_LIBRARY = re.compile(r"lib(cuda|cudadebugger|nvcuvid|nvidia-[\w-]+)\.so(\.[\d.]+)?")
#: The driver's settings, which its libraries read.
PARAMETERS = "/proc/driver/nvidia/params"
#: Where drivers are, packages' folders last: a machine's own beside them goes first.
_DRIVER = ("usr/local/nvidia/lib64", "usr/local/nvidia/lib", "usr/lib/{triplet}", "usr/lib64")
_PROGRAMS = ("usr/local/nvidia/bin", "usr/bin")
_TOOLKIT = "usr/local/cuda"


def options(host: Host, machine: Path = Path("/")) -> list[str]:
    """Words for systemd-nspawn that give ``host`` the GPU of its number; () beyond the last GPU.

    The driver's files go, read-only, where Ubuntu's packages of the driver put them: the stand-in
    for nvidia-smi lies below the real one, and the stand-in for CUDA below the toolkit. The
    programs of the container toolkit stay stand-ins, whose work for `--gpus` the lab's runc does.
    ``machine`` is the root of this machine's files.

    Raises ``LabError`` where the machine has no working driver.
    """
    triplet = f"{platform.machine()}-linux-gnu"
    device_folder = machine / "dev"
    names = [path.name for path in device_folder.iterdir()]
    libraries = _first(machine, (path.format(triplet=triplet) for path in _DRIVER), _holds_nvml)
    program = _first(machine, _PROGRAMS, lambda folder: (folder / "nvidia-smi").exists())
    if libraries is None or program is None or "nvidiactl" not in names:
        raise LabError(
            "this machine has no NVIDIA driver (/dev/nvidiactl, libnvidia-ml.so.1, nvidia-smi)",
            "Install it, or leave --gpu away.",
        )
    binds = [
        f"--bind={device_folder / name}:/dev/{name}" for name in devices(names, host.number - 1)
    ]
    if not binds:
        return []
    read_only = {
        f"/usr/lib/{triplet}/{name}": libraries / name
        for name in driver_libraries(path.name for path in libraries.iterdir())
    }
    read_only["/usr/bin/nvidia-smi"] = program / "nvidia-smi"
    if (machine / _TOOLKIT / "bin/nvcc").exists():
        read_only[f"/{_TOOLKIT}"] = machine / _TOOLKIT
    return [*binds, *(f"--bind-ro={path.resolve()}:{at}" for at, path in read_only.items())]


def cdi_file(words: Sequence[str]) -> str:
    """The CDI file of a host that has the GPU by these words of `options`: the same, in containers.

    It is what `nvidia-ctk cdi generate` writes on a Spark, less the toolkit's own hooks: libraries
    are where the loader looks for them without a list. The format is 0.5.0 of the specification
    (github.com/cncf-tags/container-device-interface, SPEC.md). JSON is YAML.
    """
    nodes = [word.rpartition(":")[2] for word in words if word.startswith("--bind=")]
    # A folder of nodes for parts of a GPU (MIG), which nothing here uses.
    nodes = [node for node in nodes if not node.endswith("/nvidia-caps")]
    files = [word.rpartition(":")[2] for word in words if word.startswith("--bind-ro=")]
    edits = {
        "deviceNodes": [{"path": node} for node in nodes],
        "mounts": [
            {"hostPath": file, "containerPath": file, "options": ["ro", "nosuid", "nodev", "rbind"]}
            for file in files
        ],
    }
    devices = [{"name": name, "containerEdits": edits} for name in ("0", "all")]
    document = {
        "cdiVersion": "0.5.0",
        "kind": "nvidia.com/gpu",
        "devices": devices,
        "containerEdits": {"env": ["NVIDIA_VISIBLE_DEVICES=void"]},
    }
    return json.dumps(document, indent=1) + "\n"


def host_parameters(text: str) -> str:
    """The driver's settings as a host sees them: its libraries make no device nodes there.

    Otherwise the first program of root makes the nodes of all GPUs, and each host uses the first
    one (seen with two H200, 2026-11-29). NVIDIA's container toolkit does the same.
    """
    return text.replace("ModifyDeviceFiles: 1", "ModifyDeviceFiles: 0")


def devices(names: Iterable[str], index: int) -> list[str]:
    """Names in /dev of the GPU at ``index`` and of what all GPUs share; () without such a GPU."""
    present = set(names)
    gpus = sorted(int(match[1]) for name in present if (match := _GPU.fullmatch(name)))
    if index >= len(gpus):
        return []
    return [f"nvidia{gpus[index]}", *(name for name in _SHARED if name in present)]


def driver_libraries(names: Iterable[str]) -> list[str]:
    """Names of the libraries that belong to the driver, links included."""
    return sorted(name for name in names if _LIBRARY.fullmatch(name))


def _holds_nvml(folder: Path) -> bool:
    return (folder / "libnvidia-ml.so.1").exists()


def _first(machine: Path, places: Iterable[str], fits: Callable[[Path], bool]) -> Path | None:
    return next((folder for place in places if fits(folder := machine / place)), None)
