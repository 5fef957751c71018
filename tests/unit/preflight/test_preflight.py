"""Preflight: a healthy host gives no finding, each fault one; the table fits a terminal."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from a_spark import COMMIT, GIB, healthy, pins_for, spark

import lockstep
from lockstep import preflight
from lockstep.core.findings import CODES, FATAL, Finding
from lockstep.deploy.summary import findings_table
from lockstep.inventory.host import HostPlan
from lockstep.inventory.settings import Gpu
from lockstep.lock.engine_id import engine_id

PLAN = spark()
PINS = pins_for(PLAN)
NOW = 1_795_000_000.0
IMAGES = [
    f"127.0.0.1:7078/{name}@{PINS.images[image_name].digest}"
    for image_name, name in {
        "ghcr.io/spark-arena/dgx-vllm-eugr-nightly:2026082102": (
            "ghcr.io/spark-arena/dgx-vllm-eugr-nightly"
        ),
        "lmsysorg/sglang:v0.5.15.post1-cu130": "docker.io/lmsysorg/sglang",
        "ghcr.io/open-webui/open-webui:v0.12.4": "ghcr.io/open-webui/open-webui",
    }.items()
]

HEALTHY = healthy(PLAN, NOW)


def host_findings(facts: dict[str, Any], plan: HostPlan = PLAN) -> list[Finding]:
    return preflight.findings(plan, PINS, facts, now=NOW)


def test_a_healthy_host_has_no_finding() -> None:
    assert host_findings(HEALTHY) == []


def change(*path: str, to: Any) -> Callable[[dict[str, Any]], None]:
    """A function that sets one value inside the facts."""

    def apply(facts: dict[str, Any]) -> None:
        for key in path[:-1]:
            facts = facts[key]
        facts[path[-1]] = to

    return apply


FAULTS = {
    "architecture": (change("architecture", to="x86_64"), "it is x86_64, expected aarch64"),
    "dgx-os": (
        change("dgx", to={}),
        "it runs Ubuntu 24.04.3 LTS and not DGX OS: /etc/dgx-release is missing",
    ),
    "dgx-os, too old": (
        change("dgx", "DGX_SWBUILD_VERSION", to="6.3.1"),
        "DGX OS 6.3.1, expected >=7",
    ),
    "dgx-os, no version": (
        change("dgx", to={"DGX_NAME": "DGX Spark"}),
        "DGX OS unknown, expected >=7",
    ),
    "cuda": (
        change("cuda", to={}),
        "/usr/local/cuda is no toolkit, ptxas does not run, expected 13.0 or a later one of 13, "
        "with ptxas",
    ),
    "cuda, another major": (
        change("cuda", "nvcc", to="14.0"),
        "/usr/local/cuda is 14.0, expected 13.0 or a later one of 13, with ptxas",
    ),
    "driver": (
        change("gpu", to={"fault": "NVIDIA-SMI has failed"}),
        "the driver does not answer: NVIDIA-SMI has failed",
    ),
    "gpu": (
        change("gpu", to={"name": "NVIDIA H100", "driver_version": "580.1", "compute_cap": "9.0"}),
        "GPU NVIDIA H100 has compute capability 9.0, expected 12.1",
    ),
    "docker": (
        change("docker", to={"fault": "Cannot connect to the Docker daemon"}),
        "Docker cannot be asked: Cannot connect to the Docker daemon",
    ),
    "memory": (
        change("memory", "MemTotal", to=64 * GIB),
        "64.0 GiB of unified memory, expected 115 GiB",
    ),
    "port-taken": (
        change(
            "listeners",
            to={"30001": {"process": "python3", "unit": "/user.slice/x.scope", "ours": False}},
        ),
        "port 30001 of qwen is taken by python3 (/user.slice/x.scope)",
    ),
    "port-taken, the gateway's": (
        change("listeners", to={"8090": {"process": "llama-swap", "unit": "", "ours": False}}),
        "port 8090 of gateway is taken by llama-swap (no unit)",
    ),
    "unreachable": (
        change("reach", "https://huggingface.co", to="Name or service not known"),
        "cannot reach https://huggingface.co: Name or service not known",
    ),
    "no-account": (
        change("unknown_accounts", to=["me"]),
        "there is no account me, which `operators` or `docker_users` names",
    ),
    "no-sysctl": (
        change("unknown_sysctls", to={"vm.swapiness": "vm.swappiness"}),
        "its kernel has no setting vm.swapiness, which `sysctls` names",
    ),
    "clock": (change("time", to=NOW - 3600), "its clock differs by 3600 s from this one"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_each_fault_gives_one_finding(name: str) -> None:
    damage, message = FAULTS[name]
    facts = copy.deepcopy(HEALTHY)
    damage(facts)
    [finding] = host_findings(facts)
    assert (finding.code, finding.severity, finding.subject, finding.message) == (
        name.partition(",")[0],
        "error",
        "spark1",
        message,
    )
    assert finding.remedy.endswith((".", "?", ")"))


def test_an_unknown_kernel_setting_is_asked_for_and_named_with_the_nearest() -> None:
    plan = replace(PLAN, settings=replace(PLAN.settings, sysctls={"vm.swapiness": "1"}))
    assert preflight.questions(plan, PINS)["sysctls"] == ["vm.swapiness"]
    facts = {**HEALTHY, "unknown_sysctls": {"vm.swapiness": "vm.swappiness", "net.none": ""}}
    finding, unlike = host_findings(facts, plan)
    assert finding.remedy.startswith(
        "Did you mean vm.swappiness? Correct `sysctls` of the inventory"
    )
    assert unlike.remedy.startswith("Correct `sysctls` of the inventory")


@pytest.mark.parametrize(
    ("nvcc", "takes", "codes"),
    [
        ("13.0", "13.0", []),
        ("13.2", "13.2", []),
        ("13.1", "13.0", ["cuda-newer"]),
        ("13.10", "13.9", ["cuda-newer"]),
        ("13.9", "13.10", []),
        # A driver that does not tell it.
        ("13.3", None, []),
    ],
)
def test_a_later_toolkit_of_the_same_major_is_at_most_a_warning(
    nvcc: str, takes: str | None, codes: list[str]
) -> None:
    facts = copy.deepcopy(HEALTHY)
    facts["cuda"]["nvcc"] = nvcc
    facts["gpu"] |= {"cuda": takes} if takes else {}
    if takes is None:
        del facts["gpu"]["cuda"]
    findings = host_findings(facts)
    assert [finding.code for finding in findings] == codes
    for finding in findings:
        assert finding.severity == "warning"
        assert finding.message.startswith(f"/usr/local/cuda is {nvcc}, and driver 580.95.05 takes")
        assert "update-alternatives --set cuda /usr/local/cuda-13.0" in finding.remedy


def free(gib: float, **changes: Any) -> dict[str, Any]:
    disks = {path: {"device": 1, "free": int(gib * GIB)} for path in HEALTHY["disks"]}
    return {**HEALTHY, "disks": disks, **changes}


@pytest.mark.parametrize(
    ("clock_cap", "highest_clock", "codes"),
    [
        (2100, "3003 MHz", []),
        (3003, "3003 MHz", []),
        (2600, "2500 MHz", ["gpu-clock"]),
        # A driver that names no highest clock refuses none.
        (2600, "[N/A]", []),
        (None, "2500 MHz", []),
    ],
)
def test_a_cap_above_the_highest_clock_is_refused(
    clock_cap: int | None, highest_clock: str, codes: list[str]
) -> None:
    plan = replace(PLAN, settings=replace(PLAN.settings, gpu=Gpu(clock_cap)))
    facts = copy.deepcopy(HEALTHY)
    facts["gpu"]["clocks.max.sm"] = highest_clock
    assert [finding.code for finding in host_findings(facts, plan)] == codes


def test_a_disk_must_hold_all_that_is_fetched_and_stay_free_enough() -> None:
    # 4 models of 20 GiB, 3 images of 10 GiB that are kept and unpack to three times that,
    # 15 GiB of engine, with the wheels that it is made of.
    wheels = sum(wheel.size or 0 for pin in PINS.python.values() for wheel in pin.packages)
    wheels += sum(pin.size for pin in PINS.precompiled.values())
    need = len(PINS.checkpoints) * 20 + 3 * 40 + 15 + wheels / GIB
    assert host_findings(free(need + 20)) == []
    large = {url: replace(pin, size=GIB) for url, pin in PINS.precompiled.items()}
    [finding] = preflight.findings(
        PLAN, replace(PINS, precompiled=large), free(need + 20.5), now=NOW
    )
    assert finding.code == "disk-short"
    [finding] = host_findings(free(need + 19.9))
    assert finding.code == "disk-short"
    assert finding.message == (
        f"/data/models/huggingface: {need:.1f} GiB to fetch, {need + 19.9:.1f} GiB free, "
        "20.0 GiB must stay free"
    )


def test_what_is_on_the_disk_already_needs_no_room() -> None:
    checkpoints_present = {name: {64 * "e": 20 * GIB} for name in HEALTHY["checkpoints"]}
    docker = {**HEALTHY["docker"], "images": IMAGES}
    assert host_findings(free(0, checkpoints=checkpoints_present, docker=docker, lacking=[])) == []


def test_another_revision_on_the_disk_is_no_room_saved_and_an_unfinished_file_is_some() -> None:
    other_models = {name: {64 * "d": 20 * GIB} for name in HEALTHY["checkpoints"]}
    docker = {**HEALTHY["docker"], "images": IMAGES}
    [finding] = host_findings(free(10, checkpoints=other_models, docker=docker, lacking=[]))
    need = 20 * len(other_models)
    assert f"{need:.1f} GiB to fetch" in finding.message
    half = {name: {64 * "e" + ".incomplete": 10 * GIB} for name in HEALTHY["checkpoints"]}
    [finding] = host_findings(free(10, checkpoints=half, docker=docker, lacking=[]))
    assert f"{need / 2:.1f} GiB to fetch" in finding.message


@pytest.mark.parametrize(
    ("place", "need"), [("/var/lib/docker", 90.0), ("/data/models/huggingface", 100.0)]
)
def test_each_disk_is_counted_for_itself(place: str, need: float) -> None:
    facts = free(3000)
    facts["disks"][place] = {"device": 2, "free": int((need + 10) * GIB)}
    [finding] = host_findings(facts)
    assert finding.message == (
        f"{place}: {need:.1f} GiB to fetch, {need + 10:.1f} GiB free, 20.0 GiB must stay free"
    )


@pytest.mark.parametrize(
    ("unit", "is_ours", "units_held", "codes"),
    [
        # Of an earlier deploy, too, which stops it before anything listens there.
        ("vllm-qwen36-key.service", True, False, []),
        # A container's process lives in Docker's cgroup.
        ("docker-0123.scope", False, True, []),
        # Before the first deploy it is foreign.
        ("docker-0123.scope", False, False, ["port-taken"]),
        # So is a unit that no deploy wrote, whatever its name.
        ("vllm-qwen36.service", False, True, ["port-taken"]),
    ],
)
def test_a_port_held_by_an_engine_of_ours_is_no_finding(
    unit: str, is_ours: bool, units_held: bool, codes: list[str]
) -> None:
    listener = {"process": "VLLM::APIServer", "unit": f"/system.slice/{unit}", "ours": is_ours}
    facts = {**HEALTHY, "listeners": {"30001": listener}, "units_held": units_held}
    assert [item.code for item in host_findings(facts)] == codes


def test_what_a_host_is_asked() -> None:
    questions = preflight.questions(PLAN, PINS)
    assert questions["ports"] == [30001, 30000, 31000, 8000, 8090, 8080]
    places = ["/data/models/huggingface", "/opt/lockstep/engines", "/var/cache/lockstep/layers"]
    assert questions["paths"] == places
    assert list(questions["images"].values()) == IMAGES
    engine = f"/opt/lockstep/engines/{engine_id(PLAN.settings, PINS)}"
    assert questions["needs"]["engine"] == {engine: ["check.json"]}
    model = "models--rdtand--Qwen3.6-35B-A3B-PrismaQuant-4.75bit-vllm"
    snapshot = f"/data/models/huggingface/hub/{model}/snapshots/{COMMIT}"
    assert questions["needs"]["checkpoints"][snapshot] == ["model.safetensors"]
    assert list(questions["reach"]) == [
        "https://huggingface.co",
        "https://download.pytorch.org/whl/cu130",
        "https://flashinfer.ai/whl/cu130",
        "https://github.com/juliendenize/vllm.git",
        "https://wheels.vllm.ai",
        "https://ghcr.io/",
        "https://registry-1.docker.io/",
    ]


def test_mirrors_are_what_must_be_reached() -> None:
    plan = spark(
        sources={
            "hub": "http://10.0.0.5:8001",
            "torch_index": "http://10.0.0.5:8002/simple",
            "flashinfer_index": None,
            "vllm_wheels": "http://10.0.0.5:8002/wheels",
            "python_index": "http://10.0.0.5:8002/simple",
            "git": {"https://github.com/": "git://10.0.0.5/"},
            "registries": {"docker.io": "10.0.0.5:5000", "ghcr.io": "mirror.example"},
            "plain_registries": ("10.0.0.5:5000",),
        }
    )
    assert list(preflight.addresses(plan)) == [
        "http://10.0.0.5:8001",
        "http://10.0.0.5:8002/simple",
        "git://10.0.0.5/juliendenize/vllm.git",
        "http://10.0.0.5:8002/wheels",
        "https://mirror.example/",
        "http://10.0.0.5:5000/",
    ]


def test_passwords_of_proxies_and_indexes_are_in_no_question() -> None:
    """A question is an argument of a program on the host, and in sudo's lines of the journal."""
    sources = {
        "python_index": "https://reader:geheim@index.example:8443/simple/",
        "git": {"https://github.com/": "https://reader:geheim@git.example/"},
    }
    questions = preflight.questions(spark(sources=sources), PINS)
    assert "geheim" not in str(questions)
    assert "https://index.example:8443/simple/" in questions["reach"]
    # Behind a proxy it is the proxy alone that must be reached.
    proxy = dict.fromkeys(("http", "https"), "http://me:geheim@proxy:3128")
    assert list(preflight.addresses(spark(proxy=proxy))) == ["http://proxy:3128"]


