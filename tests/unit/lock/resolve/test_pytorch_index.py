"""Pages in the form of PyTorch's own index, which cannot be asked from where this was written.

Recorded from reports about it: pytorch/test-infra#6116 (metadata beside the wheels), pytorch#153469
(wheels for aarch64 without a hash among others that have one), pytorch#181056 (files on another
host than the pages).
"""

from __future__ import annotations

import hashlib
import io
import os
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from local_server import LocalServer, Reply, serving

from lockstep.inventory.settings import Sources
from lockstep.lock.moving import PythonItem
from lockstep.lock.pins import PythonPin, WheelPin
from lockstep.lock.resolve.http import Network
from lockstep.lock.resolve.python import resolve_python
from lockstep.onhost.environment import wheel_store
from lockstep.onhost.fetch import peer_client
from tests.unit.lock.resolve.test_python import ANY, index, wheel

AARCH64 = "cp312-cp312-manylinux_2_28_aarch64"
X86_64 = "cp312-cp312-manylinux_2_28_x86_64"
TORCH = wheel("torch", "2.10.0+cu130", AARCH64, ["sympy>=1.13.3"])
OTHERS = (
    wheel("torch", "2.10.0+cu130", X86_64, ["sympy>=1.13.3"]),
    wheel("torch", "2.9.1+cu130", AARCH64),
)
# What PyPI has under the same version is built without CUDA.
PYPI = index("simple", wheel("torch", "2.10.0", AARCH64), wheel("sympy", "1.14.0", ANY))
ITEM = PythonItem("engine", ("torch==2.10.0+cu130",), "aarch64", "3.12")
pytestmark = pytest.mark.usefixtures("own_uv")


@pytest.fixture
def files() -> Iterator[LocalServer]:
    """The host of the files, with their metadata beside them."""
    with serving({}) as server:
        yield server


def site(files: LocalServer, *, has_hashes: bool, host: str = "") -> LocalServer:
    """Give `files` the wheels and the pages; only one of them has no hash where not `hashed`."""
    links = []
    for name, content in (TORCH, *OTHERS):
        path = f"/whl/cu130/{name.replace('+', '%2B')}"
        metadata = metadata_of(content)
        files.answers |= {path: Reply(content), f"{path}.metadata": Reply(metadata)}
        digest = hashlib.sha256(content).hexdigest()
        fragment = f"#sha256={digest}" if has_hashes or name != TORCH[0] else ""
        core = f"sha256={hashlib.sha256(metadata).hexdigest()}"
        links.append(
            f'    <a href="{host}{path}{fragment}" data-dist-info-metadata="{core}" '
            f'data-core-metadata="{core}">{name}</a><br/>'
        )
    head = "<!DOCTYPE html>\n<html>\n  <body>\n    <h1>Links for torch</h1>\n"
    page = head + "\n".join(links) + "\n  </body>\n</html>\n<!--TIMESTAMP 1763734496-->"
    html = {"Content-Type": "text/html"}
    files.answers |= {**PYPI, "/whl/cu130/torch/": Reply(page.encode(), 200, html)}
    return files


def metadata_of(content: bytes) -> bytes:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        [name] = [name for name in archive.namelist() if name.endswith("/METADATA")]
        return archive.read(name)


def resolve(server: LocalServer) -> PythonPin:
    sources = Sources(
        python_index=f"{server.url}/simple/",
        torch_index=f"{server.url}/whl/cu130",
        flashinfer_index=None,
    )
    return resolve_python(ITEM, Network(sources))


@pytest.mark.parametrize("has_hashes", [True, False])
def test_the_cuda_build_for_the_spark_is_taken_with_its_hash(
    files: LocalServer, has_hashes: bool
) -> None:
    pin = resolve(site(files, has_hashes=has_hashes))
    assert pin.versions == {"sympy": "1.14.0", "torch": "2.10.0+cu130"}
    [torch] = [package for package in pin.packages if package.name == "torch"]
    name, content = TORCH
    sha256 = hashlib.sha256(content).hexdigest()
    assert torch == WheelPin("torch", "2.10.0+cu130", name, sha256)
    # Its metadata is asked for alone: the wheel has gigabytes. Without a hash it is read for that
    # by uv, whole; the other wheels, which a Spark does not take, are left alone.
    read_wheels = [] if has_hashes else [f"/whl/cu130/{name.replace('+', '%2B')}"]
    assert sorted({path for path in files.paths if path.endswith("64.whl")}) == read_wheels


@pytest.mark.slow
@pytest.mark.parametrize("has_hashes", [True, False])
def test_the_host_fetches_the_file_from_another_server_than_the_page(
    files: LocalServer, has_hashes: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, content = TORCH
    sha256 = hashlib.sha256(content).hexdigest()
    # As pip of a Spark.
    variables = {"CONFIG_FILE": os.devnull, "PYTHON_VERSION": "3.12"}
    for key, value in {**variables, "PLATFORM": "manylinux_2_28_aarch64"}.items():
        monkeypatch.setenv(f"PIP_{key}", value)
    with serving({}) as pages:
        pages.answers |= site(files, has_hashes=has_hashes, host=files.url).answers
        more = [f"{pages.url}/whl/cu130"]
        servers = wheel_store.pip_index_variables(f"{pages.url}/simple", more, [files.url])
        store = wheel_store.WheelStore(
            tmp_path, wheel_store.Pip(sys.executable, servers), peer_client.Copier(None)
        )
        store.bring_wheels(
            "torch", [wheel_store.Wheel("torch", "2.10.0+cu130", name, sha256, None)]
        )
    assert (tmp_path / sha256).read_bytes() == content
