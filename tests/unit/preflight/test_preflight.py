"""Preflight: what a host is asked, and findings of its releases, disks, certificate and memory."""

import datetime
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from a_snapshot import diff_report, host, perfect, snapshot_copy
from a_spark import COMMIT, GIB, findings, healthy, pins_for, spark
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.x509 import CertificateBuilder, Name, random_serial_number

import lockstep
from lockstep import preflight
from lockstep.core.findings import CODES, FATAL, Finding
from lockstep.host.desired_state import DesiredState
from lockstep.inventory.host import HostPlan, checkpoints_of
from lockstep.inventory.settings import Gpu
from lockstep.lock.engine_id import engine_id
from lockstep.onhost.facts import machine, reader_helpers
from lockstep.preflight import dgx_os, foreign

PLAN = spark()
PINS = pins_for(PLAN)
NOW = 1_795_000_000.0
IMAGES = [
    f"127.0.0.1:7078/{'docker.io/' * (name[0] == 'l')}{name.partition(':')[0]}@{pin.digest}"
    for name, pin in PINS.images.items()
]
HEALTHY = healthy(PLAN, NOW)


def host_findings(facts: dict[str, Any]) -> list[Finding]:
    return preflight.findings(PLAN, PINS, facts, now=NOW)


@pytest.mark.parametrize(
    ("part", "message"),
    [
        ("dgx", "it runs Ubuntu 24.04.3 LTS and not DGX OS: /etc/dgx-release is missing"),
        ("cuda", "/usr/local/cuda is no toolkit, ptxas does not run, expected 13.0 or a later one"),
    ],
)
def test_a_host_without_what_dgx_os_brings_is_refused(part: str, message: str):
    [finding] = host_findings({**HEALTHY, part: {}})
    assert finding.severity == "error" and finding.message.startswith(message)


def test_an_unknown_kernel_setting_is_asked_for_and_named_with_the_nearest() -> None:
    plan = replace(PLAN, settings=replace(PLAN.settings, sysctls={"vm.swapiness": "1"}))
    assert preflight.questions(plan, PINS)["sysctls"] == ["vm.swapiness"]
    unknown = {"vm.swapiness": "vm.swappiness", "net.none": ""}
    finding, unlike = findings(plan, unknown_sysctls=unknown)
    assert (finding.code, finding.severity) == ("no-sysctl", "error")
    assert finding.message == "its kernel has no setting vm.swapiness, which `sysctls` names"
    assert finding.remedy.startswith("Did you mean vm.swappiness? Correct `sysctls`")
    assert unlike.remedy.startswith("Correct `sysctls`")


@pytest.mark.parametrize(
    ("nvcc", "takes", "codes"),
    [
        ("13.2", "13.2", []),
        ("13.10", "13.9", ["cuda-newer"]),
        # A driver that does not tell it.
        ("13.3", None, []),
    ],
)
def test_a_later_toolkit_of_the_same_major_is_at_most_a_warning(nvcc: str, takes, codes):
    every = findings(cuda={"nvcc": nvcc}, gpu={"cuda": takes})
    assert [finding.code for finding in every] == codes
    for finding in every:
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
    ],
)
def test_a_cap_above_the_highest_clock_is_refused(clock_cap: int, highest_clock: str, codes):
    plan = replace(PLAN, settings=replace(PLAN.settings, gpu=Gpu(clock_cap)))
    every = findings(plan, gpu={"clocks.max.sm": highest_clock})
    assert [finding.code for finding in every] == codes


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
    pins = replace(PINS, precompiled=large)
    [finding] = preflight.findings(PLAN, pins, free(need + 20.5), now=NOW)
    assert finding.code == "disk-short"
    [finding] = host_findings(free(need + 19.9))
    assert finding.code == "disk-short"
    assert finding.message.startswith(f"/data/models/huggingface: {need:.1f} GiB to fetch, ")


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
    # The mirrors of all of these, likewise, in the test below.
    assert "https://flashinfer.ai/whl/cu130" in questions["reach"]


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
    expected_checks = {
        "/etc/systemd/system/vllm.service": "unit",
        "/data/scripts/llm/switch.sh": "shell",
        "/etc/netplan/40-cx7.yaml": None,
        "/etc/sudoers.d/lockstep": "sudoers",
        "/etc/lockstep/secrets/open-webui.env": None,
    }
    assert files | expected_checks == files
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


