"""Requirements become exact versions, by the real uv against package indexes of our own."""

import hashlib
import io
import itertools
import sys
import zipfile
from collections.abc import Iterable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from local_server import LocalServer, Reply, refused_address, serving

from lockstep.core.errors import InventoryError, ResolveError
from lockstep.inventory.settings import Sources
from lockstep.lock.moving import GitItem, PythonItem
from lockstep.lock.pins import PythonPin, WheelPin
from lockstep.lock.resolve import program
from lockstep.lock.resolve.http import Network
from lockstep.lock.resolve.program import find_uv
from lockstep.lock.resolve.python import EarlierLock, NoSolution, resolve_python
from lockstep.lock.resolve.source_tree import Tree
from lockstep.onhost.core import schema

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("own_uv")]

AARCH64 = "cp312-cp312-manylinux_2_28_aarch64"
X86_64 = "cp312-cp312-manylinux_2_28_x86_64"
ANY = "py3-none-any"
TRIPLE = ("flashinfer-python", "flashinfer-cubin", "flashinfer-jit-cache")


def wheel(name: str, version: str, tag: str = ANY, needs: Iterable[str] = ()) -> tuple[str, bytes]:
    """File name and content of a package that consists of its metadata."""
    stem = f"{name.replace('-', '_')}-{version}"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    metadata += "".join(f"Requires-Dist: {need}\n" for need in needs)
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        tags = f"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: {tag}\n"
        for part, text in {"METADATA": metadata, "WHEEL": tags, "RECORD": ""}.items():
            # The same wheel has the same bytes every time.
            archive.writestr(zipfile.ZipInfo(f"{stem}.dist-info/{part}"), text)
    return f"{stem}-{tag}.whl", content.getvalue()


def index(place: str, *files: tuple[str, bytes], days: Iterable[str] = ()) -> dict[str, Reply]:
    """The addresses of a simple index at ``/place/``; it says when files were uploaded, or not."""
    answers: dict[str, Reply] = {}
    projects: dict[str, list[str]] = {}
    for (file, content), day in itertools.zip_longest(files, days):
        answers[f"/{place}/files/{file.replace('+', '%2B')}"] = Reply(content)
        digest = hashlib.sha256(content).hexdigest()
        upload_time = f' data-upload-time="{day}"' if day else ""
        link = (
            f'<a href="../files/{file.replace("+", "%2B")}#sha256={digest}"{upload_time}>{file}</a>'
        )
        projects.setdefault(file.split("-")[0].replace("_", "-"), []).append(link)
    for project, links in projects.items():
        page = f"<!DOCTYPE html><html><body>{' '.join(links)}</body></html>"
        answers[f"/{place}/{project}/"] = Reply(page.encode(), 200, {"Content-Type": "text/html"})
    return answers


def sources(server: LocalServer) -> Sources:
    return Sources(
        python_index=f"{server.url}/simple/",
        torch_index=f"{server.url}/torch/",
        flashinfer_index=f"{server.url}/flashinfer/",
    )


def wanted_packages(*requirements: str, architecture="aarch64", **more: Any) -> PythonItem:
    return PythonItem("some", requirements, architecture, "3.12", **more)


def resolve(server: LocalServer, item: PythonItem, *trees: Tree, **more: Any) -> tuple[str, ...]:
    pin = resolve_python(item, Network(sources(server)), trees=trees, **more)
    return tuple(f"{wheel.name}=={wheel.version}" for wheel in pin.packages)


def failure(server: LocalServer, item: PythonItem) -> str:
    with pytest.raises(ResolveError) as error:
        resolve(server, item)
    return str(error.value)


PLAIN = index(
    "simple",
    wheel("mistral-common", "1.8.5", needs=["needed"]),
    wheel("mistral-common", "1.9.0rc1"),
    wheel("mistral-common", "1.7.0"),
    wheel("needed", "2.0"),
)


def test_what_has_no_wheel_for_the_spark_does_not_count() -> None:
    files = index(
        "simple",
        wheel("uv", "3.0", X86_64),
        ("uv-2.0.tar.gz", b"never opened"),
        wheel("uv", "1.0", AARCH64),
        wheel("uv", "1.0", X86_64),
        wheel("uv", "1.5", "cp311-cp311-manylinux_2_28_aarch64"),
        wheel("uv", "1.6", "cp312-cp312-manylinux_2_41_aarch64"),
    )
    with serving(files) as server:
        assert resolve(server, wanted_packages("uv")) == ("uv==1.0",)
        assert resolve(server, wanted_packages("uv", architecture="x86_64")) == ("uv==3.0",)


