"""Keys of clusters: there, for root alone, and the same on every member; nothing of one is told."""

from __future__ import annotations

import json
from pathlib import Path

from a_snapshot import KEY, copied, judged, named, perfect
from a_spark import pins_for, spark

from lockstep.drift.compare import shown
from lockstep.drift.subjects import questions
from lockstep.host.intended import Intended
from lockstep.inventory.cluster_join import joined
from lockstep.onhost.facts import files
from lockstep.onhost.facts.reading import seal_file
from lockstep.units.agent_unit import key_path

PATH = key_path("pair")
GLM = {"recipe": "deepseek-v4-flash-2x", "unit": "glm", "cluster": "pair"}
QWEN = {"recipe": "gpt-oss-120b", "unit": "qwen"}
NAMES = ("spark-1", "spark-2", "spark-3")


def members() -> tuple[Intended, ...]:
    """Two members of a cluster, and a host beside it."""
    # The inventory lists them the other way round; ranks count.
    plans = [
        spark(
            name,
            targets={"glm": GLM} if name in NAMES[:2] else {"qwen": QWEN},
            clusters={"pair": {"hosts": NAMES[:2]}},
            fabric_address=f"10.77.0.{number}",
            fabric={"interfaces": {"enp1s0f0np0": f"10.77.0.{number}/24"}},
        )
        for number, name in ((13, "spark-3"), (12, "spark-2"), (11, "spark-1"))
    ]
    return tuple(Intended(plan, pins_for(plan)) for plan in joined(plans, "site.py"))


BESIDE, SECOND, FIRST = members()


def same() -> dict[str, dict[str, dict[str, dict[str, str]]]]:
    """Snapshots of all three as they are asked to be."""
    found = {this.plan.name: copied(perfect(this)) for this in (BESIDE, SECOND, FIRST)}
    for name in NAMES[:2]:
        found[name]["facts"]["shared key"] = {PATH: 32 * "a"}
    return found


def differences(found: dict[str, dict[str, dict[str, dict[str, str]]]]) -> list[tuple[str, ...]]:
    """Host, kind, item and who puts it right."""
    report = judged(*((this, found[this.plan.name]) for this in (BESIDE, SECOND, FIRST)))
    return [(*each, item.how) for each, item in zip(named(report), report.differences, strict=True)]


def test_members_with_one_key_and_a_host_without_it_are_as_asked() -> None:
    assert differences(same()) == []


def test_a_key_that_is_missing_or_readable_by_others_is_drift() -> None:
    for value in (None, "0644 root:root"):
        found = same()
        if value is None:
            del found["spark-1"]["facts"]["secret"][PATH]
            del found["spark-1"]["facts"]["shared key"]
        else:
            found["spark-1"]["facts"]["secret"][PATH] = value
        assert differences(found) == [("spark-1", "secret", PATH, "deploy")]


def test_of_two_keys_the_one_of_the_higher_rank_is_wrong() -> None:
    found = same()
    found["spark-2"]["facts"]["shared key"] = {PATH: 32 * "b"}
    assert differences(found) == [("spark-2", "shared key", PATH, "deploy")]
    report = judged((SECOND, found["spark-2"]), (FIRST, found["spark-1"]))
    said = "expected as deployed, found other content"
    assert shown(report.differences[0]) == (PATH, [("", said)])


def test_a_key_that_could_not_be_read_is_not_guessed() -> None:
    found = same()
    del found["spark-2"]["facts"]["shared key"]
    found["spark-2"]["faults"] = {"files.secrets": "PermissionError"}  # type: ignore[dict-item]
    assert differences(found) == []


def test_a_host_tells_of_a_key_only_whose_it_is_and_a_keyed_hash(tmp_path: Path) -> None:
    key, api = tmp_path / "cluster-pair.key", tmp_path / "api-key"
    # As an operator may bring one: an "=" does not make a name of what is before it.
    for path in (key, api):
        path.write_text("c2VjcmV0=\n")
        path.chmod(0o600)
    asked = questions(FIRST, key=KEY, deep=False)["files.secrets"]
    assert asked["shared"] == [PATH] and PATH in asked["secrets"]
    asked |= {"secrets": [str(key), str(api)], "shared": [str(key)], "token": "/nonexistent"}
    found = {(kind, path): value for kind, path, value in files.secrets(asked)}
    assert found.pop(("shared key", str(key))) == seal_file(KEY.hex(), str(key))
    assert set(found) == {("secret", str(key)), ("secret", str(api))}
    assert str(found["secret", str(key)]).startswith("0600 ")
    assert "c2VjcmV0" not in json.dumps(list(found.values()))


def test_of_two_authorities_neither_is_right_and_nobody_replaces_one() -> None:
    gateway = {"bind": "0.0.0.0", "tls": "own"}
    plans = [spark(name, gateway=gateway, targets={"qwen": QWEN}) for name in NAMES[:2]]
    hosts = [Intended(plan, pins_for(plan)) for plan in joined(plans, "site.py")]
    [authority] = [key for key in hosts[0].shared_keys if key.announcement]
    found = {this.plan.name: copied(perfect(this)) for this in hosts}
    for name, letter in zip(NAMES, "ab", strict=False):
        found[name]["facts"]["shared key"] = {authority.path: 32 * letter}
    report = judged(*((this, found[this.plan.name]) for this in hosts))
    [row] = report.differences
    assert (row.host, row.kind, row.item, row.how) == ("", "shared key", authority.path, "decide")
