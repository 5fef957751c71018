"""The venv engine is built stage by stage; a cut at any moment is mended by the next run."""

import ast
import fcntl
import hashlib
import io
import json
import os
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any
from unittest import mock

import pytest
from a_repository import fork, git, source
from onhost_fakes import run_program

from lockstep.host.specs import engine_check_hash, missing_engine_parts
from lockstep.onhost.core import errors, file_lock
from lockstep.onhost.environment import engine_build
from lockstep.onhost.facts import environments

pytestmark = pytest.mark.slow

# Does to a folder what uv does, as far as the reader looks, and writes down how it was called.
# Started a hundred times: without json, pathlib and their imports in half the time.
UV = """\
import hashlib, os, sys
from os.path import basename, dirname, exists, isabs, join, realpath
names = [name for name in sorted(os.environ) if name.startswith(("UV_", "VLLM_", "http"))]
said = {name: os.environ[name] for name in names}
with open(join(dirname(__file__), "log"), "a") as out:
    out.write(f"{(sys.argv[1:], said)}\\n")
if os.environ.get("FAIL") == sys.argv[1]:
    os.kill(os.getpid(), 9)
def read(path):
    with open(path, "rb") as file:
        return file.read()
if sys.argv[1] == "venv":
    venv = sys.argv[-1]
    os.system(f"rm -rf {venv}")
    os.makedirs(f"{venv}/bin")
    os.symlink(sys.executable, f"{venv}/bin/python")
    os.makedirs(f"{venv}/lib/python{sys.argv[-2]}/site-packages")
    sys.exit()
lib = join(dirname(dirname(sys.argv[4])), "lib")
[version] = os.listdir(lib)
site = f"{lib}/{version}/site-packages"
if sys.argv[2] == "uninstall":
    for word in sys.argv[5:]:
        start = word.replace("-", "_") + "-"
        [found] = [name for name in os.listdir(site) if name.startswith(start)]
        os.system(f"rm -rf {site}/{found}")
    sys.exit()
broken = join(os.environ["UV_CACHE_DIR"], "broken")
if exists(broken):
    sys.exit(read(broken).decode())
links = sys.argv[sys.argv.index("--find-links") + 1]
assert "--no-index" in sys.argv
def offered(name, sha256):
    start = name.replace("-", "_") + "-"
    paths = [join(links, file) for file in os.listdir(links) if file.startswith(start)]
    found = [path for path in paths if basename(realpath(path)) == sha256]
    if [hashlib.sha256(read(path)).hexdigest() for path in found] != [sha256]:
        sys.exit(1)
if "--requirement" in sys.argv:
    assert "--require-hashes" in sys.argv and "--no-deps" in sys.argv
    lines = read(sys.argv[-1]).decode().splitlines()
    assert all(" --hash=sha256:" in line for line in lines)
    words = [line.partition(" ")[0] for line in lines]
    for line in lines:
        offered(line.partition("==")[0], line.rpartition(":")[2])
else:
    assert "--no-deps" in sys.argv and "--build-constraints" in sys.argv
    words = sys.argv[-1:]
for word in words:
    name, _, version = (basename(word), "", "0") if isabs(word) else word.partition("==")
    folder = f"{site}/{name.replace('-', '_')}-{version}.dist-info"
    os.makedirs(folder, exist_ok=True)
    if isabs(word):
        editable = "true" if "--editable" in sys.argv else "false"
        with open(f"{folder}/direct_url.json", "w") as out:
            out.write(f'{{"url": "file://{word}", "dir_info": {{"editable": {editable}}}}}')
    open(f"{folder}/RECORD", "a").close()
    if os.environ.get("FAIL") == name:
        os.kill(os.getppid(), 9)
        os.kill(os.getpid(), 9)
"""

# Gives what pip would download: the files beside it whose hashes it is told.
PIP = """\
import hashlib, os, sys
with open(os.path.join(os.path.dirname(__file__), "proxies"), "a") as out:
    out.write(os.environ.get("http_proxy", "none") + "\\n")
into = sys.argv[sys.argv.index("--dest") + 1]
asked = {line.strip().rpartition(":")[2] for line in sys.stdin}
index = os.path.join(os.path.dirname(__file__), "index")
for name in os.listdir(index):
    with open(f"{index}/{name}", "rb") as file:
        content = file.read()
    if hashlib.sha256(content).hexdigest() in asked:
        with open(f"{into}/{name}", "wb") as copy:
            copy.write(content)
"""


