"""Managed files are compared by text, mode and owner; only what differs is written."""

from typing import Any

import pytest
from a_snapshot import diff_report, difference_keys, host, perfect, snapshot_copy

from lockstep.files.managed_file import Folder, ManagedFile
from lockstep.onhost.facts.reader_helpers import seal
from lockstep.resources.files import KEY, Changes, file_changes

FILE = ManagedFile("/etc/a", "text\n", mode="0644", owner="root", group="adm")
FOLDER = Folder("/data", mode="0750", owner="lockstep", group="lockstep")
SAME = {
    **{"kind": "file", "mode": "0644", "owner": "root", "group": "adm"},
    **{"text": None, "seal": seal(KEY, b"text\n")},
}
LINK = {**{key: SAME[key] for key in SAME if key != "seal"}, "kind": "link", "target": "/x"}
OTHER = {**SAME, "text": "other\n", "seal": seal(KEY, b"other\n")}
OWNERS = {"owner": "lockstep", "group": "lockstep"}
SAME_FOLDER = {"kind": "folder", "mode": "0750", "text": None, **OWNERS}


@pytest.mark.parametrize(
    ("have", "earlier_text"),
    [
        (None, None),
        (OTHER, "other\n"),
        ({**SAME, "mode": "0755"}, "text\n"),
        ({**SAME, "owner": "spark"}, "text\n"),
        ({**SAME, "group": "root"}, "text\n"),
        # A link is replaced by the file, not followed.
        (LINK, None),
    ],
)
def test_a_file_that_differs_in_anything_is_written(have: Any, earlier_text: Any) -> None:
    assert file_changes([FILE], [], [], {"/etc/a": have}) == Changes(
        files=(FILE,), differences=(("/etc/a", earlier_text, "text\n"),)
    )


@pytest.mark.parametrize(
    "have",
    [
        None,
        {**SAME_FOLDER, "mode": "0755"},
        {**SAME_FOLDER, "owner": "root"},
        {**SAME_FOLDER, "group": "root"},
        {**SAME_FOLDER, "kind": "file", "seal": "x"},
    ],
)
def test_a_folder_that_differs_in_anything_is_made(have: dict[str, Any] | None) -> None:
    assert file_changes([], [FOLDER], [], {"/data": have}) == Changes(
        folders=(FOLDER,), differences=(("/data/ (0750 lockstep)", None, ""),)
    )


def test_what_must_go_is_removed_once_and_what_is_as_it_should_be_stays() -> None:
    existing_files = {"/etc/a": SAME, "/data": SAME_FOLDER, "/etc/old": None}
    assert not file_changes([FILE], [FOLDER], ["/etc/old"], existing_files)
    for text in ("text\n", ""):
        assert file_changes([], [], ["/etc/a"], {"/etc/a": {**SAME, "text": text}}) == Changes(
            remove=("/etc/a",), differences=(("/etc/a", text, None),)
        )


PRIVATE = ManagedFile("/etc/proxy.env", "http_proxy=http://me:secret@proxy\n", mode="0600")
HELD = {
    **{"kind": "file", "mode": "0600", "owner": "root", "group": "root", "text": None},
    "seal": "ef6d8f1d5f5f1f5f",
}


@pytest.mark.parametrize("have", [None, HELD, {**HELD, "mode": "0644"}])
def test_a_private_file_is_compared_by_a_keyed_hash_and_its_text_is_never_shown(have: Any) -> None:
    file = {**HELD, "seal": seal(KEY, PRIVATE.text.encode())}
    assert not file_changes([PRIVATE], [], [], {PRIVATE.path: file})
    changes = file_changes([PRIVATE], [], [], {PRIVATE.path: have})
    assert changes.files == (PRIVATE,)
    assert "secret" not in str(changes.differences)
    assert changes.differences == ((PRIVATE.path, "" if have else None, ""),)


def test_diff_compares_what_a_deploy_does() -> None:
    spark = host()
    file = next(file for file in spark.all_files if not file.private)
    have = {**SAME, "text": None, "seal": "another", "mode": "0600"}
    snapshot = snapshot_copy(perfect(spark))
    snapshot["answers"]["files"] = {file.path: have}
    keys = [("spark1", kind, file.path) for kind in ("file", "file mode")]
    assert difference_keys(diff_report((spark, snapshot))) == keys
    assert file_changes([file], [], [], {file.path: have}).files == (file,)
