"""Keys of clusters: there, for root alone, and the same on every member; nothing of one is told."""

import json
from pathlib import Path
from typing import Any

from a_snapshot import KEY, diff_report, perfect, snapshot_copy
from a_spark import pins_for, spark
from an_identity import give_identity

from lockstep.drift.subjects import questions
from lockstep.files.managed_file import PEER_AUTHORITY as PATH
from lockstep.host.desired_state import DesiredState
from lockstep.inventory.cluster_join import join_clusters
from lockstep.onhost.core import layout
from lockstep.onhost.facts import files
from lockstep.onhost.facts.reader_helpers import seal_file
from lockstep.resources.files import file_facts

GLM = {"recipe": "deepseek-v4-flash-2x", "unit": "glm", "cluster": "pair"}
QWEN = {"recipe": "gpt-oss-120b", "unit": "qwen"}
NAMES = ("spark-1", "spark-2", "spark-3")


def members() -> tuple[DesiredState, ...]:
    """Two members of a cluster, and a host beside it."""
    # The inventory lists them the other way round.
    plans = [
        spark(
            name,
            models={"glm": GLM} if name in NAMES[:2] else {"qwen": QWEN},
            clusters={"pair": {"hosts": NAMES[:2]}},
            fabric_address=f"10.77.0.{number}",
            fabric={"interfaces": {"enp1s0f0np0": f"10.77.0.{number}/24"}},
        )
        for number, name in ((13, "spark-3"), (12, "spark-2"), (11, "spark-1"))
    ]
    return tuple(DesiredState(plan, pins_for(plan)) for plan in join_clusters(plans, "site.py"))


BESIDE, SECOND, FIRST = members()


def same_snapshots() -> dict[str, Any]:
    """Snapshots of all three hosts in their desired state."""
    snapshots = {
        desired_state.plan.name: snapshot_copy(perfect(desired_state))
        for desired_state in (BESIDE, SECOND, FIRST)
    }
    for name in NAMES[:2]:
        snapshots[name]["facts"]["shared key"] = {PATH: 32 * "a"}
    return snapshots


def differences(snapshots: dict[str, Any]) -> list[tuple[str, ...]]:
    """Host, kind, item and the person who puts it right, of each difference."""
    states = (BESIDE, SECOND, FIRST)
    report = diff_report(*((state, snapshots[state.plan.name]) for state in states))
    return [(item.host, item.kind, item.item, item.how) for item in report.differences]


def test_a_key_that_is_missing_damaged_readable_by_others_or_another_is_drift() -> None:
    # Members have one key, and the host beside them has none.
    assert differences(same_snapshots()) == []
    for value in (None, "0644 root:root", "damaged"):
        snapshots = same_snapshots()
        if value is None:
            del snapshots["spark-1"]["facts"]["secret"][PATH]
            del snapshots["spark-1"]["facts"]["shared key"]
        else:
            snapshots["spark-1"]["facts"]["secret"][PATH] = value
        assert differences(snapshots) == [("spark-1", "secret", PATH, "deploy")]
    # Of two keys the one of the later host is wrong.
    snapshots = same_snapshots()
    snapshots["spark-1"]["facts"]["shared key"] = {PATH: 32 * "b"}
    assert differences(snapshots) == [("spark-1", "shared key", PATH, "deploy")]
    # One that could not be read is not guessed.
    del snapshots["spark-2"]["facts"]["shared key"]
    snapshots["spark-2"]["faults"] = {"files": "PermissionError"}
    assert differences(snapshots) == []


def test_a_host_tells_of_a_key_only_whose_it_is_and_a_keyed_hash(tmp_path: Path) -> None:
    key, api = tmp_path / "peer-authority.pem", tmp_path / "api-key"
    for path in (key, api):
        path.write_text("c2VjcmV0=\n")
        path.chmod(0o600)
    question = questions(FIRST, key=KEY, deep=False)["files"]
    assert PATH in question["paths"]
    answer = files.read(question | {"paths": [str(key), str(api)]})
    facts = file_facts(answer, [str(key)])
    assert facts["shared key"] == {str(key): seal_file(KEY.hex(), str(key))}
    assert [value[:5] for value in facts["secret"].values()] == ["0600 ", "0600 "]
    assert "c2VjcmV0" not in json.dumps(answer)


def test_deploy_and_diff_see_that_a_certificate_is_damaged(tmp_path: Path) -> None:
    paths, name = layout.Paths(tmp_path), "lockstep:agent:spark-1"
    give_identity(paths, "spark-1")
    authority, identity = (
        str(paths.secrets / Path(path).name) for path in (PATH, *FIRST.certificates)
    )
    assert [*FIRST.certificates.values()] == [(PATH, name)]
    assert questions(FIRST, key=KEY, deep=False)["files"]["authorities"] == [PATH]
    question = {"key": KEY.hex(), "paths": [authority, identity], "absent": []}
    question |= {"authorities": [authority], "certificates": {identity: (authority, name)}}

    def damaged_files() -> list[str]:
        """Files that a deploy makes anew; `diff` calls the same ones damaged."""
        facts = file_facts(files.read(question), [authority])
        found_paths = [path for path in question["paths"] if facts["secret"][path] == "damaged"]
        assert (authority in facts["shared key"]) != (authority in found_paths)
        return found_paths

    whole = Path(identity).read_text()
    assert damaged_files() == []
    Path(identity).write_text(whole[:-80])
    assert damaged_files() == [identity]
    Path(authority).write_text(Path(authority).read_text()[30:])
    assert damaged_files() == [authority, identity]
    # Its certificate is whole, and what it signed counts.
    Path(identity).write_text(whole)
    assert damaged_files() == [authority]


def test_of_two_authorities_neither_is_right_and_nobody_replaces_one() -> None:
    gateway = {"bind": "0.0.0.0", "tls": "own"}
    plans = [spark(name, gateway=gateway, models={"qwen": QWEN}) for name in NAMES[:2]]
    hosts = [DesiredState(plan, pins_for(plan)) for plan in join_clusters(plans, "site.py")]
    [authority] = [key for key in hosts[0].shared_keys if key.announcement]
    assert questions(hosts[0], key=KEY, deep=False)["files"]["authorities"] == [authority.path]
    snapshots = [snapshot_copy(perfect(desired_state)) for desired_state in hosts]
    for snapshot, letter in zip(snapshots, "ab", strict=True):
        snapshot["facts"]["shared key"] = {authority.path: 32 * letter}
    report = diff_report(*zip(hosts, snapshots, strict=True))
    [row] = report.differences
    assert (row.host, row.kind, row.item, row.how) == ("", "shared key", authority.path, "decide")