def wheel(name: str, version: str, stage: str) -> dict[str, Any]:
    """A wheel whose content is its name."""
    sha256 = hashlib.sha256(name.encode()).hexdigest()
    file = f"{name.replace('-', '_')}-{version}-py3-none-any.whl"
    whole = {"name": name, "version": version, "file": file, "sha256": sha256, "stage": stage}
    return {**whole, "size": len(name)}


PACKAGES = [
    wheel("torch", "2.10.0+cu130", "pytorch"),
    wheel("torchvision", "0.25", "pytorch"),
    wheel("mistral-common", "1.9", "vllm"),
    wheel("flashinfer-python", "0.6", "flashinfer"),
    wheel("flashinfer-cubin", "0.6", "flashinfer"),
]
BUILT_WITH = wheel("setuptools", "80.0", "vllm")
COMPILED = {**wheel("compiled", "1.0+cu130", "vllm"), "name": "vllm"}
RELEASED = wheel("vllm", "0.20.2", "vllm")


def run_build(*argv: str) -> CompletedProcess[str]:
    out, err = io.StringIO(), io.StringIO()
    with mock.patch.dict(os.environ), redirect_stdout(out), redirect_stderr(err):
        code = errors.run_main("lockstep engine-build", lambda: engine_build.main(list(argv)))
    return CompletedProcess(argv, code, out.getvalue(), err.getvalue())


