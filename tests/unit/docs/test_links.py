"""Each link of README and docs leads to a file and a heading; each test that is named is there."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGES = (
    *(ROOT / f"{name}.md" for name in ("README", "CHANGELOG", "CONTRIBUTING")),
    *sorted((ROOT / "docs").rglob("*.md")),
)
LINK = re.compile(r"\]\((?!https?:)([^)#\s]*)(?:#([^)\s]*))?\)")
PATH = re.compile(r"\b(?:tests|benchmarks)/[a-z0-9_/]+\.py")


def headings(page: Path) -> set[str]:
    """The anchors that a reader's browser makes of a page's headings."""
    titles = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_and_every_named_file_is_there(page: Path) -> None:
    text = page.read_text()
    broken_links = []
    for path, anchor in LINK.findall(text):
        target = page.parent / path if path else page
        if not target.exists() or (anchor and anchor not in headings(target)):
            broken_links.append(f"{path}#{anchor}")
    assert broken_links == []
    # A worked example makes some.
    made_paths = set(re.findall(r"^\+\+\+ b/(\S+)$", text, re.MULTILINE))
    named_paths = set(PATH.findall(text)) - made_paths
    assert sorted(path for path in named_paths if not (ROOT / path).exists()) == []


@pytest.mark.parametrize(
    "page", sorted((ROOT / "docs/evidence").glob("[a-z]*.md")), ids=lambda page: page.name
)
def test_the_page_that_evidence_is_of_links_to_it(page: Path) -> None:
    assert f"](evidence/{page.name}" in (page.parents[1] / page.name).read_text()
