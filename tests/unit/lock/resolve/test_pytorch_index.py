"""Pages in the form of PyTorch's own index, which cannot be asked from where this was written.

Recorded from reports about it: pytorch/test-infra#6116 (metadata beside the wheels), pytorch#153469
(wheels for aarch64 without a hash among others that have one), pytorch#181056 (files on another
host than the pages). And real packages for a Spark, from a real index.
"""

import hashlib
import io
import zipfile
from dataclasses import asdict

import pytest
from local_server import Reply, serving

from lockstep.core.errors import InventoryError
from lockstep.inventory.settings import Sources
from lockstep.lock.moving import PythonItem
from lockstep.lock.pins import PythonPin, WheelPin
from lockstep.lock.resolve.http import Network
from lockstep.lock.resolve.python import resolve_python
from lockstep.onhost.core import schema
from tests.unit.lock.resolve.test_python import AARCH64, ANY, X86_64, index, wheel

TORCH = wheel("torch", "2.10.0+cu130", AARCH64, ["sympy>=1.13.3"])
OTHERS = (
    wheel("torch", "2.10.0+cu130", X86_64, ["sympy>=1.13.3"]),
    wheel("torch", "2.9.1+cu130", AARCH64),
)
# What PyPI has under the same version is built without CUDA.
PYPI = index("simple", wheel("torch", "2.10.0", AARCH64), wheel("sympy", "1.14.0", ANY))
PAGE = """<!DOCTYPE html>
<html>
  <body>
    <h1>Links for torch</h1>
{links}
  </body>
</html>
<!--TIMESTAMP 1763734496-->"""


def metadata_of(content: bytes) -> bytes:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        [name] = [name for name in archive.namelist() if name.endswith("/METADATA")]
        return archive.read(name)


@pytest.mark.usefixtures("own_uv")
@pytest.mark.parametrize("has_hash", [True, False])
def test_the_cuda_build_for_the_spark_is_taken_with_its_hash(has_hash: bool):
    """The other wheels have a hash in any case."""
    links, sha256 = [], hashlib.sha256(TORCH[1]).hexdigest()
    with serving({}) as files, serving(PYPI) as pages:
        for name, content in (TORCH, *OTHERS):
            path, metadata = f"/whl/cu130/{name.replace('+', '%2B')}", metadata_of(content)
            files.answers |= {path: Reply(content), f"{path}.metadata": Reply(metadata)}
            digest = hashlib.sha256(content).hexdigest()
            fragment = f"#sha256={digest}" if has_hash or name != TORCH[0] else ""
            core = f"sha256={hashlib.sha256(metadata).hexdigest()}"
            links.append(
                f'    <a href="{files.url}{path}{fragment}" data-dist-info-metadata="{core}" '
                f'data-core-metadata="{core}">{name}</a><br/>'
            )
        page = PAGE.format(links="\n".join(links)).encode()
        pages.answers["/whl/cu130/torch/"] = Reply(page, 200, {"Content-Type": "text/html"})
        own_index = {"torch_index": f"{pages.url}/whl/cu130", "flashinfer_index": None}
        sources = Sources(python_index=f"{pages.url}/simple/", **own_index)
        item = PythonItem("engine", ("torch==2.10.0+cu130",), "aarch64", "3.12")
        pin = resolve_python(item, Network(sources))
    assert pin.versions == {"sympy": "1.14.0", "torch": "2.10.0+cu130"}
    [torch] = [package for package in pin.packages if package.name == "torch"]
    assert torch == WheelPin("torch", "2.10.0+cu130", TORCH[0], sha256)
    # Its metadata is asked for alone: the wheel has gigabytes. Without a hash it is read for that
    # by uv, whole; the other wheels, which a Spark does not take, are left alone.
    read_wheels = [] if has_hash else [f"/whl/cu130/{TORCH[0].replace('+', '%2B')}"]
    assert sorted({path for path in files.paths if path.endswith("64.whl")}) == read_wheels


@pytest.mark.slow
def test_a_released_vllm_is_locked_for_the_spark_with_everything_that_it_needs() -> None:
    """By the package index that this machine's uv asks."""
    requirements = ("torch==2.13.0", "torchvision", "vllm==0.32.0", "mistral_common")
    index = Sources(torch_index=None, flashinfer_index=None)
    pin = resolve_python(PythonItem("engine", requirements, "aarch64", "3.12"), Network(index))
    assert schema.build(PythonPin, asdict(pin), where="the lock", error=InventoryError) == pin
    assert pin.versions["torch"] == "2.13.0" and pin.versions["vllm"] == "0.32.0"
    # CUDA's libraries come along, of the generation that a Spark has.
    assert pin.versions["cuda-toolkit"].startswith("13.")
    assert len(pin.packages) > 150
    for package in pin.packages:
        platform = package.file.removesuffix(".whl").rpartition("-")[2]
        assert platform == "any" or "aarch64" in platform, package.file
