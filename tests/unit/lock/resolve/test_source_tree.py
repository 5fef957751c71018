"""The requirements of a source tree are read at one commit, without installing it."""

from pathlib import Path

import pytest
from a_repository import commit
from a_repository import git as run

from lockstep.core.errors import ResolveError
from lockstep.inventory.settings import Sources
from lockstep.lock.moving import GitItem
from lockstep.lock.resolve.http import Network
from lockstep.lock.resolve.source_tree import Tree, read_tree

URL = "https://git.example/some/tree.git"
BUILD = '[build-system]\nrequires = ["setuptools>=77", "torch == 2.10.0"]\n'
PROJECT = '[project]\nname = "Some.Tree"\nversion = "1"\n'
# A backend of the tree's own: needs nothing from any index.
BACKEND = """\
import os
def prepare_metadata_for_build_wheel(folder, config_settings=None):
    os.mkdir(os.path.join(folder, "x.dist-info"))
    with open(os.path.join(folder, "x.dist-info", "METADATA"), "w") as out:
        out.write("Metadata-Version: 2.1\\nName: transformers\\nVersion: 5\\n")
        out.write("Requires-Dist: numpy>=2\\nRequires-Dist: torch; extra == 'torch'\\n")
        out.write("Requires-Dist: old; python_version < '3'\\n\\nbody\\n")
    print("noise")
    return "x.dist-info"
"""


# Late in the evening in the committer's zone is the next day in UTC.
COMMITTED, DAY = "2026-03-16T23:30:00-02:00", "2026-03-17"
OWN_BUILD = '[build-system]\nrequires = []\nbuild-backend = "own"\nbackend-path = ["."]\n'


@pytest.fixture(autouse=True)
def _commit_date(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_COMMITTER_DATE", COMMITTED)


def repository(folder: Path, files: dict[str, str]) -> str:
    """A bare-bones repository; the commit of these files, since which its branch has moved on."""
    tree = folder / "some" / "tree.git"
    tree.mkdir(parents=True)
    run(tree, "init", "--quiet", "--initial-branch", "main")
    for name, text in files.items():
        (tree / name).parent.mkdir(exist_ok=True)
        (tree / name).write_text(text)
    run(tree, "add", ".")
    first_commit = commit(tree)
    commit(tree, "later")
    return first_commit


def read(folder: Path, tree_commit: str) -> Tree:
    sources = Sources(git={"https://git.example/": f"{folder}/"})
    return read_tree(GitItem(URL, "main"), tree_commit, Network(sources))


def test_what_stands_in_pyproject_is_taken_as_it_is(tmp_path: Path) -> None:
    project = PROJECT + 'dependencies = ["b>=2", "a"]\n' + BUILD
    tree_commit = repository(tmp_path, {"pyproject.toml": project})
    assert read(tmp_path, tree_commit) == Tree(
        URL, tree_commit, "some-tree", ("b>=2", "a"), ("setuptools>=77", "torch==2.10.0"), DAY
    )


def test_vllm_says_what_its_cuda_build_needs_in_requirements_files(tmp_path: Path) -> None:
    files = {
        "pyproject.toml": PROJECT + 'dynamic = ["version", "dependencies"]\n' + BUILD,
        "requirements/cuda.txt": "# CUDA\n-r common.txt\n\ntorch==2.10.0  # the build's\n",
        "requirements/common.txt": "regex # words\nnumba == 0.61; platform_machine != 's390x'\n",
    }
    tree_commit = repository(tmp_path, files)
    tree = read(tmp_path, tree_commit)
    assert tree.needs == ("regex", 'numba==0.61; platform_machine != "s390x"', "torch==2.10.0")


def test_else_the_trees_own_build_backend_is_asked(tmp_path: Path) -> None:
    tree_commit = repository(tmp_path, {"pyproject.toml": OWN_BUILD, "own.py": BACKEND})
    assert read(tmp_path, tree_commit) == Tree(
        URL, tree_commit, "transformers", ("numpy>=2", 'old; python_version < "3"'), (), DAY
    )


def test_a_backend_that_fails_is_named_with_its_reason(tmp_path: Path) -> None:
    files = {"pyproject.toml": OWN_BUILD, "own.py": "raise SystemExit('needs a GPU')"}
    tree_commit = repository(tmp_path, files)
    with pytest.raises(ResolveError, match="does not say what it needs; found needs a GPU"):
        read(tmp_path, tree_commit)


def test_a_commit_that_is_gone_is_named(tmp_path: Path) -> None:
    repository(tmp_path, {"pyproject.toml": PROJECT})
    with pytest.raises(ResolveError, match=r"tree[.]git at eeeeeeeeeeee: the commit cannot be fet"):
        read(tmp_path, 40 * "e")


@pytest.mark.parametrize(
    ("project", "message"),
    [
        ("[project\n", "pyproject.toml cannot be read"),
        (PROJECT + 'dependencies = ["a b c"]\n', "needs something that is no requirement; found"),
    ],
)
def test_nonsense_in_a_tree_is_refused(tmp_path: Path, project: str, message: str) -> None:
    tree_commit = repository(tmp_path, {"pyproject.toml": project})
    with pytest.raises(ResolveError, match=message):
        read(tmp_path, tree_commit)
