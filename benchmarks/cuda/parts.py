"""Pack a real CUDA vLLM for a GPU machine without a network: about 55 MiB.

usage: python -m benchmarks.cuda.parts HAS ARCHIVE.tar.xz [--vllm 0.26.0] [--date YYYY-MM-DD]
                                       [--compute 90] [--python 3.12]

HAS lists the packages of that machine, a line each (`python -m pip list --format=freeze` there);
torch is one of them, at the version that this vLLM asks for. Needed here: uv, strip, xz, 2 GB of
disk and a package index. There: unpack the archive, and name its folder `site` in PYTHONPATH.
For a Hopper only: an Ada needs FlashAttention 2, and code of its older kin, which are left out.

Machine code of other GPUs is zeroed in the compiled parts, not taken out, so that every offset
holds and xz packs it away. Left out are parts for some models and GPUs: FlashInfer's sampler is off
with VLLM_USE_FLASHINFER_SAMPLER=0, and Qwen3.6's layers take `--gdn-prefill-backend triton`.
"""

from __future__ import annotations

import argparse
import re
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

# Kernels and compilers for other models and GPUs, and services: 1.5 GB.
_LEFT_OUT = re.compile(
    r"flashinfer|humming|quack|tilelang|tokenspeed|torchcodec|torch-c-dlpack|z3-solver|fastsafetensors"
    r"|cuda-(python|tile)|pynvvideocodec|pyelftools|nvtx|nvidia-(cuda|cudnn|cutlass|nvvm)|sentry-sdk"
    r"|cffi|cryptography|pycparser|fastapi-c|fastar|rich-toolkit|rignore|detect-installer"
)
# FlashAttention 3 serves a Hopper; the other parts belong to other GPUs or to a server in Rust.
_UNUSED = (
    *("bin", "pycountry/locales", "xgrammar/lib/*.a", "mistral_common/data/*.json"),
    *("vllm/third_party/deep_gemm", "vllm/third_party/fmha_sm100", "vllm/vllm-rs"),
    *("vllm/vllm_flash_attn/_vllm_fa2_C.abi3.so", "**/__pycache__", "**/tests"),
)
_COMPILED = ("_C_stable_libtorch", "_moe_C_stable_libtorch", "vllm_flash_attn/_vllm_fa3_C")
# A container of machine code in `.nv_fatbin`: magic, version, size of its header, size of its rest.
_MAGIC, _CONTAINER = struct.pack("<I", 0xBA55ED50), struct.Struct("<IHHQ")
# An entry in it: kind (1: PTX, 2: machine code), its header's size, its own, and the architecture.
_ENTRY, _PTX, _CODE = struct.Struct("<HHIQ12xI"), 1, 2


def main(words: Sequence[str] | None = None) -> int:
    """Command line; see the module's docstring."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.cuda.parts",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("has", type=Path, help="the machine's packages, a line each")
    parser.add_argument("archive", type=Path)
    parser.add_argument("--vllm", default="0.26.0", help="its version")
    parser.add_argument("--date", default="2026-08-01", help="packages as they were on this day")
    parser.add_argument("--compute", type=int, default=90, help="90 is a Hopper's 9.0")
    parser.add_argument("--python", default="3.12", help="that machine's")
    options = parser.parse_args(words)
    present_packages = {
        _plain(line) for line in options.has.read_text().splitlines() if line.strip()
    }
    with tempfile.TemporaryDirectory() as name:
        site = Path(name) / "site"
        _install(site, options.vllm, options.date, options.python, present_packages)
        for pattern in _UNUSED:
            for path in sorted(site.glob(pattern)):
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        for part in _COMPILED:
            path = site / f"vllm/{part}.abi3.so"
            path.write_bytes(pruned_part(path.read_bytes(), options.compute))
        subprocess.run(["strip", "--strip-unneeded", *site.glob("xgrammar/*.so")], check=True)
        packer = "xz -T1 --lzma2=preset=9e,dict=256MiB"
        tar = ["tar", "-C", name, f"--use-compress-program={packer}", "-cf"]
        subprocess.run([*tar, options.archive, "site"], check=True)
    print(f"{options.archive}: {options.archive.stat().st_size / 2**20:.1f} MiB")
    return 0


def _install(site: Path, version: str, date: str, python: str, present_packages: set[str]) -> None:
    """Install vLLM and the requirements that the machine lacks, in their versions of a day."""
    target = ("--python-version", python, "--python-platform", "x86_64-manylinux_2_34")
    result = subprocess.run(
        ["uv", "pip", "compile", "-", *target, "--exclude-newer", date, "--no-annotate",
         "--no-header", "--quiet"],
        input=f"vllm=={version}\n", capture_output=True, text=True, check=True,
    )  # fmt: skip
    lacking = "\n".join(missing(result.stdout.splitlines(), present_packages))
    subprocess.run(
        ["uv", "pip", "install", "--target", site, "--no-deps", "--only-binary", ":all:", *target,
         "--requirement", "-", "--quiet"],
        input=lacking, text=True, check=True,
    )  # fmt: skip


def missing(requirements: Sequence[str], present_packages: set[str]) -> Iterator[str]:
    """The pinned packages that a start needs and a machine lacks."""
    for line in requirements:
        name = _plain(line)
        if name not in present_packages and not _LEFT_OUT.match(name):
            yield line


def _plain(line: str) -> str:
    """The package name in a line, in the form in which package indexes compare names."""
    return re.sub(r"[-_.]+", "-", re.split(r"[=<>\[ ]", line.strip(), maxsplit=1)[0]).lower()


def pruned_part(data: bytes, compute: int) -> bytes:
    """A compiled part with the machine code of other GPUs zeroed.

    Where a container has none for this GPU, its newest PTX that this one can compile stays.
    """
    pruned_data, at = bytearray(data), data.find(_MAGIC)
    while at >= 0:
        _, _, header, size = _CONTAINER.unpack_from(data, at)
        entries = list(_entries(data, at + header, min(at + header + size, len(data))))
        exact = any((kind, made_for) == (_CODE, compute) for kind, made_for, _, _ in entries)
        older = [
            ptx_compute
            for kind, ptx_compute, _, _ in entries
            if kind == _PTX and ptx_compute <= compute
        ]
        kept_entry = (_CODE, compute) if exact else (_PTX, max(older, default=0))
        for kind, made_for, begin, length in entries:
            if (kind, made_for) != kept_entry:
                pruned_data[begin : begin + length] = bytes(length)
        at = data.find(_MAGIC, at + max(header + size, len(_MAGIC)))
    return bytes(pruned_data)


def _entries(data: bytes, at: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """Kind, architecture, beginning and length of each entry of a container."""
    while at + _ENTRY.size <= end:
        kind, _, header, length, made_for = _ENTRY.unpack_from(data, at)
        if header == 0:
            return
        yield kind, made_for, at + header, length
        at += header + length


if __name__ == "__main__":
    raise SystemExit(main())
