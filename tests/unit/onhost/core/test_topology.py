"""A host's knowledge of its clusters: read from models.json, with every fault named."""

from __future__ import annotations

import json

import pytest
from a_model import about

from lockstep.onhost.core import config, errors

GLM = about(name="glm", unit="vllm-glm.service", url="", model="glm", cluster="pair")
MEMBERS = [
    {"name": "spark1", "address": "10.77.0.11"},
    {"name": "spark2", "address": "10.77.0.12"},
]
PAIR = {"name": "pair", "rank": 1, "port": 7079, "members": MEMBERS}


def load(tmp_path, **changes):
    data = {"name": "spark2", "models": {"glm": GLM}, "clusters": {"pair": PAIR}, **changes}
    (tmp_path / "models.json").write_text(json.dumps(data))
    return config.load_host(tmp_path / "models.json")


def test_a_member_knows_its_rank_and_the_others(tmp_path):
    host = load(tmp_path)
    cluster = host.cluster_of_model("glm")
    assert (cluster.own_member.name, cluster.first_member.address) == ("spark2", "10.77.0.11")
    assert [member.name for member in cluster.other_members] == ["spark1"]
    # Only rank 0 answers clients.
    assert host.model("glm").url == ""
    lone = load(tmp_path, clusters={}, models={"own": {**GLM, "name": "own", "cluster": None}})
    assert (lone.clusters, lone.cluster_of_model("own")) == ({}, None)


@pytest.mark.parametrize(
    ("clusters", "message"),
    [
        ({}, "models.glm.cluster is not known; found 'pair'; allowed: none"),
        (
            {"pair": {**PAIR, "rank": 2}},
            "clusters.pair has no member of this host's rank; found 2; allowed: 0 to 1",
        ),
        (
            {"pair": {**PAIR, "members": ["spark1"], "rank": 0}},
            "clusters.pair.members[0] must be a mapping; found 'spark1'",
        ),
    ],
)
def test_what_is_wrong_is_named_with_its_key(tmp_path, clusters, message):
    with pytest.raises(errors.Problem) as problem:
        load(tmp_path, clusters=clusters)
    assert message in str(problem.value)
    assert problem.value.code == errors.EXIT_USAGE
