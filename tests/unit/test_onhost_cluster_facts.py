"""What must be the same on every member, and how a difference is told."""

from __future__ import annotations

import hashlib
import json

import pytest
from onhost_fakes import FakeDocker, FakeSystemd, cluster_facts, clusters, common, host_root

UNIT = "vllm-glm.service"
IMAGE = "vllm/vllm-openai@sha256:" + "a" * 64
MEMBERS = (clusters.Member("spark1", "127.0.0.1"), clusters.Member("spark2", "10.9.9.9"))
PAIR = clusters.Cluster("pair", 0, 7079, MEMBERS)


@pytest.fixture
def spark(tmp_path, monkeypatch):
    """One member with an engine in a venv, weights of its own and a unit."""

    class Spark:
        def __init__(self) -> None:
            self.paths = host_root(tmp_path / "root", {})
            self.systemd = FakeSystemd(tmp_path / "systemd", monkeypatch)
            self.docker = FakeDocker(self.paths.docker_socket)
            self.argv("/venv/bin/vllm", "serve", "m", "--tensor-parallel-size", "2")
            self.interface("eth7", "9000")
            self.target = common.Target("glm", UNIT, "", "m", 9.0, 60, cluster="pair")
            version = self.paths.proc / "driver/nvidia/version"
            version.parent.mkdir(parents=True)
            version.write_text(
                "NVRM version: NVIDIA UNIX Open Kernel Module for aarch64  580.95.05"
            )

        def interface(self, name: str, mtu: str) -> None:
            folder = self.paths.root / "sys/class/net" / name
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "mtu").write_text(f"{mtu}\n")

        def argv(self, *words: str, environment: str = "") -> None:
            line = f"{{ path={words[0]} ; argv[]={' '.join(words)} ; ignore_errors=no ; pid=0 }}"
            self.systemd.unit(UNIT, ExecStart=line, Environment=environment)

        def facts(self, **changes: object) -> dict[str, str]:
            from dataclasses import replace

            target = replace(self.target, **changes)
            return cluster_facts.gather(target, PAIR, common.Host("spark1"), self.paths)

    spark = Spark()
    yield spark
    spark.docker.close()


def test_what_is_the_same_makes_no_difference(spark):
    facts = spark.facts()
    assert cluster_facts.differences({"spark1": facts, "spark2": dict(facts)}) == []
    assert facts["driver"] == "580.95.05"
    assert facts["lock"] == "no deploy on record"


def test_a_difference_gives_every_value():
    told = cluster_facts.differences(
        {"spark1": {"driver": "580.95", "a": "1"}, "spark2": {"driver": "590.44"}}
    )
    assert told == ["a: spark1 1, spark2 none", "driver: spark1 580.95, spark2 590.44"]


def test_long_values_are_shown_from_where_they_part():
    line = " ".join(["/usr/bin/docker", "run", *("--env", "A=1") * 20])
    (told,) = cluster_facts.differences(
        {"spark1": {"command line": f"{line} --tp 2"}, "spark2": {"command line": f"{line} --tp 4"}}
    )
    assert told == "command line: spark1 … 2, spark2 … 4"


def test_what_is_each_ranks_own_is_left_out(spark):
    own = "VLLM_HOST_IP=10.0.0.1 NCCL_SOCKET_IFNAME=eth7 NCCL_IB_HCA=roce0 NCCL_DEBUG=WARN"
    start = ("/venv/bin/vllm", "serve", "m")
    ranks = ("--node-rank", "0", "--master-addr", "10.0.0.1", "--port", "31000")
    spark.argv(*start, *ranks, environment=own)
    first = spark.facts()
    assert {key: value for key, value in first.items() if key.startswith("setting")} == {
        "setting NCCL_DEBUG": "WARN"
    }
    spark.argv(*start, "--node-rank=1", "--headless", environment="NCCL_DEBUG=WARN")
    assert cluster_facts.differences({"spark1": first, "spark2": spark.facts()}) == []


def test_a_launcher_is_read_for_what_it_starts(spark):
    script = spark.paths.root / "scripts/glm.sh"
    script.parent.mkdir()
    script.write_text(
        "#!/bin/sh\nif x; then\n  exec other\nfi\nexec /usr/bin/docker run \\\n"
        "  --env NCCL_ALGO=Ring \\\n  --env VLLM_HOST_IP=10.0.0.1 \\\n  image serve --node-rank 1\n"
    )
    spark.argv("/scripts/glm.sh")
    facts = spark.facts()
    assert facts["setting NCCL_ALGO"] == "Ring"
    assert facts["command line"] == "/usr/bin/docker run --env NCCL_ALGO=Ring --env image serve"


def test_the_image_is_known_by_digest_and_id(spark):
    spark.docker.images[IMAGE] = {"Id": "sha256:" + "b" * 64}
    found = spark.facts(image=IMAGE, container="c")["image vllm/vllm-openai"]
    assert found == f"sha256:{'a' * 12} is sha256:{'b' * 12}"
    del spark.docker.images[IMAGE]
    assert "not here" in spark.facts(image=IMAGE, container="c")["image vllm/vllm-openai"]


def test_every_package_of_the_venv_has_its_version(spark):
    folder = spark.paths.root / "opt/lockstep/engines"
    for name in ("torch-2.9.0.dist-info", "nvidia_nccl_cu13-2.28.3.dist-info"):
        (folder / "abc/venv/lib/python3.12/site-packages" / name).mkdir(parents=True)
    (folder / "current").symlink_to("abc")
    record = {
        **{"number": 1, "digest": "d", "lock": "l", "images": [], "weights": {}, "files": []},
        "engine": {"folder": "/opt/lockstep/engines", "id": "abc"},
    }
    spark.paths.generations.mkdir(parents=True)
    (spark.paths.generations / "0001.json").write_text(json.dumps(record))
    facts = spark.facts()
    assert (facts["lock"], facts["engine"]) == ("l", "abc")
    assert facts["engine package torch"] == "2.9.0"
    assert facts["engine package nvidia_nccl_cu13"] == "2.28.3"


def test_weights_that_changed_since_they_were_verified_are_named(spark, tmp_path):
    file = {"path": "a.safetensors", "size": 1, "sha256": hashlib.sha256(b"1").hexdigest()}
    repository = {"model": "org/name", "revision": "c" * 40, "files": [file]}
    hub = {"cache_dir": f"{tmp_path}/hub", "repositories": [repository]}
    spark.paths.weights.write_text(json.dumps(hub))
    place = tmp_path / "hub/models--org--name/snapshots" / ("c" * 40)
    place.mkdir(parents=True)
    (place / "a.safetensors").write_text("1")
    mtime = (place / "a.safetensors").stat().st_mtime_ns
    stamps = tmp_path / "lockstep-verified"
    stamps.mkdir()
    stamp = {"a.safetensors": {"size": 1, "mtime_ns": mtime, "sha256": file["sha256"]}}
    (stamps / f"org--name@{'c' * 40}.json").write_text(json.dumps(stamp))
    good = spark.facts(weights=("org/name",))["weights org/name"]
    assert good.startswith("cccccccccccc with hashes ") and good.endswith(", verified")
    (place / "a.safetensors").write_text("2")
    bad = spark.facts(weights=("org/name",))["weights org/name"]
    assert bad.endswith(", not as verified: a.safetensors")


def test_the_mtu_is_that_of_the_interface_with_the_fabrics_address(spark):
    assert cluster_facts.mtu("10.9.9.9", spark.paths) == "no interface has its address"
    spark.interface("lo", "65536")
    assert cluster_facts.mtu("127.0.0.1", spark.paths) == "65536"
