"""Tests that `make check` chooses after a change."""

from nearest_tests import NearestTests

NEAR = {
    "group_data/all.py": "tests/render/test_golden.py",
    "lab/up.py": "tests/unit/lab/test_copy.py",
    "lockstep/onhost/facts/__init__.py": "tests/unit/onhost/facts/test_readers.py",
    "tasks/run/ssh_connection.py": "tests/unit/fleet/test_login.py",
    "tests/helpers/onhost/a_webui.py": "tests/unit/onhost/backup/test_backup.py",
}


def test_importers_folders_and_what_a_file_fills_are_near() -> None:
    nearest = NearestTests()
    assert {file: test for file, test in NEAR.items() if test not in nearest.of(file)} == {}
