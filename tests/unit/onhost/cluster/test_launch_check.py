"""Things that must be the same on every member, and the display of members that differ."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from onhost_fakes import FakeSystemd, host_root

from lockstep.cli.cluster.status import judge_cluster
from lockstep.onhost.cluster import cluster_status, launch_check, run_records
from lockstep.onhost.core import config, topology
from lockstep.onhost.records import generations

UNIT = "vllm-glm.service"
FILE = f"/etc/systemd/system/{UNIT}"
LAUNCHER = "/data/scripts/llm/vllm-glm-launch.sh"
OTHER = "/etc/systemd/system/vllm-qwen.service"
MODELS = "/etc/lockstep/models.json"
DROP_IN = f"/run/systemd/system/{UNIT}.d/debug.conf"
LINKS = ("enp1s0f0np0", "enP2p1s0f0np0")
ADDRESSES = {"spark1": "10.9.9.8", "spark2": "10.9.9.9"}
MEMBERS = tuple(topology.TopologyMember(*member) for member in ADDRESSES.items())
PAIR = topology.Cluster("pair", 0, 7079, MEMBERS, dict.fromkeys(LINKS, ""))
MODEL = config.Model("glm", UNIT, "", "m", 9.0, image="vllm@sha256:1", cluster="pair", alike="a1")
CHANGED = "changed since the deploy"


class Spark:
    """One member as a deploy left it."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.paths = host_root(folder / "root", {})
        self.systemd = FakeSystemd(folder / "systemd", monkeypatch)
        self.systemd.unit(UNIT)
        for interface in LINKS:
            self.file(f"/sys/class/net/{interface}/mtu", "9000\n")
        self.file("/proc/driver/nvidia/version", "NVRM: Kernel Module for aarch64  580.95.05")
        models = self.paths.models.read_text()
        self.deployed_files = {FILE: f"ExecStart={LAUNCHER}", LAUNCHER: "exec", MODELS: models}
        for path, text in {**self.deployed_files, OTHER: "ExecStart=vllm"}.items():
            self.file(path, text)
        self.record()

    def file(self, path: str, text: str) -> None:
        place = self.paths.root / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)

    def record(self, folder: str | None = None) -> None:
        """The newest record: what is there now."""
        files = [{"path": path, "text": text} for path, text in self.deployed_files.items()]
        record = {"number": 1, "digest": "d", "lock": "l0", "images": [], "weights": {}}
        record |= {"engine": {"folder": folder, "id": "abc"}, "files": files}
        self.file("/var/lib/lockstep-deploy/generations/0001.json", json.dumps(record))

    def facts(self, **changes: object) -> dict[str, str]:
        return launch_check.launch_facts(replace(MODEL, **changes), PAIR, self.paths)


@pytest.fixture
def spark(tmp_path, monkeypatch):
    return Spark(tmp_path, monkeypatch)


def test_what_is_the_same_makes_no_difference_and_what_is_not_gives_every_value(spark):
    facts = spark.facts()
    assert launch_check.differences({"spark1": facts, "spark2": dict(facts)}) == []
    assert facts.pop("kernel")
    hashes = {"hash of the lock": "l0", "hash of what was deployed for glm": "a1"}
    link = {"driver": "580.95.05", "MTU of the fabric": "9000"}
    assert facts == {**link, **hashes, CHANGED: "nothing"}
    facts = {"spark1": {"driver": "580.95", "a": "1"}, "spark2": {"driver": "590.44"}}
    differences = ["a: spark1 1, spark2 none", "driver: spark1 580.95, spark2 590.44"]
    assert launch_check.differences(facts) == differences


def test_where_nothing_was_deployed_that_is_said(spark):
    # A deploy starts the cluster before its end: what it wrote is compared, not what was there.
    record = json.loads((spark.paths.generations / "0001.json").read_text())
    begun_record = {**record, "digest": "new", "lock": "another"}
    generations.record_begun(spark.paths, begun_record)
    assert spark.facts()["hash of the lock"] == "another"
    # One that failed before it wrote anything here says nothing of what is.
    files = [{**file, "text": "new"} for file in record["files"]]
    generations.record_begun(spark.paths, {**begun_record, "files": files})
    facts = spark.facts()
    assert (facts["hash of the lock"], facts[CHANGED]) == (record["lock"], "nothing")
    generations.remove_begun_record(spark.paths)
    (spark.paths.generations / "0001.json").unlink()
    assert spark.facts()["hash of the lock"] == "no deploy on record"


@pytest.mark.parametrize("path", [FILE, LAUNCHER, MODELS, DROP_IN])
def test_a_file_that_was_changed_by_hand_is_named_with_its_hash(spark, path):
    # A unit of another model is no matter.
    spark.file(OTHER, "changed")
    if path == DROP_IN:
        spark.systemd.unit(UNIT, DropInPaths=path)
    spark.file(path, "{}")
    first = spark.facts()[CHANGED]
    assert first.startswith(f"{path} (") and OTHER not in first
    spark.file(path, "{ }")
    # Two members that were both changed are not the same by that.
    assert spark.facts()[CHANGED] != first


