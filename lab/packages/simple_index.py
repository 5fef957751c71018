"""A package index as a folder of files (PEP 503, with hashes and PEP 658 metadata)."""

from __future__ import annotations

import hashlib
import html
import os
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import quote

from packaging.utils import canonicalize_name, parse_sdist_filename, parse_wheel_filename

from lab.packages.wheels import read_metadata


def project_of(file_name: str) -> str:
    """The normalised project name of a wheel or source archive."""
    if file_name.endswith(".whl"):
        return parse_wheel_filename(file_name)[0]
    return parse_sdist_filename(file_name)[0]


#: The index that gives upload times, all before the fork's day. The indexes of PyTorch and
#: FlashInfer give none.
DATED = "simple"
_UPLOADED = "2026-02-01T00:00:00Z"


def write_index(folder: Path, files: Iterable[Path]) -> None:
    """Make ``folder`` an index of the files, which are linked into it, not copied."""
    projects: dict[str, list[Path]] = defaultdict(list)
    for file in files:
        projects[canonicalize_name(project_of(file.name))].append(file)
    for project, members in sorted(projects.items()):
        target = folder / project
        target.mkdir(parents=True)
        for file in members:
            os.link(file, target / file.name)
            if file.suffix == ".whl":
                (target / f"{file.name}.metadata").write_bytes(read_metadata(file))
        write_project_page(target, (target / file.name for file in members))
    write_root_page(folder, projects)


def write_root_page(folder: Path, projects: Iterable[str]) -> None:
    """The page that lists all projects of an index."""
    links = [f'<a href="{quote(name)}/">{html.escape(name)}</a><br>' for name in sorted(projects)]
    (folder / "index.html").write_text(_page("Simple index", links))


def write_project_page(folder: Path, files: Iterable[Path]) -> None:
    """The page that lists the files of one project of an index with their sha256."""
    day = f' data-upload-time="{_UPLOADED}"' if folder.parent.name == DATED else ""
    links = [_link(file, day) for file in sorted(files)]
    (folder / "index.html").write_text(_page(folder.name, links))


def publish(overlay: Path, base: Path, index: str, wheel: Path) -> None:
    """Add a wheel to an index that is already being served.

    ``overlay`` is the web server's own folder (``<state>/services/web``), ``base`` the folder
    beneath it, ``index`` the index's name (``simple``, ``torch``, ``flashinfer``).
    """
    project = canonicalize_name(project_of(wheel.name))
    target = overlay / index / project
    target.mkdir(parents=True, exist_ok=True)
    copy = target / wheel.name
    copy.write_bytes(wheel.read_bytes())
    (target / f"{wheel.name}.metadata").write_bytes(read_metadata(wheel))
    wheels_by_name = {path.name: path for path in (base / index / project).glob("*.whl")}
    wheels_by_name |= {path.name: path for path in target.glob("*.whl")}
    write_project_page(target, wheels_by_name.values())


def _link(file: Path, more: str) -> str:
    with file.open("rb") as content:
        digest = hashlib.file_digest(content, "sha256").hexdigest()
    name = html.escape(file.name)
    metadata = ""
    if file.suffix == ".whl":
        inner = hashlib.sha256(read_metadata(file)).hexdigest()
        metadata = f' data-core-metadata="sha256={inner}"'
    return f'<a href="{quote(file.name)}#sha256={digest}"{metadata}{more}>{name}</a><br>'


def _page(title: str, lines: list[str]) -> str:
    head = f"<!DOCTYPE html>\n<html><head><title>{html.escape(title)}</title></head><body>\n"
    return head + "\n".join(lines) + "\n</body></html>\n"
