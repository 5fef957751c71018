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
    questions = {
        "weights": {
            "cache_dir": str(tmp_path / "hub"),
            "endpoint": "",
            "repositories": [repository],
        }
    }
    spec = weights_spec.parse_spec(json.dumps(questions["weights"]))
    (spec_repository,) = spec.repositories
    path = spec.snapshot_folder(spec_repository.model, REVISION) / "a/model.safetensors"
    for target_path in (
        path,
        spec.stamp_path(spec_repository),
        spec.stamps_folder / f"org--other@{REVISION}.json",
    ):
        target_path.parent.mkdir(parents=True, exist_ok=True)
        target_path.write_text("xyz")
    facts = [
        target_path[1:]
        for target_path in weights.every({**questions, "deep": True})
        if "content" in target_path[0]
    ]
    assert facts == [(str(path), "other content")]
    subprocess.run(
        KINDS["weights content"].mending_command(DriftRow(str(path), found="x")), check=True
    )
    assert [target_path.name for target_path in spec.stamps_folder.iterdir()] == [
        f"org--other@{REVISION}.json"
    ]


@pytest.mark.parametrize(
    ("value", "command"),
    [
        ("/usr/lib/systemd/system/a.service", ("systemctl", "cat", "a.service")),
        ("/run/systemd/system/a.service", ("rm", "/run/systemd/system/a.service")),
    ],
)
def test_a_unit_from_elsewhere_is_removed_only_where_no_package_has_it(
    value: str, command: tuple[str, ...]
) -> None:
    assert KINDS["unit path"].mending_command(DriftRow("a.service", "/etc/x", value)) == command


def test_a_checkout_is_put_right_as_the_account_that_it_belongs_to(
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
