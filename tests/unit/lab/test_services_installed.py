"""Wheels that the lab makes of installed packages, resolved and installed by the real uv."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from lab_servers import running
from packaging.requirements import Requirement

from lab.http.access_log import AccessLog, log_path
from lab.http.web import WebServer
from lab.packages import installed_wheels


def _install(folder: Path, name: str, version: str, *requires: str) -> None:
    """Make a package as an installer leaves it, with a compiled file and a script."""
    info = folder / f"{name}-{version}.dist-info"
    info.mkdir(parents=True)
    lines = [f"Requires-Dist: {requirement}" for requirement in requires]
    metadata = "\n".join(["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}", *lines])
    (info / "METADATA").write_text(f"{metadata}\n\nRequires-Dist: of the text, which stays\n")
    (info / "WHEEL").write_text("Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
    (info / "INSTALLER").write_text("pip\n")
    (folder / name).mkdir()
    (folder / name / "__init__.py").write_text(f"version = {version!r}\n")
    files = [f"{name}/__init__.py", f"{name}/__pycache__/__init__.cpython-311.pyc"]
    files += [f"{info.name}/{file}" for file in ("METADATA", "WHEEL", "INSTALLER", "RECORD")]
    (info / "RECORD").write_text("".join(f"{file},,\n" for file in (*files, f"../bin/{name},,\n")))


@pytest.fixture
def folders(tmp_path: Path) -> list[Path]:
    carried_folder, own = tmp_path / "carried", tmp_path / "own"
    _install(
        carried_folder,
        "engine",
        "1.0",
        "torch==2",
        "helper[fast]>=3",
        "absent",
        "unused; extra=='x'",
    )
    _install(own, "torch", "2")
    _install(own, "helper", "1", "fast-part==1; extra == 'fast'")
    _install(own, "fast_part", "1")
    _install(own, "unused", "1")
    (carried_folder / "engine/__init__.py").chmod(0o755)
    # Of another version than the one that was carried.
    _install(own, "engine", "0.9")
    return [carried_folder, own]


def test_an_installer_finds_what_was_installed_together(
    tmp_path: Path, folders: list[Path]
) -> None:
    out = tmp_path / "out"
    assert installed_wheels.main([str(out), *map(str, folders), "--need", "engine"]) == 0
    assert [path.name for path in sorted((out / "torch").iterdir())] == ["index.html", "torch"]
    log = AccessLog(log_path(tmp_path, "web"))
    target = tmp_path / "target"
    with running(WebServer(("127.0.0.1", 0), [out], log)) as address:
        command = [sys.executable, "-m", "uv", "pip", "install", "-q", "--no-config", "--no-cache"]
        command += ["--index-url", f"http://{address}/simple/", "--target", str(target)]
        subprocess.run([*command, "engine"], check=True)
    assert sorted(path.name for path in target.iterdir() if not path.name.startswith(".")) == [
        *("engine", "engine-1.0.dist-info"),
        *("fast_part", "fast_part-1.dist-info"),
        *("helper", "helper-1.dist-info"),
        *("torch", "torch-2.dist-info"),
    ]
    assert (target / "engine/__init__.py").read_text() == "version = '1.0'\n"
    assert (target / "engine/__init__.py").stat().st_mode & 0o111 == 0o111
    assert (target / "helper/__init__.py").stat().st_mode & 0o111 == 0


def test_a_requirement_is_loosened_only_where_the_installed_package_does_not_meet_it(
    folders: list[Path],
) -> None:
    packages = installed_wheels.installed_packages(folders)
    metadata = (folders[0] / "engine-1.0.dist-info/METADATA").read_text()
    assert installed_wheels.loosened_metadata(metadata, packages) == (
        "Metadata-Version: 2.1\nName: engine\nVersion: 1.0\n"
        "Requires-Dist: torch==2\nRequires-Dist: helper[fast]\n"
        "Requires-Dist: unused; extra=='x'\n\nRequires-Dist: of the text, which stays\n"
    )


def test_a_package_that_is_not_installed_is_named(folders: list[Path]) -> None:
    packages = installed_wheels.installed_packages(folders)
    with pytest.raises(ValueError, match=r"^not installed: other==1$"):
        installed_wheels.closure([Requirement("engine"), Requirement("other==1")], packages)