def test_of_several_wheels_that_would_do_the_most_alike_is_taken() -> None:
    alike = wheel("some", "1.0", "cp312-cp312-manylinux_2_34_aarch64")
    other_tags = ("py3-none-any", "cp39-abi3-manylinux2014_aarch64", AARCH64)
    files = index("simple", *(wheel("some", "1.0", tag) for tag in other_tags), alike)
    with serving(files) as server:
        pin = resolve_python(wanted_packages("some"), Network(sources(server)))
    assert [package.file for package in pin.packages] == [alike[0]]


def tree(name: str, *needs: str, builds: tuple[str, ...] = (), day: str = "2026-03-16") -> Tree:
    return Tree(f"https://git.example/{name}", 40 * "a", name, needs, builds, day)


SEVERAL = index(
    "simple",
    wheel("first", "1.0", needs=["vllm>=1", "second"]),
    wheel("second", "1.0"),
    wheel("second", "2.0", needs=["third; extra == 'more'"]),
    wheel("third", "1.0"),
    wheel("vllm", "9.0", needs=["unwanted"]),
    wheel("unwanted", "1.0"),
    wheel("setuptools", "80.0"),
)


def test_what_a_source_tree_needs_is_locked_with_the_rest_but_not_the_tree_itself() -> None:
    fork = tree("vllm", "first", "missing; python_version < '3'", builds=("setuptools",))
    item = wanted_packages("second==2.0", trees=(GitItem(fork.url, "main"),))
    with serving(SEVERAL) as server:
        assert resolve(server, item, fork) == ("first==1.0", "second==2.0")
        pin = resolve_python(item, Network(sources(server)), trees=[fork])
        building = replace(item, requirements=(), build=True)
        assert resolve(server, building, fork) == ("setuptools==80.0",)
    assert pin.trees == {fork.url: fork.commit}


def test_the_inventorys_word_wins_over_a_trees_whose_extras_are_kept() -> None:
    fork = tree("vllm", "second[more]<2")
    item = wanted_packages("second==2.0", trees=(GitItem(fork.url, "main"),))
    with serving(SEVERAL) as server:
        assert resolve(server, item, fork) == ("second==2.0", "third==1.0")


def test_of_an_older_lock_only_what_is_named_moves() -> None:
    item = wanted_packages("first", "mistral_common")
    with serving(SEVERAL | PLAIN) as server:
        older_item = replace(item, requirements=("first", "mistral_common<1.8", "second<2"))
        older = resolve_python(older_item, Network(sources(server)))
        kept_versions = resolve(server, item, earlier_lock=EarlierLock(older))
        one_moves = EarlierLock(older, frozenset({"mistral-common"}))
        moved_versions = resolve(server, item, earlier_lock=one_moves)
        newest = resolve(server, item)
    assert {"mistral-common==1.7.0", "second==1.0"} <= set(kept_versions)
    assert {"mistral-common==1.8.5", "second==1.0"} <= set(moved_versions)
    assert {"mistral-common==1.8.5", "second==2.0"} <= set(newest)


# PyPI's torch 2.10.0 for aarch64 has no CUDA; the build that has is on PyTorch's own index.
TORCH = {
    **index(
        "simple",
        wheel("torch", "2.10.0", AARCH64, ["needed"]),
        wheel("torch", "2.11.0", AARCH64, ["needed"]),
        wheel("torchaudio", "2.10.0", AARCH64, ["torch"]),
        wheel("triton", "3.6.1", AARCH64),
        wheel("torchvision", "0.25.0", AARCH64, ["torch==2.10.0"]),
        wheel("torchvision", "0.26.0", AARCH64, ["torch==2.11.0"]),
        wheel("needed", "2.0"),
    ),
    **index(
        "torch",
        wheel("torch", "2.10.0+cu130", AARCH64, ["needed>=2"]),
        wheel("torchvision", "0.25.0+cu130", AARCH64, ["torch==2.10.0"]),
        wheel("torchvision", "0.26.0+cu130", AARCH64, ["torch==2.11.0"]),
        wheel("torch", "2.10.1+cu130", AARCH64, ["needed", "triton"]),
        wheel("torchaudio", "2.10.0+cu130", AARCH64, ["torch"]),
        wheel("triton", "3.6.0", AARCH64),
        # An index of its own also holds other versions of common packages.
        wheel("needed", "3.0"),
    ),
}


@pytest.mark.parametrize("requirement", ["torch==2.10.0+cu130", "torch"])
def test_torch_comes_from_its_own_index_and_torchvision_fits_it(requirement: str) -> None:
    with serving(TORCH) as server:
        versions = resolve(server, wanted_packages(requirement, "torchvision"))
    assert versions == ("needed==2.0", "torch==2.10.0+cu130", "torchvision==0.25.0+cu130")


