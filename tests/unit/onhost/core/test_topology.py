"""What a host knows of its clusters: read from targets.json, with every fault named."""

from __future__ import annotations

import json

import pytest

from lockstep.onhost.core import common

TARGET = {
    "unit": "vllm-glm.service",
    "url": None,
    "model": "glm",
    "memory_gib": 90.0,
    "start_timeout_s": 1800,
    "cluster": "pair",
}
MEMBERS = [
    {"name": "spark1", "address": "10.77.0.11"},
    {"name": "spark2", "address": "10.77.0.12"},
]
PAIR = {"rank": 1, "port": 7079, "members": MEMBERS}


def load(tmp_path, **changes):
    data = {"host": "spark2", "targets": {"glm": TARGET}, "clusters": {"pair": PAIR}, **changes}
    path = tmp_path / "targets.json"
    path.write_text(json.dumps(data))
    return common.load_host(path)


def test_a_member_knows_its_rank_and_the_others(tmp_path):
    host = load(tmp_path)
    cluster = host.cluster("glm")

    assert (cluster.me.name, cluster.first.address) == ("spark2", "10.77.0.11")
    assert [member.name for member in cluster.others] == ["spark1"]
    assert cluster.member("spark2") is cluster.me
    # Only rank 0 answers clients.
    assert host.target("glm").url == ""


def test_a_host_without_clusters_has_none(tmp_path):
    host = load(tmp_path, clusters={}, targets={"own": {**TARGET, "cluster": None}})

    assert host.clusters == {}
    assert host.cluster("own") is None


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"clusters": {}}, "target glm, key \"cluster\": found 'pair', known: none"),
        ({"clusters": []}, 'key "clusters": expected an object, found []'),
        ({"clusters": {"pair": 3}}, "cluster pair: expected an object, found 3"),
        (
            {"clusters": {"pair": {**PAIR, "rank": 2}}},
            'cluster pair, key "rank": expected 0 to 1, found 2',
        ),
        ({"clusters": {"pair": {**PAIR, "port": "x"}}}, "cluster pair, key \"port\": found 'x'"),
        (
            {"clusters": {"pair": {**PAIR, "members": ["spark1"], "rank": 0}}},
            "cluster pair, key \"members\": expected name and address, found 'spark1'",
        ),
    ],
)
def test_what_is_wrong_is_named_with_its_key(tmp_path, changes, said):
    with pytest.raises(common.Problem) as problem:
        load(tmp_path, **changes)
    assert said in str(problem.value)
    assert problem.value.code == common.EXIT_USAGE