FACTORY = 'DGX_NAME="DGX Spark"\nDGX_SWBUILD_VERSION="7.2.3"\n'
# Each update from the Dashboard appends them.
UPDATE = '\nDGX_OTA_VERSION="{}"\nDGX_OTA_DATE="Wed Jul 15 09:06:56 AM PDT 2026"\n'
RELEASES = {"7.2.3": FACTORY, "7.5.0": FACTORY + UPDATE.format("7.3.1") + UPDATE.format("7.5.0")}


@pytest.mark.parametrize("version", RELEASES)
def test_the_last_update_counts_for_every_reader(monkeypatch, version: str):
    monkeypatch.setattr(reader_helpers, "text", {"/etc/dgx-release": RELEASES[version]}.get)
    facts = machine.software_releases({"key": ""})
    of_diff = {item: str(value) for kind, item, value in facts if kind == "DGX OS"}
    for release in (of_diff, machine.dgx_release()):
        assert release[dgx_os.deciding(release)] == version


def test_an_updated_spark_is_judged_by_its_last_update_and_not_by_its_factory() -> None:
    plan = spark(expected={"dgx_os": ">=7.5"})
    assert findings(plan, dgx={dgx_os.UPDATED: "7.5.0"}) == []
    [finding] = findings(plan, dgx={dgx_os.UPDATED: "7.3.1"})
    assert finding.message == "DGX OS 7.3.1 (7.2.3 from the factory), expected >=7.5"
    state = host(expected={"dgx_os": ">=7.5"})
    for version, expected_items in (("7.5.0", []), ("7.3.1", [dgx_os.UPDATED])):
        snapshot = snapshot_copy(perfect(state))
        snapshot["facts"]["DGX OS"] = {dgx_os.FACTORY: "7.2.3", dgx_os.UPDATED: version}
        report = diff_report((state, snapshot))
        assert [difference.item for difference in report.differences] == expected_items


YOURS = {"certificate": "/etc/ssl/spark.pem", "key": "/etc/ssl/spark.key"}
NAME = "spark-1.tail1234.ts.net"


def gateway_plan(tls: object, *names: str) -> Any:
    return spark(gateway={"bind": "0.0.0.0", "tls": tls, "names": names})


@pytest.mark.parametrize(
    ("intended_host", "expected_question"),
    [
        (spark(), {}),
        (gateway_plan(YOURS), YOURS),
        (gateway_plan("own"), {"own": True}),
        # It is judged on this machine.
        (gateway_plan({"certificate": {"file": "/chain"}, "key": {"file": "/key"}}), {}),
        (gateway_plan("tailscale", NAME, "10.0.0.5"), {"tailscale": [NAME]}),
    ],
)
def test_a_host_is_asked_for_the_certificate_that_is_wanted(
    intended_host: Any, expected_question: Any
) -> None:
    assert preflight.questions(intended_host, pins_for(intended_host))["tls"] == expected_question


def pem(days: int) -> tuple[str, str]:
    """A certificate that ends so many days after 1970-01-11, with its key."""
    key, start = generate_private_key(SECP256R1()), datetime.datetime(1970, 1, 1)
    end = start + datetime.timedelta(days=10 + days)
    builder = CertificateBuilder(Name([]), Name([]), key.public_key(), random_serial_number())
    chain = builder.not_valid_before(start).not_valid_after(end).sign(key, hashes.SHA256())
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return chain.public_bytes(serialization.Encoding.PEM).decode(), private.decode()


def test_a_certificate_that_the_deploy_brings_is_judged() -> None:
    now = 10 * 86400.0
    chain, key = pem(30)
    _, other_key = pem(30)
    assert preflight.given_certificate(chain + pem(90)[0], key, now) == {"fault": "", "days": 30}
    assert "does not belong" in preflight.given_certificate(chain, other_key, now)["fault"]
    assert "certificate is no PEM" in preflight.given_certificate(key, key, now)["fault"]
    assert "key is no PEM" in preflight.given_certificate(chain, "sk-1", now)["fault"]
    assert "has ended on 1970-01-10" in preflight.given_certificate(*pem(-1), now)["fault"]