GOLDEN = """\
 host                     finding
 a-spark-with-a-v  error  architecture: it is x86_64, expected aarch64
 ery-long-name.ex         -> Is this a Spark? `expected.architecture` says what
 ample.com                is demanded.
 spark1            error  cuda: /usr/local/cuda is no toolkit, ptxas does not
                          run, expected 13.0 or a later one of 13, with ptxas
                          -> `sudo apt-get install cuda-toolkit-13-0` brings
                          the one of DGX OS, `sudo update-alternatives --set
                          cuda /usr/local/cuda-13.0` has the link lead to it.
                          `expected.cuda_toolkit` of the inventory says what is
                          demanded.
 spark1            error  port-taken: port 30001 of qwen is taken by python3
                          (/user.slice/x.scope)
                          -> Stop that process, or set another port in models,
                          gateway, webui, monitoring or backup.
 spark1            error  unreachable: cannot reach https://huggingface.co:
                          Name or service not known
                          -> Check name resolution and proxy, or set a mirror
                          in `sources`."""


def test_the_table_of_two_broken_hosts_fits_80_columns() -> None:
    facts = copy.deepcopy(HEALTHY)
    for name in ("port-taken", "cuda", "unreachable"):
        FAULTS[name][0](facts)
    other_plan = spark("a-spark-with-a-very-long-name.example.com")
    facts2 = {**HEALTHY, "architecture": "x86_64"}
    text = findings_table([*host_findings(facts), *host_findings(facts2, other_plan)])
    assert text == GOLDEN
    assert max(len(line) for line in text.splitlines()) <= 80


