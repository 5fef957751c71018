"""A host's report on its records: of a generation that it is to be, and of persons' keys."""

import getpass
import grp
import json
import os
from pathlib import Path

import pytest

from lockstep.onhost.core import layout
from lockstep.onhost.facts import deploy_records
from lockstep.onhost.gateway.keys import Entry, entries_document
from lockstep.onhost.records import generations

KEY = "00" * 32
ANNA = Entry("anna", "2026-11-01T10:00:00Z", 64 * "a")


@pytest.fixture
def paths(tmp_path, monkeypatch) -> layout.Paths:
    paths = layout.Paths(tmp_path)
    monkeypatch.setattr(layout, "Paths", lambda: paths)
    return paths


def record_generation(paths: layout.Paths, digest: str) -> Path:
    """The host brought to a generation with one unit, which is returned, and one engine."""
    unit, engines = paths.root / f"{digest}.service", paths.root / "engines"
    (engines / digest).mkdir(parents=True, exist_ok=True)
    (engines / "current").unlink(missing_ok=True)
    (engines / "current").symlink_to(engines / digest)
    unit.write_text(f"{digest}\n")
    unit.chmod(0o644)
    owner_fields = {"owner": getpass.getuser(), "group": grp.getgrgid(os.getgid()).gr_name}
    file = {"path": str(unit), "text": f"{digest}\n", "mode": "0644", **owner_fields}
    contents = {"images": [], "weights": {}, "files": [file], "lock": "l", "digest": digest}
    engine = {"folder": str(engines), "id": digest}
    generations.add_record(paths, {**contents, "engine": engine})
    return unit


def test_each_difference_from_a_record_is_named(paths):
    unit = record_generation(paths, "aaaa")
    differences = deploy_records.differences_from_generation
    assert differences("aaaa") == []
    assert differences("bbbb") == ["no record of the generation bbbb"]
    unit.write_text("by hand\n")
    unit.chmod(0o600)
    text, mode = differences("aaaa")
    assert text == f"{unit}: another text" and "not 0644" in mode
    unit.unlink()
    assert differences("aaaa") == [f"{unit}: No such file or directory"]
    record_generation(paths, "bbbb")
    newest, _, current = differences("aaaa")
    assert newest == "the newest record is generation 2, another one"
    assert current.endswith("leads to bbbb, not to aaaa")


def test_changes_of_persons_keys_leave_the_host_without_their_hashes(paths):
    assert deploy_records.sealed_key_changes_and_fault(KEY) == {"changes": {}, "fault": ""}
    path = paths.gateway_keys
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(entries_document([ANNA])))
    facts = deploy_records.sealed_key_changes_and_fault(KEY)
    ((since, is_revoked, _),) = facts["changes"].values()
    assert (since, is_revoked) == (ANNA.since, False)
    assert str(ANNA.sha256) not in json.dumps(facts)
    path.write_text("{")
    assert "expected a JSON document" in deploy_records.sealed_key_changes_and_fault(KEY)["fault"]
