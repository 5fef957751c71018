"""`lockstep plan`: what would run where, without contacting a host."""

import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from a_spark import pins_for
from an_inventory import PAIR, TWO, write_inventory
from click.testing import CliRunner

from lockstep.cli.main import main
from lockstep.deploy import plan
from lockstep.fit import catalogue as catalogues
from lockstep.inventory import inventory_file
from lockstep.inventory.host import HostPlan
from lockstep.lock.pins import ImagePin, Pins

KNOWN = catalogues.load()
SGLANG = "lmsysorg/sglang:latest"
# Its own inventory: the shipped one is the user's to edit.
MODELS: dict[str, dict[str, Any]] = {
    "qwen": {"recipe": "qwen3.6-35b-a3b-prismaquant-dflash-k3", "unit": "vllm-qwen36"},
    "mistral": {
        "recipe": "mistral-small-4-119b-nvfp4-sglang-eagle",
        "fallback": "mistral-small-4-119b-nvfp4-sglang",
        "unit": "sglang-mistral4",
        "image": SGLANG,
    },
    "mistral-vllm": {"recipe": "mistral-small-4-119b-nvfp4-vllm-fork", "unit": "vllm"},
}


def write_pair(folder: Path, name: str = "qwen", **more: Any) -> Path:
    """An inventory of two Sparks, with more data of a model."""
    models = {**MODELS, name: {**MODELS[name], **more}}
    return write_inventory(folder, {host: {"models": models} for host in TWO})


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> tuple[HostPlan, ...]:
    return inventory_file.load(write_pair(tmp_path_factory.mktemp("inventories")))


def plan_of(hosts: Iterable[HostPlan], pins: Pins | None = None) -> plan.DeployPlan:
    return plan.plan_hosts(tuple(hosts), pins or Pins(), KNOWN)


def codes(hosts: Iterable[HostPlan], pins: Pins | None = None) -> set[str]:
    return {item.code for item in plan_of(hosts, pins).findings}


def test_the_second_of_two_sparks_fetches_from_the_first(hosts: tuple[HostPlan, ...]) -> None:
    whole_plan = plan_of(hosts)
    first, second = whole_plan.hosts
    assert first.models == second.models
    rows = {item.name: (item.address, item.fit and item.fit.verdict) for item in first.models}
    assert rows["qwen"] == ("127.0.0.1:30001", "fits")
    assert first.from_peers == ()
    assert second.from_peers == second.downloads == first.downloads
    weights = {item.name: item.size for item in first.downloads}
    assert weights["rdtand/Qwen3.6-35B-A3B-PrismaQuant-4.75bit-vllm"] == 22_900_000_000
    assert weights[SGLANG] is None
    # A finding that hosts share stands once and names them.
    findings = [item for item in whole_plan.findings if item.code == "eagle-on-moving-tag"]
    assert [item.subject for item in findings] == [
        "spark-1.local, spark-2.local: mistral (mistral-small-4-119b-nvfp4-sglang-eagle)"
    ]


def test_a_hubs_password_is_not_shown(hosts: tuple[HostPlan, ...]) -> None:
    settings = hosts[0].settings
    sources = replace(settings.sources, hub="https://anna:geheim@hub.example")
    mirrored_host = replace(hosts[0], settings=replace(settings, sources=sources))
    [host] = plan_of([mirrored_host]).hosts
    assert {item.source for item in host.downloads} == {"https://hub.example", "registry"}


def test_a_locked_image_is_what_would_run(hosts: tuple[HostPlan, ...]) -> None:
    pin = ImagePin("sha256:" + "0" * 64, "aarch64", 12_000_000_000, entrypoint=("sglang", "serve"))
    pins = Pins(images={SGLANG: pin})
    assert not {"eagle-on-moving-tag", "engine-not-asked"} & codes(hosts, pins)
    sizes = {item.name: item.size for item in plan_of(hosts, pins).hosts[0].downloads}
    assert sizes[SGLANG] == 12_000_000_000
    # A command meets its entry point.
    bare = [
        replace(model, recipe=replace(model.recipe, executor_config={}), fallback=None)
        for model in hosts[0].models
    ]
    findings = plan_of([replace(hosts[0], models=bare)], pins).findings
    [finding] = [item for item in findings if item.code == "entry-point"]
    assert "mistral (" in finding.subject and SGLANG in finding.message
    # An engine that could not be asked is named with the reason.
    silent = replace(pin, unanswered="SGLang 0.5.23 cannot be imported: no libcuda.so.1")
    findings = plan_of(hosts, Pins(images={SGLANG: silent})).findings
    findings = tuple(item for item in findings if item.code == "engine-not-asked")
    assert {item.severity for item in findings} == {"warning"}
    assert all(silent.unanswered in item.message for item in findings)