def memory_findings(available: float, plan: HostPlan = PLAN, **facts: Any) -> list[Finding]:
    memory = {"MemTotal": int(121.69 * GIB), "MemAvailable": int(available * GIB)}
    every = findings(plan, memory=memory, **facts)
    return [item for item in every if item.code == "memory-available"]


def words(findings: list[Finding]) -> list[str]:
    return [item.message.split(" needs ")[0] for item in findings]


def test_the_default_models_start_on_every_kit_that_was_reported():
    # As a Spark is before its first deploy, with the kernel's own value.
    assert memory_findings(110, min_free_kib=45158) == []
    # What an engine found at its start on the poorer kit, if it were MemAvailable: what is not
    # promised there is a model that may be chosen, and not the default.
    assert words(memory_findings(101.3)) == ["mistral-vllm"]


def test_what_our_own_sysctl_will_take_is_counted_before_it_is_set_and_only_then() -> None:
    assert memory_findings(108.5) == []
    [vllm] = memory_findings(108.5, min_free_kib=45158)
    assert "107.1 GiB are (less 1.4 GiB that vm.min_free_kbytes of the inventory" in vllm.message
    assert memory_findings(108.5, spark(sysctls={}), min_free_kib=45158) == []


def test_a_spark_of_64_gb_is_judged_by_its_own_figures():
    plan = spark(expected={"memory_gib": 58})
    memory = {"MemTotal": int(60.85 * GIB), "MemAvailable": int(53.5 * GIB)}
    every = findings(plan, memory=memory)
    assert not [item for item in every if item.code == "memory"]
    short = [item for item in every if item.code == "memory-available"]
    # The fallback's share of it is there, and its weights do not fit: the plan's to say.
    assert words(short) == ["mistral", "mistral-vllm"]
    assert all("bind a smaller recipe" in item.remedy for item in short)


def test_a_spark_of_64_gb_that_nobody_expects_hears_what_to_say() -> None:
    remedies = {61: '`expected = {"memory_gib": 58}`', 100: "Is something else holding memory"}
    for gib, remedy in remedies.items():
        every = findings(memory={"MemTotal": gib * GIB, "MemAvailable": 54 * GIB})
        [memory] = [item for item in every if item.code == "memory"]
        assert remedy in memory.remedy


def test_a_host_with_90_gib_hears_the_number_and_what_to_set_before_the_download() -> None:
    short = memory_findings(90)
    assert words(short) == ["mistral", "mistral-fallback", "mistral-vllm"]
    mistral, spare, vllm = short
    # Of another engine, whose share is of something else.
    assert "Set `models.mistral.fallback_overrides` to " in spare.remedy
    assert (mistral.severity, mistral.subject) == ("error", "spark1")
    assert mistral.message.startswith("mistral needs 95.9 GiB available to start, and 90.0 GiB are")
    assert "must hold 66.3 GiB of weights and the KV cache of 32768 tokens" in mistral.message
    setting = 'Set `models.mistral.overrides` to {"gpu_memory_utilization": 0.77} ('
    assert mistral.remedy.startswith(setting) and "or free 5.9 GiB" in mistral.remedy
    assert "vLLM asks for 0.8 of 121.7 GiB at its start, and 6.71 GiB must" in vllm.message


def test_where_no_share_is_enough_that_is_said_with_who_holds_the_gpus_memory() -> None:
    holder = "ollama.service (Ollama) holds 40.0 GiB on the GPU: `ollama ps`"
    [mistral] = [item for item in memory_findings(60) if item.message.startswith("mistral needs")]
    assert mistral.remedy.startswith("Free 35.9 GiB") and "On the GPU" not in mistral.remedy
    for item in memory_findings(60, gpu_held=[holder]):
        assert item.remedy.endswith(f" On the GPU: {holder}.")


def test_weights_that_are_here_make_it_a_warning_and_a_host_that_serves_is_not_judged() -> None:
    checkpoints = {name: {64 * "e": 20 * GIB} for name in checkpoints_of(PLAN)}
    severities = {item.severity for item in memory_findings(90, checkpoints=checkpoints)}
    assert severities == {"warning"}
    assert memory_findings(20, units_up=["sglang-mistral4.service"]) == []