def test_netplan_is_missed_only_where_the_deploy_writes_the_addresses() -> None:
    facts = {**HEALTHY, "fabric": {**HEALTHY["fabric"], "netplan": False}}
    assert host_findings(facts) == []
    fabric = {"interfaces": {"enp1s0f0np0": "10.77.0.11/24"}, "netplan": True}
    plan = spark(fabric=fabric, fabric_address="10.77.0.11")
    assert preflight.questions(plan, PINS)["fabric"] == ["enp1s0f0np0"]
    assert [item.code for item in host_findings(facts, plan)] == ["no-netplan"]


def test_the_codes_that_an_inventory_may_name_are_those_of_findings() -> None:
    """A code that got another name would be refused where it is waived, or waived for nothing."""
    folder = Path(lockstep.__file__).parent
    files = [folder / "units/backup_unit.py", *folder.glob("preflight/*.py")]
    files += [folder / "cli/recipe/__init__.py", *folder.glob("fit/*.py")]
    text = "".join(path.read_text(encoding="utf-8") for path in files)
    code_matches = re.findall(r'(?:\b[Ff]inding|case\.(?:error|warning))\(\s*(f?)"([^"]+)"', text)
    known_codes = {code for is_formatted, code in code_matches if not is_formatted} | {
        "engine-kernel",
        "eagle-on-moving-tag",
    }
    known_codes |= {
        f"{code}-{end}" for code in ("licence", "draft-licence") for end in ("refused", "unknown")
    }
    assert {code for is_formatted, code in code_matches if is_formatted} == {
        *("{code}-refused", "{code}-unknown", "{method}-on-moving-tag")
    }
    assert (known_codes, FATAL - CODES) == (set(CODES), set())