def test_a_release_gets_the_builds_with_cuda_of_what_nobody_asks_for_by_name():
    """As torchaudio and triton."""
    release_index = index("simple", wheel("vllm", "1.0", AARCH64, ["torchaudio==2.10.0"]))
    with serving(TORCH | release_index) as server:
        assert resolve(server, wanted_packages("torch==2.10.1", "vllm")) == (
            *("needed==2.0", "torch==2.10.1+cu130", "torchaudio==2.10.0+cu130"),
            *("triton==3.6.0", "vllm==1.0"),
        )


# Reports about PyTorch's own index, which cannot be asked from where this was written, show such
# pages: pytorch/test-infra#6116 (metadata beside the wheels), pytorch#153469 (wheels for aarch64
# without a hash among others that have one), pytorch#181056 (files on another host than the pages).
PAGE = """<!DOCTYPE html>
<html>
  <body>
    <h1>Links for torch</h1>
{links}
  </body>
</html>
<!--TIMESTAMP 1763734496-->"""


@pytest.mark.parametrize("has_hash", [True, False])
def test_the_cuda_build_for_the_spark_is_taken_with_its_hash(has_hash: bool):
    """The other wheels have a hash in any case."""
    wheels = [wheel("torch", "2.10.0+cu130", tag, ["needed>=2"]) for tag in (AARCH64, X86_64)]
    links = []
    with serving({}) as files, serving(TORCH) as server:
        for name, content in wheels:
            with zipfile.ZipFile(io.BytesIO(content)) as archive:
                metadata = archive.read(archive.namelist()[0])
            path = f"/whl/{name.replace('+', '%2B')}"
            files.answers |= {path: Reply(content), f"{path}.metadata": Reply(metadata)}
            digest = hashlib.sha256(content).hexdigest()
            fragment = f"#sha256={digest}" if has_hash or name != wheels[0][0] else ""
            core = f"sha256={hashlib.sha256(metadata).hexdigest()}"
            links.append(
                f'    <a href="{files.url}{path}{fragment}" data-dist-info-metadata="{core}" '
                f'data-core-metadata="{core}">{name}</a><br/>'
            )
        page = PAGE.format(links="\n".join(links)).encode()
        server.answers["/torch/torch/"] = Reply(page, 200, {"Content-Type": "text/html"})
        pin = resolve_python(wanted_packages("torch==2.10.0+cu130"), Network(sources(server)))
    assert pin.versions == {"needed": "2.0", "torch": "2.10.0+cu130"}
    [torch] = [package for package in pin.packages if package.name == "torch"]
    file, content = wheels[0]
    sha256 = hashlib.sha256(content).hexdigest()
    assert torch == WheelPin("torch", "2.10.0+cu130", file, sha256)
    # Its metadata is asked for alone: the wheel has gigabytes. Without a hash it is read for that
    # by uv, whole; the other wheels, which a Spark does not take, are left alone.
    read_wheels = [] if has_hash else [f"/whl/{file.replace('+', '%2B')}"]
    assert sorted({path for path in files.paths if path.endswith("64.whl")}) == read_wheels


# PyTorch's index does not say when a file was uploaded.
DATED = {
    **TORCH,
    **index(
        "simple",
        *(wheel("needed", "2.0"), wheel("some", "1.0"), wheel("some", "2.0")),
        days=("2026-03-16T20:00:00Z", "2026-03-16T20:00:00Z", "2026-03-18T00:00:00Z"),
    ),
}


@pytest.mark.parametrize(
    ("until", "some", "version"),
    [
        ("fork", "some", "1.0"),
        ("2026-03-18", "some", "2.0"),
        # What the inventory asks for in one version may be newer.
        ("2026-03-17", "some==2.0", "2.0"),
    ],
)
def test_what_was_uploaded_after_the_day_does_not_count(until: str, some: str, version: str):
    trees = (GitItem("u", "main"),)
    item = wanted_packages("torch==2.10.0", some, trees=trees, exclude_newer=until)
    with serving(DATED) as server:
        pin = resolve_python(item, Network(sources(server)), trees=[tree("vllm", "some")])
    assert pin.versions == {"needed": "2.0", "some": version, "torch": "2.10.0+cu130"}
    assert pin.exclude_newer == until


def test_an_index_that_knows_no_days_is_named_with_the_way_out():
    item = wanted_packages("some", exclude_newer="2026-03-17")
    with serving(index("simple", wheel("some", "1.0"))) as server:
        message = failure(server, item)
    assert "no versions exist that fit" in message
    assert "or to None where the index does not say when a file was uploaded." in message


