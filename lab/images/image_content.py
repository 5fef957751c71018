"""The container images of the lab's registry: their content and their names."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from lab.core.errors import LabError
from lab.images.oci import ARCHITECTURES, Entry, Image, Layer, layer_of_files

CONTENT = Path(__file__).parent.parent / "content"
#: The one program that is no stand-in: Debian's build for the processor.
LLAMA = "llama.cpp"
_PACKAGES = "usr/lib/python3/dist-packages"
_LABEL = {"io.github.lockstep.standin": "true"}
OTHER = "not runnable: the programs of this stand-in are for another architecture"


@dataclass(frozen=True)
class Tag:
    """One tag of a repository: which program of which version, and for which architectures."""

    repository: str
    tag: str
    program: str
    version: str
    #: Only for an architecture that the machine does not have, as one manifest without an index.
    foreign: bool = False
    #: Variables of the image: knobs of the stand-in that are turned in it.
    knobs: tuple[str, ...] = ()
    #: CUDA version of the base image; a stand-in Spark's driver takes 13.0.
    cuda: str = "13.0.3"
    entrypoint: tuple[str, ...] = ()


# NVIDIA's base images have such an entry point: it starts the command that it gets.
_WRAPPER = "/opt/nvidia/nvidia_entrypoint.sh"

#: The newest version under each moving tag, an older one beside it for tests of updates.
TAGS = (
    Tag("spark-arena/dgx-vllm-eugr-nightly", "latest", "vllm", "0.32.0", cuda="13.0.2"),
    # The default image, named by its build day; it plays the version whose parser the lab has.
    Tag("spark-arena/dgx-vllm-eugr-nightly", "2026082102", "vllm", "0.32.0"),
    Tag("spark-arena/dgx-vllm-eugr-nightly", "2026110101", "vllm", "0.31.0"),
    Tag("spark-arena/dgx-vllm-eugr-nightly", "arm64-only", "vllm", "0.32.0", foreign=True),
    Tag("lmsysorg/sglang", "latest", "sglang", "0.5.23", entrypoint=(_WRAPPER,)),
    Tag("lmsysorg/sglang", "v0.5.15.post1-cu130", "sglang", "0.5.15.post1"),
    Tag("lmsysorg/sglang", "v0.5.22", "sglang", "0.5.22"),
    # The image has an entry point that starts its engine, as vLLM's own image has.
    Tag(
        "vllm/vllm-openai",
        "v0.28.0",
        "vllm",
        "0.28.0",
        entrypoint=("vllm", "serve"),
    ),
    Tag("lmsysorg/sglang", "v0.5.23-cu134", "sglang", "0.5.23", cuda="13.4.1"),
    Tag("open-webui/open-webui", "v0.12.4", "open-webui", "0.12.4"),
    Tag("open-webui/open-webui", "v0.12.3", "open-webui", "0.12.3"),
    # An update that migrates the database and never serves.
    Tag(
        "open-webui/open-webui",
        "broken",
        "open-webui",
        "0.13.0",
        knobs=("STANDIN_BROKEN_UPDATE=1",),
    ),
    # An update whose parser accepts the recipe, and which never serves.
    Tag(
        "spark-arena/dgx-vllm-eugr-nightly",
        "broken",
        "vllm",
        "0.33.0",
        knobs=("STANDIN_CRASH_WHILE_LOADING=1",),
    ),
    Tag("scitrera/dgx-spark-llama-cpp", "b8076-cu131", LLAMA, "debian-testing"),
)


def architectures() -> tuple[str, str]:
    """The architecture of this machine and another one, in the words of container engines."""
    own = ARCHITECTURES.get(platform.machine())
    if own is None:
        raise LabError(
            f"the lab's images are for {' and '.join(ARCHITECTURES)}, found {platform.machine()}",
            "Run the lab on a machine of one of these architectures.",
        )
    return own, "amd64" if own == "arm64" else "arm64"


def images(tag: Tag, base: Layer) -> tuple[Image, ...]:
    """One image per architecture; that of a foreign architecture has no base and cannot run."""
    own, foreign_architecture = architectures()
    layer = layer_of_files([*program_files(tag)])
    foreign = _image(
        tag, foreign_architecture, (layer,), _LABEL | {"io.github.lockstep.note": OTHER}
    )
    if tag.foreign:
        return (foreign,)
    return (_image(tag, own, (base, layer), _LABEL), foreign)


def _image(tag: Tag, architecture: str, layers: tuple[Layer, ...], labels: dict[str, str]) -> Image:
    labels = labels | {"org.opencontainers.image.version": tag.version}
    path = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    if tag.program == "open-webui":
        return Image(
            architecture,
            layers,
            command=("python3", "/app/backend/start.py"),
            environment=(path, "ENV=prod", "PORT=8080", *tag.knobs),
            working_directory="/app/backend",
            ports=("8080/tcp",),
            labels=labels,
        )
    return Image(
        architecture,
        layers,
        command=("/bin/sh",),
        entrypoint=tag.entrypoint,
        environment=(path, "PYTHONUNBUFFERED=1", f"CUDA_VERSION={tag.cuda}", *tag.knobs),
        working_directory="/workspace",
        labels=labels,
    )


def program_files(tag: Tag) -> Iterator[Entry]:
    """The files of the layer that makes the base into this image."""
    yield Entry("etc/passwd", b"root:x:0:0:root:/root:/bin/sh\n")
    yield Entry("etc/group", b"root:x:0:\n")
    yield Entry("etc/lockstep-standin", f"{tag.program} {tag.version}\n".encode())
    if tag.program == LLAMA:
        return
    if _WRAPPER in tag.entrypoint:
        yield Entry(_WRAPPER[1:], b'#!/bin/sh\nexec "$@"\n', 0o755)
    yield Entry("usr/local/bin/python", target="/usr/bin/python3")
    metadata = f"Metadata-Version: 2.1\nName: {tag.program}\nVersion: {tag.version}\n"
    info = f"{tag.program.replace('-', '_')}-{tag.version}.dist-info"
    yield Entry(f"{_PACKAGES}/{info}/METADATA", metadata.encode())
    if tag.program == "open-webui":
        yield from _package("openwebui")
        start = b"from openwebui.start import main\n\nmain()\n"
        yield Entry("app/backend/start.py", start)
        return
    yield from _package("standin")
    yield Entry(f"usr/local/bin/{tag.program}", _script(tag.program), 0o755)
    yield from _modules(tag)


#: Module of the real engine → the names of `standin.parsers` that stand in for its contents.
_ASKED = {
    "vllm": {
        "entrypoints/cli/serve": "cmd_init",
        "envs": "Variables",
        "utils/argparse_utils": "Parser as FlexibleArgumentParser",
    },
    "sglang": {"srt/server_args": "ServerArgs"},
}


def _modules(tag: Tag) -> Iterator[Entry]:
    """The package of the real engine, as far as recipes are checked by it."""
    package = f"{_PACKAGES}/{tag.program}"
    yield Entry(f"{package}/__init__.py", f'__version__ = "{tag.version}"\n'.encode())
    for module, name in _ASKED[tag.program].items():
        text = f"from standin.parsers import {name}\n"
        if name == "Variables":
            text += "\nenvironment_variables = Variables()\n"
        yield Entry(f"{package}/{module}.py", text.encode())
    if tag.program == "sglang":
        yield Entry(f"{package}/launch_server.py", _script("sglang_module"))


def _script(function: str) -> bytes:
    text = f"#!/usr/bin/python3\nimport sys\n\nfrom standin.main import {function}\n\n"
    return f"{text}sys.exit({function}())\n".encode()


def _package(name: str) -> Iterator[Entry]:
    for path in sorted((CONTENT / name).glob("*.*")):
        yield Entry(f"{_PACKAGES}/{name}/{path.name}", path.read_bytes())
