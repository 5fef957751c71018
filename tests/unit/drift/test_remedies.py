"""Commands to type on a host name the places and accounts of that host."""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import subprocess
from pathlib import Path

import pytest
from a_probe import program

from lockstep.drift.subjects import KINDS
from lockstep.onhost.facts import weights
from lockstep.onhost.weights import weights_spec
from lockstep.resources.fact_comparison import DriftRow

REVISION = 40 * "c"


def test_a_rotten_weight_is_forgotten_where_the_cache_of_this_host_is(tmp_path: Path) -> None:
    file = {"path": "a/model.safetensors", "size": 3, "sha256": hashlib.sha256(b"abc").hexdigest()}
    repository = {"model": "org/name", "revision": REVISION, "files": [file]}
    cache = str(tmp_path / "hub")
    question = {"cache_dir": cache, "endpoint": "", "repositories": [repository]}
    spec = weights_spec.parse_spec(json.dumps(question))
    (spec_repository,) = spec.repositories
    path = spec.snapshot_folder(spec_repository.model, REVISION) / "a/model.safetensors"
    other_stamp = spec.stamps_folder / f"org--other@{REVISION}.json"
    for written_path in (path, spec.stamp_path(spec_repository), other_stamp):
        written_path.parent.mkdir(parents=True, exist_ok=True)
        written_path.write_text("xyz")
    facts = list(weights.every({"weights": question, "deep": True}))
    contents = [fact[1:] for fact in facts if "content" in fact[0]]
    assert contents == [(str(path), "other content")]
    command = KINDS["weights content"].mending_command(DriftRow(str(path), found="x"))
    subprocess.run(command, check=True)
    assert list(spec.stamps_folder.iterdir()) == [other_stamp]


def test_a_unit_from_elsewhere_is_removed_only_where_no_package_has_it() -> None:
    for path, command in (
        ("/usr/lib/systemd/system/a.service", ("systemctl", "cat", "a.service")),
        ("/run/systemd/system/a.service", ("rm", "/run/systemd/system/a.service")),
    ):
        assert KINDS["unit path"].mending_command(DriftRow("a.service", "/etc/x", path)) == command


def test_a_checkout_is_put_right_as_its_account(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "the engine/vllm"
    source.mkdir(parents=True)
    program(tmp_path / "bin", "stat", 'printf "engines of %s" "$3"\n')
    program(tmp_path / "bin", "sudo", 'printf "%s\\n" "$@" > ' + shlex.quote(f"{tmp_path}/ran"))
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    row = DriftRow(str(source), "clean", "1 changed")
    subprocess.run(KINDS["checkout"].mending_command(row), check=True)
    lines = (tmp_path / "ran").read_text().splitlines()
    assert lines[:5] == ["-u", f"engines of {source}", "git", "-C", str(source)]
    assert lines[-2:] == ["stash", "--include-untracked"]
