"""The record of pins: read strictly, written whole, and exact about what it lacks."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lockstep.errors import InventoryError, ResolveError
from lockstep.moving import GitWanted, ImageWanted, ModelWanted, PythonWanted, Wanted
from lockstep.packages import engine_requirements, mirrored, tool_requirements
from lockstep.pins import (
    FilePin,
    GitPin,
    ImagePin,
    ModelPin,
    Pins,
    PythonPin,
    load,
    missing,
    save,
)
from lockstep.settings import Settings, Sources, VenvEngine

COMMIT = "0123456789abcdef0123456789abcdef01234567"
# All digits: YAML would read it as a number if it were not quoted.
NUMBER_LIKE = "1" * 40
DIGEST = "sha256:" + "ab" * 32
URL = "https://example.com/vllm.git"

PINS = Pins(
    python={
        "torch==2.10.0+cu130 torchvision": PythonPin(
            ("torch==2.10.0+cu130", "torchvision==0.25.0+cu130"), "aarch64", "3.12", "2026-11-21"
        ),
        "mistral_common": PythonPin(("mistral-common==1.13.1",), "aarch64", "3.12", "2026-11-21"),
    },
    git={URL: GitPin("main", NUMBER_LIKE, "2026-11-21")},
    images={"ghcr.io/a/b:main": ImagePin(DIGEST, "aarch64", 12, "2026-11-21")},
    models={
        "org/name": ModelPin(
            "main",
            COMMIT,
            (FilePin("a.bin", 10, "cd" * 32), FilePin("b/empty", 0, None, COMMIT)),
            resolved="2026-11-21",
        ),
        "org/base": ModelPin("v1", COMMIT, (FilePin("config.json", 2),), partial=True),
    },
)

TEXT = f"""\
# What every branch, tag, range and revision stood for when a deploy first met it.
# Written by the deploy; every host gets exactly this. Keep it under version control.
# To move one thing forward, delete its entry and deploy again. To move all, delete the file.
python:
  mistral_common:
    exact: [mistral-common==1.13.1]
    architecture: aarch64
    python: '3.12'
    resolved: '2026-11-21'
  torch==2.10.0+cu130 torchvision:
    exact: [torch==2.10.0+cu130, torchvision==0.25.0+cu130]
    architecture: aarch64
    python: '3.12'
    resolved: '2026-11-21'
git:
  https://example.com/vllm.git: {{branch: main, commit: '{NUMBER_LIKE}', resolved: '2026-11-21'}}
images:
  ghcr.io/a/b:main: {{digest: '{DIGEST}', architecture: aarch64, size: 12, resolved: '2026-11-21'}}
models:
  org/base:
    asked: v1
    commit: 0123456789abcdef0123456789abcdef01234567
    files:
    - {{path: config.json, size: 2}}
    partial: true
  org/name:
    asked: main
    commit: 0123456789abcdef0123456789abcdef01234567
    files:
    - {{path: a.bin, size: 10, sha256: {"cd" * 32}}}
    - {{path: b/empty, size: 0, blob: 0123456789abcdef0123456789abcdef01234567}}
    resolved: '2026-11-21'
