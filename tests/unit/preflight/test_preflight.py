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
from lockstep.host.desired_state import DesiredState
from lockstep.inventory.host import HostPlan
from lockstep.inventory.settings import Gpu
from lockstep.lock.engine_id import engine_id
from lockstep.preflight import foreign

PLAN = spark()
PINS = pins_for(PLAN)
NOW = 1_795_000_000.0
IMAGES = [
    f"127.0.0.1:7078/{'docker.io/' * (name[0] == 'l')}{name.partition(':')[0]}@{pin.digest}"
    for name, pin in PINS.images.items()
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
    "unreachable": (
        change("reach", "https://huggingface.co", to="Name or service not known"),
        "cannot reach https://huggingface.co: Name or service not known",
    ),
    "no-account": (
        change("unknown_accounts", to=["me"]),
        "there is no account me, which `operators` or `docker_users` names",
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
    assert (finding.code, finding.severity) == ("no-sysctl", "error")
    assert finding.message == "its kernel has no setting vm.swapiness, which `sysctls` names"
    assert finding.remedy.startswith(
        "Did you mean vm.swappiness? Correct `sysctls` of the inventory"
    )
    assert unlike.remedy.startswith("Correct `sysctls` of the inventory")


@pytest.mark.parametrize(
    ("nvcc", "takes", "codes"),
    [
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
    facts["gpu"].pop("cuda")
    facts["gpu"] |= {"cuda": takes} if takes else {}
    findings = host_findings(facts)
    assert [finding.code for finding in findings] == codes
    for finding in findings:
        assert finding.severity == "warning"
        assert finding.message.startswith(f"/usr/local/cuda is {nvcc}, and driver 580.95.05 takes")
        assert "update-alternatives --set cuda /usr/local/cuda-13.0" in finding.remedy


@pytest.mark.parametrize(
    ("clock_cap", "highest_clock", "codes"),
    [
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


def free(gib: float, **changes: Any) -> dict[str, Any]:
    disks = {path: {"device": 1, "free": int(gib * GIB)} for path in HEALTHY["disks"]}
    return {**HEALTHY, "disks": disks, **changes}


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


def test_what_is_on_the_disk_already_needs_no_room_and_another_revision_does() -> None:
    docker = {**HEALTHY["docker"], "images": IMAGES}

    def room(blob: str, gib: int, free_gib: int) -> list[str]:
        checkpoints = {name: {blob: gib * GIB} for name in HEALTHY["checkpoints"]}
        facts = free(free_gib, checkpoints=checkpoints, docker=docker, lacking=[])
        return [item.message.partition(": ")[2] for item in host_findings(facts)]

    assert room(64 * "e", 20, 0) == []
    need = 20 * len(HEALTHY["checkpoints"])
    assert room(64 * "d", 20, 10)[0].startswith(f"{need:.1f} GiB to fetch")
    # An unfinished file saves some.
    half = room(64 * "e" + ".incomplete", 10, 10)
    assert half[0].startswith(f"{need / 2:.1f} GiB to fetch")


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


def test_what_a_host_is_asked() -> None:
    questions = preflight.questions(PLAN, PINS)
    assert questions["ports"] == [30001, 30000, 31000, 8000, 8090, 8080]
    places = ["/data/models/huggingface", "/opt/lockstep/engines", "/var/cache/lockstep/layers"]
    assert questions["paths"] == places
    assert sorted(questions["images"].values()) == sorted(IMAGES)
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
    mirror = "http://10.0.0.5:8002"
    plan = spark(
        sources={
            "hub": "http://10.0.0.5:8001",
            **{"torch_index": f"{mirror}/simple", "python_index": f"{mirror}/simple"},
            **{"flashinfer_index": None, "vllm_wheels": f"{mirror}/wheels"},
            "git": {"https://github.com/": "git://10.0.0.5/"},
            "registries": {"docker.io": "10.0.0.5:5000", "ghcr.io": "mirror.example"},
            "plain_registries": ("10.0.0.5:5000",),
        }
    )
    assert list(preflight.addresses(plan)) == [
        *("http://10.0.0.5:8001", f"{mirror}/simple", "git://10.0.0.5/juliendenize/vllm.git"),
        *(f"{mirror}/wheels", "https://mirror.example/", "http://10.0.0.5:5000/"),
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


def test_the_table_of_two_broken_hosts_fits_80_columns() -> None:
    facts = copy.deepcopy(HEALTHY)
    for name in ("port-taken", "unreachable"):
        FAULTS[name][0](facts)
    long_plan = spark("a-spark-with-a-very-long-name.example.com")
    facts2 = {**HEALTHY, "architecture": "x86_64"}
    text = findings_table([*host_findings(facts), *host_findings(facts2, long_plan)])
    assert (
        text
        == """\
 host                     finding
 a-spark-with-a-v  error  architecture: it is x86_64, expected aarch64
 ery-long-name.ex         -> Is this a Spark? `expected.architecture` says what
 ample.com                is demanded.
 spark1            error  port-taken: port 30001 of qwen is taken by python3
                          (/user.slice/x.scope)
                          -> Stop that process, or set another port in models,
                          gateway, webui, monitoring or backup.
 spark1            error  unreachable: cannot reach https://huggingface.co:
                          Name or service not known
                          -> Check name resolution and proxy, or set a mirror
                          in `sources`."""
    )


def test_the_codes_that_an_inventory_may_name_are_those_of_findings() -> None:
    """A code that got another name would be refused where it is waived, or waived for nothing."""
    folder = Path(lockstep.__file__).parent
    files = [folder / "units/backup_unit.py", *folder.glob("preflight/*.py")]
    files += [folder / "cli/recipe/__init__.py", *folder.glob("fit/*.py")]
    text = "".join(path.read_text(encoding="utf-8") for path in files)
    code_matches = re.findall(r'(?:\b[Ff]inding|case\.(?:error|warning))\(\s*(f?)"([^"]+)"', text)
    known_codes = {code for is_formatted, code in code_matches if not is_formatted}
    known_codes |= {"engine-kernel", "eagle-on-moving-tag"}
    licences = ("licence", "draft-licence")
    known_codes |= {f"{code}-{end}" for code in licences for end in ("refused", "unknown")}
    families = {code for is_formatted, code in code_matches if is_formatted}
    assert families == {"{code}-refused", "{code}-unknown", "{method}-on-moving-tag"}
    assert (known_codes, FATAL - CODES) == (set(CODES), set())


CHECKPOINTS = ("vllm-qwen36", "vllm-qwen36-fallback", "sglang-mistral4")


def test_a_host_is_asked_for_all_that_a_deploy_would_touch() -> None:
    fabric = {"interfaces": {"enp1": "10.0.0.1/24"}, "netplan": True}
    plan = spark(adopt=("unit vllm",), fabric=fabric)
    question = foreign.question(DesiredState(plan, pins_for(plan)))
    files = {file["path"]: file["check"] for file in question["files"]}
    assert (
        files.items()
        >= {
            "/etc/systemd/system/vllm.service": "unit",
            "/etc/systemd/system/lockstep-gateway-switch@.service": "unit",
            "/data/scripts/llm/switch.sh": "shell",
            "/etc/netplan/40-cx7.yaml": None,
            "/etc/sudoers.d/lockstep": "sudoers",
            "/etc/lockstep/secrets/open-webui.env": None,
        }.items()
    )
    folders = {folder["path"]: folder["owner"] for folder in question["folders"]}
    assert folders["/data/models"] == "root"
    assert folders["/opt/lockstep/engines"] == "lockstep"
    assert question["links"] == ["/usr/local/bin/uv"]
    assert question["accounts"] == ["lockstep", "lockstep-gateway"]
    assert question["adopt"] == ["unit vllm"]
    docker = preflight.questions(PLAN, PINS)["docker"]
    assert docker["containers"] == [*CHECKPOINTS, "open-webui"]
    assert docker["volumes"] == [*(f"{name}-cache" for name in CHECKPOINTS), "open-webui"]
    without_webui = spark(webui={"enabled": False})
    docker = preflight.questions(without_webui, pins_for(without_webui))["docker"]
    assert "open-webui" not in docker["volumes"]