class Site:
    """A fork and a transformers repository, stand-ins for uv and pip, and the specification."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        index = folder / "bin/index"
        index.mkdir(parents=True)
        for package in (*PACKAGES, BUILT_WITH, RELEASED):
            (index / package["file"]).write_text(package["name"])
        (index / COMPILED["file"]).write_text("compiled")
        uv, pip = folder / "bin/uv", folder / "bin/python"
        for path, text in ((uv, UV), (pip, PIP)):
            path.write_text(f"#!{sys.executable} -IS\n{text}")
            path.chmod(0o755)
        home = folder / "engines/0123456789ab"
        variables = {"environment": {"VLLM_USE_PRECOMPILED": "1"}}
        self.spec: dict[str, Any] = {
            **{"id": home.name, "home": str(home), "current": f"{folder}/engines/current"},
            **{"python": "3.12", "uv": str(uv), "tools": str(pip)},
            "index": "https://index.example/simple",
            "torch_index": "https://user:secret@index.example/cu130",
            "flashinfer_index": "https://index.example/whl",
            "packages": PACKAGES,
            "built_with": [BUILT_WITH],
            "precompiled": {**COMPILED, "url": f"https://wheels.example/{COMPILED['file']}"},
            "vllm": {**source(fork(folder / "fork")), **variables},
            "transformers": source(fork(folder / "transformers")),
            "expected": {package["name"]: package["version"] for package in PACKAGES},
            "proxy": {"http_proxy": "http://proxy:3128", "no_proxy": "127.0.0.1"},
            **{"engine_cuda": "13", "waive_kernels": False, "recipes": []},
        }

    @property
    def home(self) -> Path:
        return Path(self.spec["home"])

    def run(self, stage: str) -> CompletedProcess[str]:
        """Run one stage."""
        return run_build(*self._argv(stage))

    def cut(self, stage: str, victim: str) -> int:
        """Run one stage as the host does; it ends as soon as uv has come to `victim`."""
        environment = {**os.environ, "FAIL": victim}
        argv = self._argv(stage)
        return run_program("engine-build", *argv, environment=environment).returncode

    def _argv(self, stage: str) -> list[str]:
        spec = self.folder / "engine.json"
        spec.write_text(json.dumps(self.spec))
        return [stage, str(spec)]

    def build(self) -> None:
        """All stages, after which nothing is missing."""
        for stage in ("pytorch", "vllm", "flashinfer"):
            result = self.run(stage)
            assert result.returncode == 0, result.stderr
        assert self.missing() == {}

    def engine_facts(self) -> Any:
        return environments.read(self.spec)

    def missing(self) -> dict[str, list[str]]:
        return missing_engine_parts(self.spec, self.engine_facts())

    def calls(self) -> list[tuple[list[str], dict[str, str]]]:
        """The calls of uv: arguments and the variables that it reads."""
        log = (self.folder / "bin/log").read_text()
        return [ast.literal_eval(line) for line in log.splitlines()]


@pytest.fixture
def site(tmp_path):
    return Site(tmp_path / "site")


@pytest.fixture
def built_site(site):
    site.build()
    return site


def test_the_stages_bring_about_what_the_specification_asks_for(built_site):
    assert built_site.missing() == {}
    assert git(built_site.home / "vllm", "rev-parse", "HEAD") == built_site.spec["vllm"]["commit"]
    # The fork's build looks for the tag that it left upstream at.
    assert git(built_site.home / "vllm", "tag") == "v1"
    origins = built_site.engine_facts()["environment"]["origins"]
    editables = {name: origins[name]["editable"] for name in ("vllm", "transformers")}
    assert editables == {"vllm": True, "transformers": False}
    first = (built_site.home / "pytorch.txt").read_text().splitlines()[0]
    assert first == f"torch==2.10.0+cu130 --hash=sha256:{PACKAGES[0]['sha256']}"
    # A second run makes nothing anew, and another Python another venv.
    inode = (built_site.home / "venv").stat().st_ino
    built_site.build()
    assert (built_site.home / "venv").stat().st_ino == inode
    built_site.spec["python"] = "3.13"
    assert "Python 3.13 (it has 3.12)" in built_site.missing()["pytorch"]
    built_site.build()
    built_site.spec["home"] = str(built_site.home.parent / "another")
    assert sorted(built_site.missing()) == ["flashinfer", "pytorch", "vllm"]


def test_the_forks_build_alone_is_given_its_variables_and_compiled_parts(built_site):
    def variables(of_fork):
        return [keys for argv, keys in built_site.calls() if ("--editable" in argv) is of_fork]

    [fork_variables] = variables(of_fork=True)
    path = built_site.home.parent / "store/wheels" / str(COMPILED["file"])
    assert fork_variables["VLLM_PRECOMPILED_WHEEL_LOCATION"] == str(path)
    assert fork_variables["VLLM_USE_PRECOMPILED"] == "1"
    assert path.read_bytes() == b"compiled"
    assert "VLLM_" not in str(variables(of_fork=False))
    # What `gc` knows by that this engine is made of it.
    assert COMPILED["sha256"] in (built_site.home / "precompiled.txt").read_text()
    built_site.spec["precompiled"] = None
    assert built_site.run("vllm").returncode == 0
    assert "VLLM_PRECOMPILED_WHEEL_LOCATION" not in variables(of_fork=True)[1]


@pytest.mark.parametrize(
    ("foreign", "stage", "missing"),
    [("left_pad-1.0", "vllm", "no left-pad"), ("torch-0.1", "pytorch", "torch 2.10.0+cu130")],
    ids=["somebody else's", "there twice"],
)
def test_what_is_not_to_be_there_is_taken_out(built_site, foreign, stage, missing):
    [packages] = (built_site.home / "venv/lib").glob("python*/site-packages")
    folder = packages / f"{foreign}.dist-info"
    folder.mkdir()
    (folder / "RECORD").touch()
    assert built_site.missing() == {stage: [missing]}
    assert built_site.run(stage).returncode == 0
    assert built_site.missing() == {} and not folder.exists()


@pytest.mark.parametrize(
    ("message", "code"),
    [
        # test_uv_cache_failures.py has what the real uv says of each part.
        ("cause: failed to read directory `{cache}/archive-v0/x`: No such file or directory\n", 0),
        ('  x Failed to build `vllm`\n      File "{cache}/builds-v0/.tmpFP7sgz/x.py"\n', 1),
    ],
    ids=["lost a part", "a build fails by itself"],
)
def test_a_cache_that_lost_a_part_is_given_up(site, message, code):
    cache = site.home.parent / "uv-cache"
    cache.mkdir(parents=True)
    message = message.format(cache=cache)
    (cache / "broken").write_text(message)
    result = site.run("pytorch")
    installs = [argv for argv, _ in site.calls() if argv[0] == "pip"]
    assert (result.returncode, len(installs)) == (code, 2 - code)
    assert message in result.stderr and cache.exists()
    assert ("pytorch" in site.missing()) == bool(code)


def test_uv_is_told_no_index_and_wheels_are_fetched_through_the_proxy(site):
    result = site.run("pytorch")
    argv, environment = site.calls()[-1]
    assert environment == {
        "UV_CACHE_DIR": f"{site.home.parent}/uv-cache",
        **{"UV_NO_PROGRESS": "1", "UV_PYTHON_DOWNLOADS": "never"},
        "http_proxy": "http://proxy:3128",
    }
    assert "secret" not in " ".join(argv) + result.stdout + result.stderr
    assert set((site.folder / "bin/proxies").read_text().splitlines()) == {"http://proxy:3128"}
    # uv makes its locks for everybody, and takes those that are there as they are.
    locks = (site.home.parent / "uv-cache", site.home / "venv/.lock")
    assert [path.stat().st_mode & 0o077 for path in locks] == [0, 0]


def test_what_the_store_has_needs_no_server_for_the_next_generation(built_site):
    torch = built_site.home.parent / "store" / PACKAGES[0]["sha256"]
    torch.write_bytes(b"tarch")
    [record] = (built_site.home / "venv").rglob("torch-2.10.0+cu130.dist-info/RECORD")
    record.unlink()
    # But what is spoiled on disk is fetched again.
    result = built_site.run("pytorch")
    assert result.returncode == 0, result.stderr
    assert f"spoiled on disk, fetched again: {PACKAGES[0]['file']}" in result.stdout
    assert torch.read_bytes() == b"torch"
    built_site.spec["tools"] = "/nonexistent"
    built_site.spec["home"] = str(built_site.home.parent / "ba9876543210")
    for name in ("fork", "transformers"):
        (built_site.folder / name).rename(built_site.folder / f"{name}-is-gone")
    built_site.build()
    assert git(built_site.home / "vllm", "tag") == "v1"


def test_a_released_vllm_needs_no_git(site):
    packages, fork_source = [*PACKAGES, RELEASED], site.spec["vllm"]
    site.spec["vllm"] = {**fork_source, "git": "/nonexistent"}
    result = site.run("vllm")
    message = "lockstep engine-build: git -C ended with 128"
    assert (result.returncode, result.stderr.splitlines()[-1]) == (1, message)
    site.spec |= {"vllm": None, "transformers": None, "packages": packages, "built_with": []}
    site.build()
    assert "vllm==0.20.2 --hash=sha256:" in (site.home / "vllm.txt").read_text()


@pytest.mark.parametrize("victim", ["venv", "torch", "vllm", "flashinfer-cubin"])
def test_an_installation_that_was_cut_off_is_made_anew(site, victim):
    for stage in ("pytorch", "vllm", "flashinfer"):
        if site.cut(stage, victim) != 0:
            break
    assert site.missing()["pytorch"][0].startswith("the venv")
    (site.home / "venv").mkdir(exist_ok=True)
    (site.home / "venv/half-copied").touch()
    site.build()
    assert not (site.home / "venv/half-copied").exists()


def record(site: Site, *faults: str):
    """A check of this environment that found these faults."""
    site.home.mkdir(parents=True, exist_ok=True)
    text = {"asked": engine_check_hash(site.spec), "version": "0.19.2", "faults": faults}
    (site.home / "check.json").write_text(json.dumps(text))


def test_the_environment_is_used_once_its_check_has_passed(site):
    current = Path(site.spec["current"])
    site.home.mkdir(parents=True)
    current.symlink_to("older")
    assert site.run("activate").returncode == 1
    record(site, "torch is a CPU build")
    result = site.run("activate")
    assert result.returncode == 1 and "has not passed its check" in result.stderr
    assert current.readlink() == Path("older")
    record(site)
    # The second time over what is there.
    assert [site.run("activate").returncode for _ in range(2)] == [0, 0]
    assert current.readlink() == Path(site.home.name)


def test_a_change_makes_a_check_void_and_a_stage_may_still_be_running(built_site):
    record(built_site)
    assert built_site.engine_facts()["check"]
    assert built_site.run("flashinfer").returncode == 0
    assert built_site.engine_facts()["check"] is None
    # It is not taken for one that was cut off.
    (built_site.home / "unfinished").write_text("x")
    assert built_site.engine_facts()["unfinished"]
    with file_lock.open_file(built_site.home / "unfinished") as mark:
        fcntl.flock(mark, fcntl.LOCK_EX)
        assert not built_site.engine_facts()["unfinished"]
