"""The lock: read strictly, written whole, exact about what it lacks; references of images."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from a_spark import wheel

from lockstep.core.errors import InventoryError, ResolveError
from lockstep.inventory.settings import Settings, Sources
from lockstep.lock import image_reference as images
from lockstep.lock import lockfile
from lockstep.lock.image_reference import Reference
from lockstep.lock.lockfile import deployed_path, load, previous_path, record_deployed, save
from lockstep.lock.moving import CheckpointItem, GitItem, ImageItem, PrecompiledItem, PythonItem
from lockstep.lock.packages import mirror_url, tool_requirements
from lockstep.lock.pins import (
    CheckpointPin,
    FilePin,
    GitPin,
    ImagePin,
    Pins,
    PrecompiledPin,
    PythonPin,
    WheelPin,
    missing,
)

COMMIT = "0123456789abcdef0123456789abcdef01234567"
# All digits: YAML would read it as a number if it were not quoted.
NUMBER_LIKE = "1" * 40
DIGEST = "sha256:" + "ab" * 32
URL = "https://example.com/vllm.git"
UPSTREAM = "https://example.com/upstream.git"
WHEEL = f"{COMMIT}/vllm-0.19.1.dev5+g012345678.cu130-cp38-abi3-manylinux_2_35_aarch64.whl"

COMMON = replace(wheel("mistral-common", "1.13.1"), sha256="ef" * 32, size=10)
NUMPY = WheelPin("numpy", "2.0", "numpy-2.0-cp312-cp312-linux_aarch64.whl", "ab" * 32)
PYTHON = PythonItem("tools", ("mistral_common",), "aarch64", "3.12")
GIT = GitItem(URL, "main")
TREE = PythonItem("engine", ("torch==2.10.0+cu130", "torchvision"), "aarch64", "3.12", trees=(GIT,))
COMPILED = PrecompiledItem(GIT, UPSTREAM, "aarch64", "cu130")
IMAGE = ImageItem("ghcr.io/a/b:main", "aarch64")
MODEL = CheckpointItem("org/name", "main")
BORROWED = CheckpointItem("org/base", "v1", ("config.json",))


def python_pin(item: PythonItem, *wheels: WheelPin, **more: Any) -> PythonPin:
    return PythonPin(item.requirements, "aarch64", "3.12", wheels, resolved="2026-11-21", **more)


FILES = (FilePin("a.bin", 10, "cd" * 32), FilePin("b/empty", 0, None, COMMIT))
PINS = Pins(
    python={
        "tools": python_pin(PYTHON, COMMON, NUMPY),
        "engine": python_pin(
            TREE,
            wheel("torch", "2.10.0+cu130"),
            wheel("torchvision", "0.25.0+cu130"),
            trees={URL: NUMBER_LIKE},
        ),
    },
    git={URL: GitPin("main", NUMBER_LIKE, "2026-11-21")},
    precompiled={
        URL: PrecompiledPin(
            NUMBER_LIKE, UPSTREAM, COMMIT, "aarch64", "cu130", WHEEL, "cd" * 32, 9, "2026-11-21"
        )
    },
    images={"ghcr.io/a/b:main": ImagePin(DIGEST, "aarch64", 12, "2026-11-21")},
    checkpoints={
        "org/name": CheckpointPin("main", COMMIT, FILES, resolved="2026-11-21"),
        "org/base": CheckpointPin("v1", COMMIT, (FilePin("config.json", 2),), partial=True),
    },
)

#: The lock file of these, as it is written.
TEXT = Path(__file__).with_name("written.lock.yaml").read_text()


def test_the_record_is_written_sorted_and_read_back_the_same(tmp_path: Path) -> None:
    path = tmp_path / "pins" / "lab.lock.yaml"
    save(path, PINS)
    assert path.read_text() == TEXT
    assert load(path) == PINS
    # Any name survives the file.
    names = ("a: b", "# c", "null", "1e5", "ü", "- d", "'", '"', "{e}", "~", "&f", "*g", "!h")
    odd_pins = Pins(git={name: GitPin(name, COMMIT) for name in names})
    save(path, odd_pins)
    assert load(path) == odd_pins


def test_a_record_may_be_absent_or_lack_entries(tmp_path: Path) -> None:
    path = tmp_path / "lab.lock.yaml"
    assert load(path) == Pins()
    path.write_text("version: 1\npython:\ngit: {}\n")
    assert load(path) == Pins()
    # What an earlier lock says of Debian's packages is left out.
    path.write_text(TEXT + "apt:\n  aarch64:\n    packages:\n    - {name: jq, version: 1.7.1-3}\n")
    assert load(path) == PINS
    save(path, load(path))
    assert path.read_text() == TEXT


def wheel_line(file: str, name: str = "torch", sha256: str = "ab" * 32) -> str:
    line = f"{{name: {name}, version: '2.0', file: {file}, sha256: {sha256}}}"
    environment = f"asked: [uv], architecture: aarch64, python: '3.12', packages: [{line}]"
    return f"python:\n  uv: {{{environment}}}"


def compiled_line(path: str) -> str:
    entries = f"tree: {COMMIT}, commit: {COMMIT}, path: {path}, sha256: {'ab' * 32}, size: 1"
    return f"precompiled:\n  u: {{{entries}, upstream: u, architecture: aarch64, variant: cu130}}"


def model_line(file: str) -> str:
    return f"checkpoints:\n  m: {{asked: main, commit: {COMMIT}, files: [{file}]}}"


TORCH_WHEEL = "torch-2.0-py3-none-any.whl"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("gti: {}", "unknown key 'gti'. Did you mean 'git'? Allowed: checkpoints, git,"),
        ("git:\n  u: {branch: b, commit: abc}", ":3: git.u.commit is not a commit; found 'abc'"),
        (f"git:\n  u: {{branch: b, commit: {NUMBER_LIKE}}}", "git.u.commit must be text; found"),
        ("images:\n  i: {digest: abc, architecture: aarch64, size: 1}", "i.digest is not a digest"),
        (wheel_line(TORCH_WHEEL, "torchvision"), "torchvision has the file of another package or"),
        (wheel_line("torch-2.0.tar.gz"), "python.uv.packages.torch.file is not the name of"),
        (wheel_line(TORCH_WHEEL, sha256="ab"), "python.uv.packages.torch.sha256 is not a hash"),
        (compiled_line(f"../{WHEEL}"), ":3: precompiled.u.path leaves its place"),
        (compiled_line("a/b.zip"), "precompiled.u.path is not the name of a wheel"),
        (model_line("{path: ../x, size: 1}"), "checkpoints.m.files['../x'].path leaves its place"),
        ("- a\n", "the file must hold one YAML mapping"),
    ],
)
def test_a_damaged_record_is_refused_by_file_and_key(tmp_path: Path, text: str, message: str):
    path = tmp_path / "lab.lock.yaml"
    path.write_text(text if text.startswith("- ") else f"version: 1\n{text}")
    with pytest.raises(InventoryError) as error:
        load(path)
    assert message in str(error.value)
    assert str(error.value).startswith(str(path))


def test_a_lock_of_before_says_so_and_how_to_keep_or_renew_it(tmp_path: Path) -> None:
    path = tmp_path / "lab.lock.yaml"
    path.write_text("version: 1\n" + model_line("").replace("checkpoints:", "models:"))
    with pytest.raises(InventoryError, match=r":2: the lock is of an earlier .* Rename the key"):
        load(path)
    path.write_text(path.read_text().replace("models:", "checkpoints:"))
    assert list(load(path).checkpoints) == ["m"]


def test_a_record_that_cannot_be_written_leaves_the_old_one(tmp_path: Path) -> None:
    folder = tmp_path / "lab.lock.yaml"
    folder.mkdir()
    with pytest.raises(ResolveError, match="the lock cannot be written"):
        save(folder, PINS)
    assert list(tmp_path.iterdir()) == [folder]


def test_what_the_record_holds_is_not_missing() -> None:
    commits = replace(GIT, commit=NUMBER_LIKE), replace(COMPILED, commit=COMMIT)
    borrower = replace(MODEL, files=("a.bin",))
    every = (PYTHON, TREE, GIT, COMPILED, *commits, IMAGE, MODEL, BORROWED, borrower)
    assert missing(every, PINS) == []


@pytest.mark.parametrize(
    "wanted_item",
    [
        replace(PYTHON, python="3.13"),
        replace(TREE, requirements=("torch==2.11.0+cu130", "torchvision")),
        # Another commit needs other packages.
        replace(TREE, trees=(GitItem(URL, "main", COMMIT),)),
        replace(TREE, trees=()),
        replace(COMPILED, commit=NUMBER_LIKE),
        replace(COMPILED, variant="cu129"),
        replace(COMPILED, upstream=URL),
        # Another commit of the fork may have left upstream elsewhere.
        replace(COMPILED, tree=GitItem(URL, "main", COMMIT)),
        replace(GIT, branch="other"),
        replace(GIT, commit=COMMIT),
        replace(IMAGE, architecture="x86_64"),
        replace(IMAGE, reference="ghcr.io/a/b:dev"),
        replace(MODEL, revision="v2"),
        replace(BORROWED, files=("config.json", "tokenizer.json")),
        replace(BORROWED, files=()),
    ],
)
def test_what_is_asked_for_differently_is_missing(wanted_item: Any) -> None:
    assert missing([wanted_item], PINS) == [wanted_item]


def test_what_follows_from_a_commit_is_missing_once_that_has_moved():
    pins = replace(PINS, git={URL: GitPin("main", COMMIT)})
    assert missing([GIT, TREE, COMPILED], pins) == [TREE, COMPILED]


def test_the_deploy_reads_exact_versions_of_its_own_environment_alone() -> None:
    data = Settings("s", {}, tools={"common": "mistral_common"})
    assert tool_requirements(data, PINS) == {"common": "mistral-common==1.13.1"}
    with pytest.raises(ResolveError, match=r"aarch64, Python 3[.]13: the environment tools is not"):
        tool_requirements(replace(data, python="3.13"), PINS)


def test_a_git_address_is_mirrored_by_its_longest_prefix():
    git = {"https://github.com/": "ssh://mirror/", "https://github.com/a/": "git://10.0.0.1/"}
    sources = Sources(git=git)
    assert mirror_url("https://github.com/a/b.git", sources) == "git://10.0.0.1/b.git"
    assert mirror_url("https://github.com/c/d.git", sources) == "ssh://mirror/c/d.git"
    assert mirror_url("https://example.com/c/d.git", sources) == "https://example.com/c/d.git"


@pytest.mark.parametrize("text", ["git: {}\n", "version: 2\ngit: {}\n"])
def test_another_format_is_refused_with_its_number(tmp_path: Path, text: str) -> None:
    path = tmp_path / "lab.lock.yaml"
    path.write_text(text)
    with pytest.raises(InventoryError, match=r"another format; found .*allowed: version 1"):
        load(path)


def test_why_an_engine_could_not_be_asked_stands_beside_its_digest(tmp_path: Path) -> None:
    path = tmp_path / "lab.lock.yaml"
    ((name, pin),) = PINS.images.items()
    save(path, PINS)
    reasons = {"sha256:" + 64 * "9": "of another host", pin.digest: ""}
    lockfile.record_silent_images(path, PINS, reasons)
    assert path.read_text() == TEXT
    # One host alone says nothing of what the others have.
    for reasons in ({pin.digest: "no libcuda.so.1"}, {}):
        lockfile.record_silent_images(path, load(path), reasons)
        assert load(path).images[name].unanswered == "no libcuda.so.1"
    # For a rollback it is the same lock.
    assert load(path) == PINS
    lockfile.record_silent_images(path, load(path), {pin.digest: ""})
    assert path.read_text() == TEXT


def test_what_a_lock_was_deployed_with_is_kept_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "lab.lock.yaml"

    def of(generation: str, **data: str) -> dict[str, Any]:
        return {"spark1": {"generation": generation, "data": data}}

    record_deployed(path, PINS, of("a"))
    # What makes no other generation is none to go back to.
    record_deployed(path, PINS, of("a", operators="anna"))
    assert not previous_path(path).exists()
    record_deployed(path, PINS, of("b"))
    assert load(previous_path(path)) == load(deployed_path(path)) == PINS
    assert lockfile.deployed_with(previous_path(path)) == of("a", operators="anna")
    assert lockfile.deployed_with(deployed_path(path)) == of("b")
    # It counts with the lock that it was written for alone.
    save(deployed_path(path), Pins())
    assert lockfile.deployed_with(deployed_path(path)) == {}
    # The lock before the last deployed one is kept, however often that is deployed.
    for pins in (Pins(), PINS, PINS):
        record_deployed(path, pins)
    assert (load(deployed_path(path)), load(previous_path(path))) == (PINS, Pins())
    names = ["lab.lock.deployed.yaml", "lab.lock.previous.yaml"]
    assert sorted(file.name for file in tmp_path.iterdir()) == names


PLAIN_MIRROR = {"registries": {"ghcr.io": "10.0.0.5:5000"}, "plain_registries": ("10.0.0.5:5000",)}


@pytest.mark.parametrize(
    ("reference", "parts"),
    [
        ("debian:12", Reference("docker.io", "library/debian", "12")),
        ("lmsysorg/sglang:v1", Reference("docker.io", "lmsysorg/sglang", "v1")),
        ("index.docker.io/debian", Reference("docker.io", "library/debian")),
        ("localhost/x", Reference("localhost", "x")),
        ("10.0.0.5:5000/x", Reference("10.0.0.5:5000", "x")),
        (f"ghcr.io/a/b:t@{DIGEST}", Reference("ghcr.io", "a/b", "t", DIGEST)),
    ],
)
def test_a_reference_comes_apart_as_docker_reads_it(reference: str, parts: Reference) -> None:
    assert images.parse(reference) == parts


def test_an_image_is_named_by_the_loopback_registry_its_origin_and_the_pinned_digest():
    name = images.pull_reference("10.0.0.1:5000/x:t", ImagePin(DIGEST, "aarch64", 1))
    assert name == f"127.0.0.1:7078/10.0.0.1-5000/x@{DIGEST}"


@pytest.mark.parametrize(
    ("reference", "sources", "address"),
    [
        ("debian:12", {}, "https://registry-1.docker.io/v2/library/debian"),
        ("ghcr.io/a/b:main", {"registries": {"docker.io": "m:5000"}}, "https://ghcr.io/v2/a/b"),
        ("ghcr.io/a/b:main", PLAIN_MIRROR, "http://10.0.0.5:5000/v2/a/b"),
        ("x/y", {"registries": {"docker.io": "m:5000/hub/"}}, "https://m:5000/v2/hub/x/y"),
    ],
)
def test_its_bytes_are_where_the_inventory_says(reference: str, sources: dict[str, Any], address):
    assert images.api_address(images.parse(reference), Sources(**sources)) == address
