"""The wheel alone, in an environment elsewhere: it has every file, it plans and deploys.

Building asks PyPI for setuptools, as installing the checkout does; packages that Lockstep needs are
those of this environment.
"""

import re
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path
from shutil import copy, copytree, ignore_patterns

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
UV = Path(sys.executable).with_name("uv")
FOLDERS = ("lockstep", "tasks", "templates", "catalogue", "docs", "group_data")
FILES = ("deploy.py", "config.py", "pyproject.toml", "README.md", "LICENSE")
_PYINFRA = "#!{python}\nimport sys\nfrom pyinfra_cli.main import main\nsys.exit(main())\n"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    """Built from a copy, for a build leaves files behind."""
    source = tmp_path_factory.mktemp("source")
    for name in FOLDERS:
        ignored_names = ignore_patterns("__pycache__")
        copytree(ROOT / name, source / name, symlinks=True, ignore=ignored_names)
    for name in FILES:
        copy(ROOT / name, source / name)
    # As README has it: first what a source package holds, and the wheel of that alone.
    subprocess.run([UV, "build", "--quiet", source], check=True)
    (target_path,) = (source / "dist").glob("*.whl")
    return target_path


@pytest.fixture(scope="module")
def folder(wheel: Path, tmp_path_factory) -> Path:
    """The wheel in an environment of its own, and a home far from the checkout with an inventory.

    `lockstep init` makes the inventory of a host that nobody knows.
    """
    folder = tmp_path_factory.mktemp("elsewhere")
    (folder / "home").mkdir()
    python = folder / "venv/bin/python"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "venv"], check=True)
    install = [UV, "pip", "install", "--quiet", "--offline", "--no-deps", "--python", python]
    subprocess.run([*install, wheel], check=True)
    # Packages alone: a checkout that is installed there by a .pth of its own stays unseen.
    (place,) = (folder / "venv/lib").glob("python*/site-packages")
    (place / "others.pth").write_text(sysconfig.get_path("purelib") + "\n")
    pyinfra = python.with_name("pyinfra")
    pyinfra.write_text(_PYINFRA.format(python=python))
    pyinfra.chmod(0o755)
    result = run(folder, "lockstep", "init", "spark-1.invalid", "--user", "me")
    assert result.returncode == 1, result.stderr
    assert "spark-1.invalid: something is missing" in result.stdout
    return folder


def run(folder: Path, program: str, *words: str) -> subprocess.CompletedProcess[str]:
    """A command in the home folder, as somebody without the checkout types it."""
    return subprocess.run(
        [folder / "venv/bin" / program, *words],
        cwd=folder / "home",
        # Nothing else of this test's own environment is handed on.
        env={"HOME": str(folder / "home"), "PATH": f"{folder / 'venv/bin'}:/usr/bin:/bin"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


def test_every_file_that_a_checkout_reads_is_in_the_wheel_and_nothing_besides(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        has = {name: archive.read(name) for name in archive.namelist() if "dist-info/" not in name}
    assert has["lockstep/defaults.py"] == (ROOT / "group_data/all.py").read_bytes()
    wanted_files = {
        str(Path("lockstep", path.relative_to(ROOT / "lockstep" if top == "lockstep" else ROOT))): (
            path.read_bytes()
        )
        for top in ("lockstep", "tasks", "templates", "catalogue", "docs")
        for path in (ROOT / top).rglob("*")
        if path.is_file()
        and "__pycache__" not in path.parts
        # Pictures and dashboards are looked at in the repository.
        and (top != "docs" or path.suffix == ".md")
    }
    assert sorted(wanted_files) == sorted(has)
    assert [name for name, content in wanted_files.items() if has[name] != content] == []


def test_it_runs_without_a_checkout(folder: Path) -> None:
    result = run(folder, "lockstep", "--version")
    assert (result.returncode, result.stderr) == (0, "")
    # Of a checkout it names the commit.
    assert re.fullmatch(r"lockstep \d+\.\d+\.\d+\n", result.stdout)
    where = run(folder, "python", "-c", "import lockstep.tasks; print(lockstep, lockstep.tasks)")
    assert str(ROOT) not in where.stdout + where.stderr
    helps = run(folder, "lockstep", "--help")
    assert (helps.returncode, helps.stderr) == (0, "")
    assert "init" in helps.stdout
    assert "developers" not in helps.stdout


def test_a_deploy_begins_and_says_that_no_host_is_reached(folder: Path) -> None:
    """`lockstep deploy` runs the environment's pyinfra."""
    result = run(folder, "lockstep", "deploy", "-i", "inventory.py")
    assert result.returncode == 1, result.stdout + result.stderr
    assert "spark-1.invalid" in result.stdout + result.stderr
    assert "Traceback" not in result.stdout + result.stderr


def test_the_catalogue_of_the_wheel_and_an_owners_own_recipes_and_group_data_are_planned(folder):
    home = folder / "home"
    text = (ROOT / "catalogue/recipes/qwen3.6-35b-a3b-fp8.yaml").read_text()
    (home / "recipes/my-own.yaml").write_text(text)
    (home / "group_data").mkdir()
    (home / "group_data/all.py").write_text(
        "from lockstep.defaults import models as _models\n"
        'models = {**_models, "own": {"recipe": "my-own", "unit": "own", "port": 30007}}\n'
    )
    result = run(folder, "lockstep", "plan")
    assert result.returncode == 0, result.stderr
    assert "own: my-own" in result.stdout
    assert "mistral-small-4-119b-nvfp4-sglang-eagle" in result.stdout
    assert "To fetch: 154.2 GB" in result.stdout