def test_what_the_inventory_changes_is_what_is_judged(hosts: tuple[HostPlan, ...]) -> None:
    model, mistral, _ = hosts[0].models
    overrides = {"gpu_memory_utilization": 0.95}
    loud = replace(model, data=replace(model.data, bind="0.0.0.0", overrides=overrides))
    loud_codes = codes([replace(hosts[0], models=(loud,))])
    assert {"utilization-too-high", "fit-none"} <= loud_codes
    # An engine that is open to others stays on loopback itself, behind the listener with the key.
    assert "public-address" not in loud_codes
    # A locked image leaves a model its own overrides beside those of its fallback.
    data = replace(mistral.data, fallback_overrides={"gpu_memory_utilization": 0.5})
    pins = Pins(images={SGLANG: ImagePin("sha256:" + "3" * 64, "aarch64", 1)})
    with_both = replace(hosts[0], models=(replace(mistral, data=data),))
    (planned_host,) = plan_of([with_both], pins).hosts
    assert planned_host.models[0].fit == plan_of(hosts, pins).hosts[0].models[1].fit


def test_a_fork_of_vllm_is_judged_by_its_ancestors_version(hosts: tuple[HostPlan, ...]) -> None:
    host = hosts[0]
    engine = replace(host.settings.engine, git=None, release="vllm==0.32.0")
    settings = replace(host.settings, engine=engine)
    released_host = replace(host, settings=settings, models=host.models[2:])
    # The fork's recipe has variables that 0.24 dropped, and says so by its engine_versions.
    assert codes([released_host]) == {"engine-version"}
    # setuptools-scm would have called any fork 0.1.dev.
    pins = pins_for(host)
    assert "engine-version" not in codes(hosts, pins)
    [(url, pin)] = pins.precompiled.items()
    newer = replace(pin, path=pin.path.replace("vllm-0.19.1", "vllm-0.32.1"))
    assert "engine-version" in codes(hosts, replace(pins, precompiled={url: newer}))


def test_each_member_of_a_cluster_is_counted_with_its_own_memory(tmp_path: Path) -> None:
    """One of the pair has 64 GB: the plan names it alone, before any host is asked."""
    small = {**PAIR["spark-2.local"], "expected": {"memory_gib": 58.0}}
    path = write_inventory(tmp_path, {**PAIR, "spark-2.local": small})
    whole_plan = plan_of(inventory_file.load(path))
    verdicts = [item.fit and item.fit.verdict for host in whole_plan.hosts for item in host.models]
    assert verdicts == ["fits", "does not fit"]
    [finding] = [item for item in whole_plan.findings if item.code == "fit-none"]
    assert finding.subject.startswith("spark-2.local: ")
    first, second = (host.models[0] for host in whole_plan.hosts)
    assert (first.cluster, first.rank, first.address) == ("pair", 0, "127.0.0.1:30005")
    assert (second.cluster, second.rank, second.address) == ("pair", 1, "at rank 0")


def run(file: Path, *words: str, code: int = 0) -> str:
    result = CliRunner().invoke(main, ["plan", "-i", str(file), *words])
    assert result.exit_code == code, result.output
    return result.output


def test_the_command_says_what_hosts_share_once_and_ends_well_with_warnings(tmp_path: Path) -> None:
    file = write_pair(tmp_path)
    assert "the same as spark-1.local" in run(file)
    document = json.loads(run(file, "--json"))
    assert [host["name"] for host in document["hosts"]] == ["spark-1.local", "spark-2.local"]
    assert {item["severity"] for item in document["findings"]} == {"warning"}


def test_keys_that_are_no_defaults_are_shown_and_an_error_ends_with_1(tmp_path: Path) -> None:
    minimum = {"decode_tok_s": 20, "sense": True}
    file = write_pair(tmp_path, "mistral-vllm", start_timeout_s=2400, minimum=minimum)
    keys = "start_timeout_s 2400; minimum.decode_tok_s 20.0; minimum.sense True"
    line = f"mistral-vllm: mistral-small-4-119b-nvfp4-vllm-fork; {keys}"
    assert line in " ".join(run(file).split())
    models = json.loads(run(file, "--json"))["hosts"][0]["models"]
    settings = {"start_timeout_s": 2400, "minimum": minimum}
    assert [model["settings"] for model in models] == [{}, {}, settings]
    file = write_pair(tmp_path, overrides={"gpu_memory_utilization": 0.97})
    findings = json.loads(run(file, "--json", code=1))["findings"]
    assert "error" in {item["severity"] for item in findings}