def test_every_package_of_the_venv_counts_with_its_version(spark):
    engines = spark.paths.root / "opt/engines"
    packages = engines / "abc/venv/lib/python3.12/site-packages"
    packages.mkdir(parents=True)
    (engines / "current").symlink_to("abc")
    spark.record(folder="/opt/engines")
    first = spark.facts(image=None)["engine"]
    assert first.startswith("abc with packages ")
    (packages / "nvidia_nccl_cu13-2.28.3.dist-info").mkdir()
    assert spark.facts(image=None)["engine"] != first
    # An image brings its own.
    assert "engine" not in spark.facts()


@pytest.mark.parametrize(("names", "text"), [([], "as verified"), (["a"], "not as verified: a")])
def test_weights_that_are_not_as_verified_are_named(spark, monkeypatch, names, text):
    state = {"missing": [], "wrong_size": [], "not_merged": [], "unverified": names}
    monkeypatch.setattr(launch_check.weights_state, "state_of_model", lambda *_: state)
    assert spark.facts(weights=("org/name",))["weights org/name"] == text


def test_a_folder_of_the_operators_own_counts_by_names_and_sizes(spark):
    facts = []
    for text in ("1", "12"):
        spark.file("/data/own/a.safetensors", text)
        facts.append(spark.facts(weights=("/data/own",))["weights /data/own"])
    assert facts[0].startswith("1 files with names and sizes ") and facts[1] != facts[0]


def test_the_mtu_is_that_of_every_interface_and_a_driver_may_not_be_loaded(spark):
    (spark.paths.proc / "driver/nvidia/version").unlink()
    spark.file(f"/sys/class/net/{LINKS[1]}/mtu", "1500\n")
    facts = spark.facts()
    assert (facts["MTU of the fabric"], facts["driver"]) == ("1500 and 9000", "not loaded")
    (spark.paths.root / f"sys/class/net/{LINKS[1]}/mtu").unlink()
    assert spark.facts()["MTU of the fabric"] == "9000"


def member(state="hot", run="a", hot="glm", ready=True, reason=""):
    cluster_run = {"model": "glm", "run": run, "state": state, "reason": reason}
    return {
        "hot": hot,
        "models": {"glm": {"ready": ready}},
        "clusters": {"pair": {"run": cluster_run if state else None}},
    }


OFF = member(None, hot="qwen")
LOST = member("ended", hot=None, reason="spark1, rank 0, was not heard")
DOWN = member("down", hot=None, reason="3 starts in 30 min did not help")


@pytest.mark.parametrize(
    ("first", "second", "code", "message"),
    [
        (member(), member(ready=None), 0, "glm hot on spark1, spark2"),
        (member(), LOST, 1, "glm is not whole"),
        (member(), member(run="b"), 1, "glm is not whole"),
        (member(ready=False), member(), 1, "glm generates nothing"),
        (DOWN, OFF, 1, "left down"),
        (OFF, OFF, 0, "off"),
        (member(), "no route to host", 2, "could not be told"),
    ],
    ids=["well", "half", "two runs", "no token", "given up", "off", "silent"],
)
def test_a_group_that_is_not_well_is_a_finding(first, second, code, message):
    exit_code, lines = judge_cluster("pair", [*ADDRESSES], {"spark1": first, "spark2": second})
    assert (exit_code, lines[0], len(lines)) == (code, f"pair: {message}", 3)


def host(rank: int) -> config.HostConfig:
    members = tuple(topology.TopologyMember(f"spark{n}", f"10.0.0.{n}") for n in (1, 2))
    pair = topology.Cluster("pair", rank, 7079, members)
    model = config.Model("glm", "vllm-glm.service", "", "m", 90.0, cluster="pair")
    return config.HostConfig("spark1", {"glm": model}, clusters={"pair": pair})


def test_status_tells_who_is_silent_and_that_a_group_was_started_again():
    states = {"spark1": "hot", "spark2": "silent for 6 s"}
    run = run_records.ClusterRun(
        "pair", "glm", "a", since=900.0, members=states, reason="why", starts=(1.0,)
    )
    document = cluster_status.as_json(host(0), {"pair": run})
    head, *details = cluster_status.status_lines(document, 1000.0)
    assert head.startswith("cluster pair (spark1, spark2): glm hot since ")
    assert details == ["  spark2: silent for 6 s", "  started again 1 times; before: why"]


def test_a_rank_says_which_member_answers():
    texts = [cluster_status.answering_member_text(host(n), host(n).model("glm")) for n in (0, 1)]
    assert texts == [None, "rank 1 of 2; spark1 answers"]
