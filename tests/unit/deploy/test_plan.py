"""`lockstep plan`: what would run where, without contacting a host."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from a_spark import pins_for
from an_inventory import PAIR, write_inventory
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
INVENTORY = """
from lockstep.deploy.checked import checked

_models = {
    "qwen": {"recipe": "qwen3.6-35b-a3b-prismaquant-dflash-k3", "unit": "vllm-qwen36"},
    "mistral": {
        "recipe": "mistral-small-4-119b-nvfp4-sglang-eagle",
        "fallback": "mistral-small-4-119b-nvfp4-sglang",
        "unit": "sglang-mistral4",
        "image": "lmsysorg/sglang:latest",
    },
    "mistral-vllm": {"recipe": "mistral-small-4-119b-nvfp4-vllm-fork", "unit": "vllm"},
}
_names = ("spark-1.local", "spark-2.local")
pair = checked(__file__, [(name, {"models": _models}) for name in _names])
"""


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("inventories") / "pair.py"
    path.write_text(INVENTORY)
    return path


@pytest.fixture(scope="module")
def hosts(file: Path) -> tuple[HostPlan, ...]:
    return inventory_file.load(file)


def test_two_sparks_get_the_same_models_and_the_second_fetches_from_the_first(
    hosts: tuple[HostPlan, ...],
) -> None:
    whole_plan = plan.plan_hosts(hosts, Pins(), KNOWN)
    first, second = whole_plan.hosts
    assert first.models == second.models
    rows = {item.name: (item.address, item.fit and item.fit.verdict) for item in first.models}
    assert rows["qwen"] == ("127.0.0.1:30001", "fits")
    needs = {item.name: round((item.fit and item.fit.needs_gib) or 0, 1) for item in first.models}
    assert needs == {"qwen": 75.0, "mistral": 95.9, "mistral-vllm": 106.0}
    assert first.from_peers == ()
    assert second.from_peers == second.downloads == first.downloads
    weights = {item.name: item.size for item in first.downloads}
    assert weights["rdtand/Qwen3.6-35B-A3B-PrismaQuant-4.75bit-vllm"] == 22_900_000_000
    assert weights[SGLANG] is None


def test_a_hubs_password_is_not_shown(hosts: tuple[HostPlan, ...]) -> None:
    settings = hosts[0].settings
    sources = replace(settings.sources, hub="https://anna:geheim@hub.example")
    mirrored_host = replace(hosts[0], settings=replace(settings, sources=sources))
    [host] = plan.plan_hosts([mirrored_host], Pins(), KNOWN).hosts
    assert {item.source for item in host.downloads} == {"https://hub.example", "registry"}


def test_the_articles_stack_has_no_error(hosts: tuple[HostPlan, ...]) -> None:
    whole_plan = plan.plan_hosts(hosts, Pins(), KNOWN)
    assert not [item for item in whole_plan.findings if item.severity == "error"]


def test_a_finding_that_hosts_share_stands_once_and_names_them(hosts: tuple[HostPlan, ...]) -> None:
    whole_plan = plan.plan_hosts(hosts, Pins(), KNOWN)
    findings = [item for item in whole_plan.findings if item.code == "eagle-on-moving-tag"]
    assert [item.subject for item in findings] == [
        "spark-1.local, spark-2.local: mistral (mistral-small-4-119b-nvfp4-sglang-eagle)"
    ]


def test_a_recorded_digest_is_what_would_run(hosts: tuple[HostPlan, ...]) -> None:
    pin = ImagePin("sha256:" + "0" * 64, "aarch64", 12_000_000_000)
    whole_plan = plan.plan_hosts(hosts, Pins(images={SGLANG: pin}), KNOWN)
    assert "eagle-on-moving-tag" not in {item.code for item in whole_plan.findings}
    sizes = {item.name: item.size for item in whole_plan.hosts[0].downloads}
    assert sizes[SGLANG] == 12_000_000_000


def test_the_locked_entry_point_is_what_a_command_meets(hosts: tuple[HostPlan, ...]) -> None:
    pin = ImagePin("sha256:" + "0" * 64, "aarch64", 1, entrypoint=("sglang", "serve"))
    bare = [
        replace(model, recipe=replace(model.recipe, executor_config={}), fallback=None)
        for model in hosts[0].models
    ]
    whole_plan = plan.plan_hosts(
        [replace(hosts[0], models=bare)], Pins(images={SGLANG: pin}), KNOWN
    )
    [finding] = [item for item in whole_plan.findings if item.code == "entry-point"]
    assert "mistral (" in finding.subject and SGLANG in finding.message


def test_what_the_inventory_changes_is_what_is_judged(hosts: tuple[HostPlan, ...]) -> None:
    host = hosts[0]
    model = host.models[0]
    loud = replace(
        model,
        data=replace(model.data, bind="0.0.0.0", overrides={"gpu_memory_utilization": 0.95}),
    )
    whole_plan = plan.plan_hosts([replace(host, models=(loud,))], Pins(), KNOWN)
    codes = {item.code for item in whole_plan.findings}
    assert {"utilization-too-high", "fit-none"} <= codes
    # An engine that is open to others stays on loopback itself, behind the listener with the key.
    assert "public-address" not in codes


def test_a_locked_image_leaves_a_model_its_own_overrides(hosts: tuple[HostPlan, ...]) -> None:
    """The overrides of its fallback stand beside them."""
    model = next(model for model in hosts[0].models if model.name == "mistral")
    data = replace(model.data, fallback_overrides={"gpu_memory_utilization": 0.5})
    (reference,) = {model.image_of(recipe) for recipe in model.recipes}
    assert reference
    pins = Pins(images={reference: ImagePin("sha256:" + "3" * 64, "aarch64", 1)})
    with_both = replace(hosts[0], models=(replace(model, data=data),))
    (planned_host,) = plan.plan_hosts([with_both], pins, KNOWN).hosts
    assert planned_host.models[0].fit == plan.plan_hosts(hosts, pins, KNOWN).hosts[0].models[1].fit


def test_keys_that_differ_from_their_default_are_shown(tmp_path: Path) -> None:
    more = '"unit": "vllm", "start_timeout_s": 2400, "minimum": {"decode_tok_s": 20, "sense": True}'
    file = tmp_path / "pair.py"
    file.write_text(INVENTORY.replace('"unit": "vllm"', more))
    output = " ".join(CliRunner().invoke(main, ["plan", "-i", str(file)]).output.split())
    keys = "start_timeout_s 2400; minimum.decode_tok_s 20.0; minimum.sense True"
    assert f"mistral-vllm: mistral-small-4-119b-nvfp4-vllm-fork; {keys}" in output
    document = json.loads(CliRunner().invoke(main, ["plan", "-i", str(file), "--json"]).output)
    assert [model["settings"] for model in document["hosts"][0]["models"]] == [
        {},
        {},
        {"start_timeout_s": 2400, "minimum": {"decode_tok_s": 20.0, "sense": True}},
    ]


def test_an_image_whose_engine_could_not_be_asked_is_named_with_the_reason(
    hosts: tuple[HostPlan, ...],
) -> None:
    pin = ImagePin("sha256:" + 64 * "0", "aarch64", 1)
    silent = replace(pin, unanswered="SGLang 0.5.23 cannot be imported: no libcuda.so.1")
    findings = [
        {item.subject.split(" ")[2]: item for item in whole_plan.findings if item.code == CODE}
        for whole_plan in (
            plan.plan_hosts(hosts, Pins(images={SGLANG: image}), KNOWN) for image in (pin, silent)
        )
    ]
    assert findings[0] == {}
    assert set(findings[1]) == {"mistral"}
    assert findings[1]["mistral"].severity == "warning"
    assert "lmsysorg/sglang:latest could not be asked" in findings[1]["mistral"].message
    assert silent.unanswered in findings[1]["mistral"].message


CODE = "engine-not-asked"


def test_a_released_vllm_is_judged_by_its_own_version(hosts: tuple[HostPlan, ...]) -> None:
    host = hosts[0]
    engine = replace(host.settings.engine, git=None, release="vllm==0.32.0")
    model = next(item for item in host.models if item.name == "mistral-vllm")
    released_host = replace(host, settings=replace(host.settings, engine=engine), models=(model,))
    whole_plan = plan.plan_hosts([released_host], Pins(), KNOWN)
    # The fork's recipe has variables that 0.24 dropped, and says so by its engine_versions.
    assert {item.code for item in whole_plan.findings} == {"engine-version"}


def test_the_command_gives_programs_the_same_and_ends_well_with_warnings(file: Path) -> None:
    result = CliRunner().invoke(main, ["plan", "-i", str(file), "--json"])
    assert result.exit_code == 0
    document = json.loads(result.output)
    assert [host["name"] for host in document["hosts"]] == ["spark-1.local", "spark-2.local"]
    assert all(item["severity"] == "warning" for item in document["findings"])


def test_the_command_ends_with_1_where_a_deploy_would_be_stopped(tmp_path: Path) -> None:
    much = '"unit": "vllm-qwen36", "overrides": {"gpu_memory_utilization": 0.97}'
    worse = tmp_path / "pair.py"
    worse.write_text(INVENTORY.replace('"unit": "vllm-qwen36"', much))
    result = CliRunner().invoke(main, ["plan", "-i", str(worse), "--json"])
    assert result.exit_code == 1, result.output
    assert "error" in {item["severity"] for item in json.loads(result.output)["findings"]}


def test_one_screen_of_80_columns(file: Path) -> None:
    output = CliRunner().invoke(main, ["plan", "-i", str(file)]).output
    assert "the same as spark-1.local" in output
    assert "less what is there already." in " ".join(output.split())
    assert max(map(len, output.splitlines())) <= 80


def test_a_fork_is_judged_by_the_version_of_the_vllm_that_it_descends_from(
    hosts: tuple[HostPlan, ...],
) -> None:
    """Its recipe is for vLLM below 0.24; setuptools-scm would have called any fork 0.1.dev."""
    pins = pins_for(hosts[0])
    codes = {item.code for item in plan.plan_hosts(hosts, pins, KNOWN).findings}
    assert "engine-version" not in codes
    [(url, pin)] = pins.precompiled.items()
    newer = replace(pin, path=pin.path.replace("vllm-0.19.1", "vllm-0.32.1"))
    moved_pins = replace(pins, precompiled={url: newer})
    codes = {item.code for item in plan.plan_hosts(hosts, moved_pins, KNOWN).findings}
    assert "engine-version" in codes


def test_each_member_of_a_cluster_is_counted_with_its_own_memory(tmp_path: Path) -> None:
    """One of the pair has 64 GB: the plan names it alone, before any host is asked."""
    small = {**PAIR["spark-2.local"], "expected": {"memory_gib": 58.0}}
    path = write_inventory(tmp_path, {**PAIR, "spark-2.local": small})
    whole_plan = plan.plan_hosts(inventory_file.load(path), Pins(), KNOWN)
    verdicts = [item.fit and item.fit.verdict for host in whole_plan.hosts for item in host.models]
    assert verdicts == ["fits", "does not fit"]
    [finding] = [item for item in whole_plan.findings if item.code == "fit-none"]
    assert finding.subject.startswith("spark-2.local: ")
