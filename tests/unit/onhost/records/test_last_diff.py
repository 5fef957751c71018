"""The findings of the last diff stay on the host, for root and the gateway alone."""

from __future__ import annotations

import grp
import os
import stat

import pytest

from lockstep.onhost.core import layout
from lockstep.onhost.records import last_diff

ASKED = {"differences": [{"severity": "note", "kind": "apt package", "item": "jq"}]}


def test_it_is_kept_with_its_time(tmp_path):
    paths = layout.Paths(tmp_path)
    assert last_diff.load(paths) is None
    assert last_diff.answer_request(ASKED, paths) == {}
    record = last_diff.load(paths)
    assert record is not None and record.pop("at") > 1_700_000_000
    assert record == ASKED


@pytest.mark.parametrize(("group", "mode"), [("no-such-group-here", 0o600), (None, 0o640)])
def test_only_the_gateways_group_may_read_it(tmp_path, monkeypatch, group, mode):
    paths = layout.Paths(tmp_path)
    monkeypatch.setattr(last_diff, "GATEWAY", group or grp.getgrgid(os.getgid()).gr_name)
    last_diff.answer_request(ASKED, paths)
    assert stat.S_IMODE(paths.diff.stat().st_mode) == mode
