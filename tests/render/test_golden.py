"""Every artefact of two hosts, whole, against the copy in `golden/`.

`spark` is a host as it comes; `member` is rank 0 of a cluster, behind a proxy, with everything on.
After a change that is meant: UPDATE_GOLDEN=1 .venv/bin/pytest tests/render/test_golden.py
and read the difference in git before committing it.
"""

import os
import shutil

import pytest
from example import GOLDEN, steady
from pair import FILES

from lockstep.files.managed_file import ManagedFile
from lockstep.units.gateway_unit import PAGE

#: Mode, owner, stage and check of each file.
TABLES = GOLDEN.parent / "who_may_read"


def table(files: dict[str, ManagedFile]) -> str:
    """A line for each file: who may read it, which step writes it, what checks it."""
    rows = (
        f"{file.mode} {file.owner}:{file.group} {file.stage} {file.check or '-'} {path}\n"
        for path, file in sorted(files.items())
    )
    return "".join(rows)


@pytest.mark.parametrize("host", FILES)
def test_artefacts_are_exactly_the_golden_ones(host: str) -> None:
    folder = GOLDEN / host
    # The page is the same on all hosts; tests of its own look at it.
    texts = {path: steady(file.text) for path, file in FILES[host].items() if path != PAGE}
    if os.environ.get("UPDATE_GOLDEN"):
        shutil.rmtree(folder, ignore_errors=True)
        for path, text in texts.items():
            (folder / path.lstrip("/")).parent.mkdir(parents=True, exist_ok=True)
            (folder / path.lstrip("/")).write_text(text, encoding="utf-8")
    golden = {
        f"/{path.relative_to(folder)}": path.read_text(encoding="utf-8")
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
    assert sorted(texts) == sorted(golden)
    for path, text in texts.items():
        assert text == golden[path], path


@pytest.mark.parametrize("host", FILES)
def test_who_may_read_what_and_which_step_writes_it(host: str) -> None:
    target_path = TABLES / f"{host}.txt"
    if os.environ.get("UPDATE_GOLDEN"):
        target_path.write_text(table(FILES[host]))
    assert table(FILES[host]) == target_path.read_text()


def test_a_file_that_may_hold_a_proxy_password_is_private() -> None:
    files = FILES["member"]
    spellings = ("pa%24$word", "pa$$word")
    holding = {
        path
        for path, file in files.items()
        if any(word in file.text.replace("\\", "") for word in spellings)
    }
    assert holding == {"/etc/apt/auth.conf.d/60lockstep.conf", "/etc/lockstep/proxy.env"}
    assert {files[path].mode for path in holding} == {"0600"}