def test_a_torch_that_only_the_package_index_has_is_refused():
    with serving(TORCH) as server:
        message = failure(server, wanted_packages("torch==2.11.0"))
    assert message.startswith("environment some for aarch64, Python 3.12: no versions exist that")
    assert "there is no version of torch==2.11.0" in message


def flashinfer(python: str, cubin: str, cache: str) -> dict[str, Reply]:
    return {
        **index(
            "simple",
            *(wheel(TRIPLE[0], version) for version in python.split()),
            *(wheel(TRIPLE[1], version) for version in cubin.split()),
        ),
        **index("flashinfer", *(wheel(TRIPLE[2], version, AARCH64) for version in cache.split())),
    }


@pytest.mark.parametrize(
    ("python_", "cubin", "cache", "common_version"),
    [
        # As on 2026-11-21: the newest flashinfer-python has no flashinfer-cubin.
        ("0.6.13 0.7.0.post1 0.7.2.post1", "0.6.12 0.6.13", "0.6.13+cu130 0.7.0+cu130", "0.6.13"),
        ("0.6.12 0.6.13", "0.6.12 0.6.13.post1", "0.6.12+cu130 0.6.13+cu130", "0.6.12"),
    ],
)
def test_flashinfer_is_the_newest_version_that_all_three_parts_have(
    python_: str, cubin: str, cache: str, common_version: str
):
    with serving(flashinfer(python_, cubin, cache)) as server:
        exact = resolve(server, wanted_packages(*TRIPLE, agree=TRIPLE))
    versions = (common_version, f"{common_version}+cu130", common_version)
    assert exact == tuple(f"{name}=={v}" for name, v in zip(sorted(TRIPLE), versions, strict=True))


def test_a_triple_without_a_common_version_is_refused_with_the_newest_of_each() -> None:
    with serving(flashinfer("0.7.0", "0.6.13", "0.6.12+cu130")) as server:
        message = failure(server, wanted_packages(*TRIPLE, agree=TRIPLE))
    best = "flashinfer-python 0.7.0, flashinfer-cubin 0.6.13, flashinfer-jit-cache 0.6.12+cu130"
    assert f"no version exists in all parts that must agree; found at best {best}" in message


def test_an_index_that_is_not_there_is_named_without_its_password(monkeypatch):
    monkeypatch.setenv("UV_HTTP_RETRIES", "0")
    site_sources = Sources(python_index=f"http://user:secret@{refused_address()}/simple/")
    with pytest.raises(ResolveError, match="12: a package index cannot be asked; found ") as error:
        resolve_python(wanted_packages("uv"), Network(site_sources))
    assert not isinstance(error.value, NoSolution)
    assert "secret" not in str(error.value)


def test_the_passwords_of_an_index_are_on_no_command_line(monkeypatch: pytest.MonkeyPatch) -> None:
    commands: list[list[str]] = []
    run = program.run

    def spy(argv: list[str], **more: Any) -> program.Result:
        commands.append(argv)
        return run(argv, **more)

    monkeypatch.setattr(program, "run", spy)
    with serving(PLAIN) as server:
        site_sources = Sources(python_index=server.url.replace("//", "//user:secret@") + "/simple/")
        pin = resolve_python(wanted_packages("mistral_common"), Network(site_sources))
    assert pin.versions["mistral-common"] == "1.8.5"
    assert server.requests[-1].headers["Authorization"].startswith("Basic ")
    assert not [word for argv in commands for word in argv if "secret" in word]


def test_a_machine_without_uv_is_told_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ResolveError, match="uv was not found"):
        find_uv()


def test_a_released_vllm_is_locked_for_the_spark_with_everything_that_it_needs() -> None:
    """By the package index that this machine's uv asks."""
    requirements = ("torch==2.13.0", "torchvision", "vllm==0.32.0", "mistral_common")
    pypi = Sources(torch_index=None, flashinfer_index=None)
    pin = resolve_python(PythonItem("engine", requirements, "aarch64", "3.12"), Network(pypi))
    assert schema.build(PythonPin, asdict(pin), where="the lock", error=InventoryError) == pin
    assert pin.versions["torch"] == "2.13.0" and pin.versions["vllm"] == "0.32.0"
    # CUDA's libraries come along, of the generation that a Spark has.
    assert pin.versions["cuda-toolkit"].startswith("13.")
    assert len(pin.packages) > 150
    for package in pin.packages:
        platform = package.file.removesuffix(".whl").rpartition("-")[2]
        assert platform == "any" or "aarch64" in platform, package.file