"""


def test_the_record_is_written_sorted_and_one_thing_to_a_line(tmp_path: Path) -> None:
    save(tmp_path / "lab.yaml", PINS)
    assert (tmp_path / "lab.yaml").read_text() == TEXT


def test_what_was_written_is_read_back_the_same(tmp_path: Path) -> None:
    save(tmp_path / "pins" / "lab.yaml", PINS)
    assert load(tmp_path / "pins" / "lab.yaml") == PINS


# Each example waits for the disk (fsync), which takes as long as it takes.
@settings(deadline=None, max_examples=30)
@given(
    st.dictionaries(
        st.text(st.characters(exclude_categories=["C", "Z"]), min_size=1),
        st.builds(
            GitPin,
            branch=st.text(st.characters(exclude_categories=["C", "Z"]), min_size=1),
            commit=st.text("0123456789abcdef", min_size=40, max_size=40),
        ),
    )
)
def test_any_name_survives_the_file(
    tmp_path_factory: pytest.TempPathFactory, git: dict[str, GitPin]
) -> None:
    path = tmp_path_factory.mktemp("pins") / "pins.yaml"
    save(path, Pins(git=git))
    assert load(path) == Pins(git=git)


def test_an_absent_record_is_an_empty_one(tmp_path: Path) -> None:
    assert load(tmp_path / "none.yaml") == Pins()


def test_a_section_without_entries_is_empty(tmp_path: Path) -> None:
    path = tmp_path / "pins.yaml"
    path.write_text("python:\ngit: {}\n")
    assert load(path) == Pins()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("gti: {}", "unknown key 'gti'; allowed: git, images, models, python. Did you mean 'git'?"),
        (
            f"git:\n  u: {{branch: b, commit: {COMMIT}, comit: x}}",
            "unknown key 'comit' in git.u; allowed: branch, commit, resolved. "
            "Did you mean 'commit'?",
        ),
        ("git:\n  u: {branch: b}", "git.u.commit is missing. Add git.u.commit."),
        (
            "git:\n  u: {branch: b, commit: abc}",
            ":2: git: u: commit is not a commit; found 'abc'; "
            "allowed: 40 lower-case hexadecimal digits. "
            "Restore the entry, or delete it to resolve it again.",
        ),
        (f"git:\n  u: {{branch: b, commit: {NUMBER_LIKE}}}", "git.u.commit must be text; found"),
        (
            "images:\n  i: {digest: abc, architecture: aarch64, size: 1}",
            "digest is not a digest; found 'abc'; allowed: sha256: and 64 hexadecimal digits",
        ),
        (
            f"images:\n  i: {{digest: '{DIGEST}', architecture: aarch64, size: many}}",
            "images.i.size must be a whole number; found 'many'",
        ),
        (
            "python:\n  torch: {exact: [torch>=2], architecture: aarch64, python: '3.12'}",
            ":2: python: torch: exact is not exact; found 'torch>=2'; allowed: NAME==VERSION",
        ),
        (
            "python:\n  torch: {exact: torch==2, architecture: aarch64, python: '3.12'}",
            "python.torch.exact must be a list; found 'torch==2'",
        ),
        (
            f"models:\n  m: {{asked: main, commit: {COMMIT}, files: [{{path: ../x, size: 1}}]}}",
            "a path leaves the repository; found '../x'",
        ),
        (
            f"models:\n  m: {{asked: main, commit: {COMMIT}, "
            "files: [{path: x, size: 1, sha256: ab}]}",
            "x: sha256 is not a hash; found 'ab'; allowed: 64 hexadecimal digits",
        ),
        ("git:\n  a: {branch: b\n", "the file is not valid YAML"),
        ("git:\n  a: 1\ngit:\n  b: 2\n", "key 'git' stands twice (first on line 1)"),
        ("- a\n", "the file must hold one YAML mapping"),
        ("git: 7\n", "git must be a mapping; found 7"),
    ],
)
def test_a_damaged_record_is_refused_by_file_and_key(
    tmp_path: Path, text: str, message: str
) -> None:
    path = tmp_path / "pins.yaml"
    path.write_text(text)
    with pytest.raises(InventoryError) as caught:
        load(path)
    assert message in str(caught.value)
    assert str(caught.value).startswith(str(path))


def test_a_record_that_cannot_be_written_leaves_the_old_one(tmp_path: Path) -> None:
    folder = tmp_path / "pins.yaml"
    folder.mkdir()
    with pytest.raises(ResolveError) as caught:
        save(folder, PINS)
    assert "the record of pins cannot be written" in str(caught.value)
    assert list(tmp_path.iterdir()) == [folder]


PYTHON = PythonWanted(("mistral_common",), "aarch64", "3.12")
GIT = GitWanted(URL, "main")
IMAGE = ImageWanted("ghcr.io/a/b:main", "aarch64")
MODEL = ModelWanted("org/name", "main")
BORROWED = ModelWanted("org/base", "v1", ("config.json",))


def test_what_the_record_holds_is_not_missing() -> None:
    every = Wanted((PYTHON,), (GIT, replace(GIT, commit=NUMBER_LIKE)), (IMAGE,), (MODEL, BORROWED))
    assert missing(every, PINS) == Wanted()
    assert not missing(every, PINS)


@pytest.mark.parametrize(
    "wanted",
    [
        Wanted(python=(replace(PYTHON, asked=("mistral_common>=2",)),)),
        Wanted(python=(replace(PYTHON, python="3.13"),)),
        Wanted(python=(replace(PYTHON, architecture="x86_64"),)),
        Wanted(python=(PythonWanted(("torch==2.11.0+cu130", "torchvision"), "aarch64", "3.12"),)),
        Wanted(git=(replace(GIT, branch="other"),)),
        Wanted(git=(replace(GIT, commit=COMMIT),)),
        Wanted(git=(replace(GIT, url="https://example.com/other.git"),)),
        Wanted(images=(replace(IMAGE, architecture="x86_64"),)),
        Wanted(images=(replace(IMAGE, reference="ghcr.io/a/b:dev"),)),
        Wanted(models=(replace(MODEL, revision="v2"),)),
        Wanted(models=(replace(BORROWED, files=("config.json", "tokenizer.json")),)),
        Wanted(models=(replace(BORROWED, files=()),)),
    ],
)
def test_what_is_asked_for_differently_is_missing(wanted: Wanted) -> None:
    assert missing(wanted, PINS) == wanted


def test_a_borrower_is_served_by_a_whole_repository() -> None:
    assert not missing(Wanted(models=(replace(MODEL, files=("a.bin",)),)), PINS)


def test_the_deploy_reads_exact_versions_by_distribution() -> None:
    engine = VenvEngine(flashinfer=False)
    data = Settings("s", {}, engine=engine, tools={"common": "mistral_common"})
    assert engine_requirements(data, PINS) == {
        "torch": "torch==2.10.0+cu130",
        "torchvision": "torchvision==0.25.0+cu130",
        "mistral-common": "mistral-common==1.13.1",
    }
    assert tool_requirements(data, PINS) == {"common": "mistral-common==1.13.1"}


def test_a_version_resolved_for_another_interpreter_is_not_used() -> None:
    data = Settings("s", {}, python="3.13", tools={"common": "mistral_common"})
    with pytest.raises(ResolveError, match=r"not resolved for aarch64, Python 3[.]13"):
        tool_requirements(data, PINS)


def test_of_two_records_the_later_wins() -> None:
    later = Pins(git={URL: GitPin("main", COMMIT)})
    both = PINS | later
    assert both.git == later.git
    assert (both.python, both.images, both.models) == (PINS.python, PINS.images, PINS.models)


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("https://github.com/a/b.git", "git://10.0.0.1/b.git"),
        ("https://github.com/c/d.git", "ssh://mirror/c/d.git"),
        ("https://example.com/c/d.git", "https://example.com/c/d.git"),
    ],
)
def test_a_git_address_is_mirrored_by_its_longest_prefix(url: str, address: str) -> None:
    sources = Sources(
        git={
            "https://github.com/": "ssh://mirror/",
            "https://github.com/a/": "git://10.0.0.1/",
        }
    )
    assert mirrored(url, sources) == address
