"""Builds the lab's images and fills a registry with them, without a container engine."""

from __future__ import annotations

import platform
import subprocess
import tempfile
from pathlib import Path

from lab import debian
from lab.errors import LabError
from lab.services.cache import Report, built, fingerprint
from lab.services.image_content import CONTENT, TAGS, images
from lab.services.oci import Layer, layer_of_tar, write_layout
from lab.services.registry import running_registry

_HERE = Path(__file__).parent
_SUITE = "bookworm"
_PACKAGES = ("python3", "dash", "coreutils", "libc-bin", "base-files", "base-passwd")
#: Nothing in the images reads these.
_UNUSED = (
    "/usr/share/doc/*",
    "/usr/share/man/*",
    "/usr/share/locale/*",
    "/usr/share/perl*",
    "/usr/lib/python3.11/lib2to3/*",
    "/usr/lib/*/gconv/*",
)


def image_registry(cache: Path, report: Report) -> Path:
    """The storage folder of a registry that holds every tag, about 40 MB."""
    base = image_base(cache, report)
    sources = [_HERE / f"{name}.py" for name in ("images", "image_content", "oci")]
    programs = (CONTENT / "standin", CONTENT / "openwebui")
    name = fingerprint((base.name, *sources, *programs))

    def build(folder: Path) -> None:
        layer = Layer((base / "layer.tar.gz").read_bytes(), (base / "diff-id").read_text().strip())
        with (
            tempfile.TemporaryDirectory(dir=cache) as scratch,
            running_registry(folder, Path(scratch)) as address,
        ):
            for number, tag in enumerate(TAGS):
                report(f"images: {tag.repository}:{tag.tag} ({number + 1} of {len(TAGS)})")
                layout = Path(scratch) / str(number)
                write_layout(layout, images(tag, layer), indexed=not tag.foreign)
                push(layout, f"{address}/{tag.repository}:{tag.tag}")

    return built(cache / f"registry-{name}", build, report, "container images")


def image_base(cache: Path, report: Report) -> Path:
    """The folder with the layer that all images share: Debian's Python and a shell."""
    name = fingerprint((_SUITE, *_PACKAGES, *_UNUSED, platform.machine()))

    def build(folder: Path) -> None:
        tar = folder / "layer.tar"
        _run(_mmdebstrap(tar))
        layer = layer_of_tar(tar.read_bytes())
        (folder / "layer.tar.gz").write_bytes(layer.data)
        (folder / "diff-id").write_text(layer.diff_id)
        tar.unlink()

    return built(cache / f"image-base-{name}", build, report, "base of the images")


def _mmdebstrap(target: Path) -> list[str]:
    options = [f"--aptopt={setting}" for setting in debian.kept_settings()]
    options += [f"--dpkgopt=path-exclude={pattern}" for pattern in _UNUSED]
    return [
        "mmdebstrap",
        "--quiet",
        "--mode=root",
        "--variant=extract",
        f"--include={','.join(_PACKAGES)}",
        *options,
        _SUITE,
        str(target),
        f"deb {debian.mirror()} {_SUITE} main",
    ]


def push(layout: Path, reference: str) -> None:
    """Copy an OCI layout, all architectures, to ``address/repository:tag`` over plain HTTP."""
    flags = ("--all", "--preserve-digests", "--dest-tls-verify=false", "--insecure-policy")
    _run(["skopeo", "copy", "--quiet", *flags, f"oci:{layout}", f"docker://{reference}"])


def _run(command: list[str]) -> None:
    try:
        result = subprocess.run(command, capture_output=True, text=True)
    except FileNotFoundError:
        raise LabError(
            f"{command[0]} is not installed", f"Install it: apt-get install {command[0]}"
        ) from None
    if result.returncode:
        lines = (result.stderr or result.stdout).strip().splitlines()
        raise LabError(
            f"{command[0]} failed with exit code {result.returncode}: {' / '.join(lines[-3:])}",
            "Check this machine's apt (apt-get update) and free disk, then run it again.",
        )
