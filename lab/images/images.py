"""Builds the lab's images and fills a registry with them, without a container engine."""

from __future__ import annotations

import platform
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from lab.core import debian
from lab.core.cache import Report, build_once, fingerprint
from lab.core.errors import LabError
from lab.images.image_content import CONTENT, LLAMA, TAGS, images
from lab.images.oci import Layer, layer_of_tar, write_layout
from lab.images.registry import running_registry

_HERE = Path(__file__).parent
#: Files that nothing in the images reads.
_UNUSED = (
    "/usr/share/doc/*",
    "/usr/share/man/*",
    "/usr/share/locale/*",
    "/usr/share/perl*",
    "/usr/lib/*/gconv/*",
)


@dataclass(frozen=True)
class Base:
    """The first layer of an image: packages of a Debian suite, less some files."""

    suite: str
    packages: tuple[str, ...]
    unused_patterns: tuple[str, ...] = ()
    #: Commands that are run on the unpacked files.
    hooks: tuple[str, ...] = ()


_SHELL = ("dash", "coreutils", "libc-bin", "base-files", "base-passwd")
#: Program of the image → its base; the programs of all other images are Python.
_BASES = {LLAMA: Base("testing", ("llama.cpp-tools", *_SHELL), ("/usr/share/llama.cpp/*",))}
#: Compiled here, or each container compiles its imports: 0.2 s of processor time per start.
_COMPILED = (
    'chroot "$1" python3 -m compileall -qq --invalidation-mode unchecked-hash '
    "-x '/(test|idlelib|distutils|ensurepip|pydoc_data)/' /usr/lib/python3.11"
)
_PYTHON = Base(
    "bookworm",
    ("python3", "python3-jinja2", *_SHELL),
    ("/usr/lib/python3.11/lib2to3/*",),
    (_COMPILED,),
)


def image_registry(cache: Path, report: Report) -> Path:
    """The storage folder of a registry that holds every tag, about 50 MB."""
    bases = image_bases(cache, report)
    sources = [_HERE / f"{name}.py" for name in ("images", "image_content", "oci")]
    programs = (CONTENT / "standin", CONTENT / "openwebui")
    name = fingerprint((*(base.name for base in bases.values()), *sources, *programs))

    def build(folder: Path) -> None:
        layers = {base: _layer(folder) for base, folder in bases.items()}
        with (
            tempfile.TemporaryDirectory(dir=cache) as scratch,
            running_registry(folder, Path(scratch)) as address,
        ):
            for number, tag in enumerate(TAGS):
                report(f"images: {tag.repository}:{tag.tag} ({number + 1} of {len(TAGS)})")
                layout = Path(scratch) / str(number)
                layer = layers[_BASES.get(tag.program, _PYTHON)]
                write_layout(layout, images(tag, layer), has_index=not tag.foreign)
                push(layout, f"{address}/{tag.repository}:{tag.tag}")

    return build_once(cache / f"registry-{name}", build, report, "container images")


def image_bases(cache: Path, report: Report) -> dict[Base, Path]:
    """The folders with the layers that images begin with: Python, or an engine, and a shell."""
    return {base: _folder(cache, base, report) for base in (_PYTHON, *_BASES.values())}


def _folder(cache: Path, base: Base, report: Report) -> Path:
    parts = (
        base.suite,
        *base.packages,
        *_UNUSED,
        *base.unused_patterns,
        *base.hooks,
        platform.machine(),
    )
    name = fingerprint(parts)

    def build(folder: Path) -> None:
        tar = folder / "layer.tar"
        _run(_mmdebstrap(base, tar))
        layer = layer_of_tar(tar.read_bytes())
        (folder / "layer.tar.gz").write_bytes(layer.data)
        (folder / "diff-id").write_text(layer.diff_id)
        tar.unlink()

    return build_once(cache / f"image-base-{name}", build, report, f"base of images ({base.suite})")


def _layer(folder: Path) -> Layer:
    return Layer((folder / "layer.tar.gz").read_bytes(), (folder / "diff-id").read_text().strip())


def _mmdebstrap(base: Base, target: Path) -> list[str]:
    options = [f"--aptopt={setting}" for setting in debian.kept_settings()]
    options += [
        f"--dpkgopt=path-exclude={pattern}" for pattern in (*_UNUSED, *base.unused_patterns)
    ]
    options += [f"--extract-hook={hook}" for hook in base.hooks]
    return [
        "mmdebstrap",
        "--quiet",
        "--mode=root",
        "--variant=extract",
        f"--include={','.join(base.packages)}",
        *options,
        base.suite,
        str(target),
        f"deb {debian.mirror()} {base.suite} main",
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
