"""Preflight on a host with one fault: the finding, and what is none; patterns as in a shell."""

from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any

import pytest
from a_spark import GIB, GLM, PORTS, findings, healthy, of_pair, pins_for, spark

from lockstep import preflight
from lockstep.core.errors import CatalogueError
from lockstep.core.findings import FATAL
from lockstep.inventory.cluster_join import join_clusters
from lockstep.inventory.host import HostPlan
from lockstep.preflight.known_bad import KnownBad, load

NOW = 1_795_000_000.0
PORT, SECOND_PORT = PORTS


def member(**fabric: object) -> HostPlan:
    """The first of two Sparks with a fast link, with a model of its own beside the cluster's."""
    own = {"recipe": "qwen3.6-35b-a3b-prismaquant-dflash-k3", "unit": "vllm-qwen36"}
    models = {"qwen": own, "glm": {**GLM, "port": 30002}}
    first, second = (of_pair(number, models=models) for number in (11, 12))
    first["fabric"].update(fabric)
    plans = [spark("spark-1", **first), spark("spark-2", **second)]
    return join_clusters(plans, "site.py")[0]


SPARK = spark()
TLS_FILES = {"certificate": "/etc/ssl/spark.pem", "key": "/etc/ssl/spark.key"}
YOURS = {"plan": spark(gateway={"bind": "0.0.0.0", "tls": TLS_FILES})}
# Of a member of a cluster nothing lacks, so that no disk is short.
MEMBER = {"plan": member(), "lacking": []}
NETPLAN_MEMBER = {"plan": member(netplan=True), "lacking": []}
DRIVER = "580.95.05"
ETC, RUN = "/etc/cdi/nvidia.yaml", "/var/run/cdi/nvidia.yaml"
HOOK, CDI_HOOK, DEVICE = "nvidia-container-runtime-hook", "nvidia-cdi-hook", "nvidia.com/gpu=all"
REFRESH = "sudo systemctl restart nvidia-cdi-refresh"
FAULT = {"fault": "Docker does not answer at /run/docker.sock: No such file or directory"}
# A snap's daemon has the host's socket; the client of units it has not.
SNAP = {"root": "/var/snap/docker/common/var-lib-docker"}
SNAP_DISK = {SNAP["root"]: {"device": 1, "free": 10**13}}
BROKEN = "error initializing buildkit: invalid database"
ONCE = "nvidia-spark-run-apt-upgrade-once.service"
# What NV-Kernels#591 and a second pair of Sparks showed.
SIGN = {"CmaTotal": 0, "CmaFree": 940604 * 1024}
KEXEC = "7.0.0-1019-nvidia"
KEXEC_OFF = {"release": KEXEC, "command_line": "ro quiet kho=off"}
MISMATCH = "Failed to initialize NVML: Driver/library version mismatch NVML library version: 610.43"
GONE = "No devices were found"
HIDDEN = (
    f"there is no network interface {PORT} nor {SECOND_PORT}, which `fabric` names: DGX OS hides a "
    "ConnectX port while its cable is out or the Spark at its other end is off. Models that do not "
    "start without: glm"
)
PACKAGES = {f"thunderbird-locale-{letter}": "unpacked" for letter in "abcdef"}
HOLDER = {"who": "/x/lock is held by packagekitd", "unit": "apt-daily.service", "remedy": "Stop it"}
# As NVIDIA's playbook has it: `docker run -p 8080:8080 -v open-webui:… --name open-webui`.
PLAYBOOK = {"open-webui": {"id": "0123", "ports": [8080]}}


def cdi(version: str = "29.2.1", *hooks: str, **files: str) -> dict[str, Any]:
    """A Spark of 2026: toolkit 1.19 with both programs, and CDI files by path."""
    docker = {"version": version, "hooks": hooks or [HOOK, CDI_HOOK], "devices": [DEVICE]}
    return {"docker": {**docker, "cdi": files}}


def containers(*volumes: str, **by_name: Any) -> dict[str, Any]:
    return {"docker": {"foreign": {"containers": by_name, "volumes": list(volumes)}}}


def listener(port: int, unit: str = "docker.service", **facts: Any) -> dict[str, Any]:
    process = {"process": "docker-proxy", "unit": f"/system.slice/{unit}", "ours": False}
    return {"listeners": {str(port): {**process, **facts}}}


def driver(version: str | None) -> dict[str, Any]:
    return {"gpu": {"driver_version": version}}


#: "Severity code: message -> remedy" of the one finding ("*" for whatever) → the facts.
FINDINGS: dict[str, dict[str, Any]] = {
    "error architecture: it is x86_64, expected aarch64 -> *": {"architecture": "x86_64"},
    "error dgx-os: DGX OS 6.3.1, expected >=7 -> *": {"dgx": {"DGX_SWBUILD_VERSION": "6.3.1"}},
    "error dgx-os: DGX OS unknown, expected >=7 -> *": {"dgx": {"DGX_SWBUILD_VERSION": ""}},
    "error cuda: */cuda is 14.0, expected 13.0 or a later one of 13, *": {"cuda": {"nvcc": "14.0"}},
    "error gpu: GPU NVIDIA GB10 has compute capability 9.0, *": {"gpu": {"compute_cap": "9.0"}},
    "error memory: 64.0 GiB of unified memory, *": {"memory": {"MemTotal": 64 * GIB}},
    "error unreachable: cannot reach https://huggingface.co: no name -> *": {
        "reach": {"https://huggingface.co": "no name"}
    },
    "error no-account: there is no account me, which *": {"unknown_accounts": ["me"]},
    "error clock: its clock differs by 3600 s from this one -> *": {"time": NOW - 3600},
    "error port-taken: port 30001 of qwen is taken by docker-proxy (/system.slice/x.scope) -> *": (
        listener(30001, "x.scope")
    ),
    "error docker: Docker cannot be asked: Docker does not answer *": {"docker": FAULT},
    "error docker: Docker is a snap here*`sudo snap disable docker`*": {
        **{"docker": SNAP, "docker_ways": {"client": False}, "disks": SNAP_DISK}
    },
    "error docker: there is no /usr/bin/docker, by which *docker-ce*": {
        "docker_ways": {"client": False}
    },
    "error docker: *a rootless one answers, of the account 1000*`systemctl --user disable --now*": {
        **{"docker": FAULT, "docker_ways": {"rootless": ["1000"]}}
    },
    f"error docker: *it said: {BROKEN} -> */var/lib/docker/buildkit.broken*": {
        **{"docker": FAULT, "docker_ways": {"said": BROKEN}}
    },
    "warning docker-second: the account 1000 has a rootless Docker of its own*": {
        "docker_ways": {"rootless": ["1000"]}
    },
    "error docker-gpu: `docker run --gpus all` gets no GPU: Docker 29.2.1 needs nvidia-container-"
    "runtime-hook, or nvidia-cdi-hook and the CDI device nvidia.com/gpu=all; found nvidia-cdi-hook "
    "-> *apt-get install nvidia-container-toolkit*": {
        "docker": {"version": "29.2.1", "hooks": [CDI_HOOK]}
    },
    'error docker-gpu: *refuses in the mode "cdi" of its *nvidia-container-runtime.mode=auto*': {
        "docker": {"version": "28.5.2", "mode": "cdi"}
    },
    f"error cdi-stale: {RUN} was made for driver 575.1, and {DRIVER} runs: Docker 29.2.1 gives *"
    f"Run `{REFRESH}` there: it writes that file.": cdi(**{RUN: "575.1"}),
    "warning cdi-stale: *: Docker 28.5.2 takes NVIDIA's hook here and not this file -> *": (
        cdi("28.5.2", **{RUN: "575.1"})
    ),
    f"error cdi-stale: * -> Run `{REFRESH}`*`sudo rm {ETC}`*`sudo nvidia-ctk cdi generate *": (
        cdi(**{ETC: "575.1"})
    ),
    "warning cdi-stale: *: the files of /var/run/cdi stand before it -> *": (
        cdi(**{ETC: "575.1", RUN: DRIVER})
    ),
    f'warning upgrade-pending: {ONCE} has not run yet: *reboot` now*("upgrade-pending",)*': {
        "updates": {"once": {"done": False}}
    },
    f"warning upgrade-pending: {ONCE} upgrades all packages now and *Wait until it has rebooted*": {
        "updates": {"once": {"done": False, "running": True}}
    },
    "warning apt-busy: apt-daily-upgrade.service uses apt now -> *": {
        "updates": {"daily": ["apt-daily-upgrade.service"]}
    },
    # Who has apt's locks is named once.
    "warning apt-busy: /x/lock is held by packagekitd -> *; Stop it.": {
        "updates": {"daily": ["apt-daily.service"], "holder": HOLDER}
    },
    "error apt-broken: *thunderbird-locale-d (unpacked) and 2 more*--fix-broken*snaps*": {
        "unfinished": PACKAGES
    },
    "warning earlyoom-late: earlyoom 1:1.10.0-1ubuntu1 counts percent of *": {
        "earlyoom": "1:1.10.0-1ubuntu1"
    },
    "warning kernel: kernel 6.17.0-1008-nvidia: it was reported to panic on a Spark *Dashboard*": {
        **MEMBER,
        "kernel": {"release": "6.17.0-1008-nvidia"},
    },
    "warning kernel: *": {"kernel": {"release": KEXEC}},
    "error kernel: *ibv_reg_mr*kho=off*": {**MEMBER, "kernel": {"release": KEXEC}},
    # Whatever the kernel calls itself.
    "error kernel: *its sign is there: CmaFree 919 MiB of CmaTotal 0 MiB -> *": {
        **MEMBER,
        "kernel": {**KEXEC_OFF, "release": "7.2.0-own", "cma": SIGN},
    },
    "warning driver-version: *580.159.03*engines were reported to die*580.178.04*": (
        driver("580.159.03")
    ),
    "warning driver-version: *610.43.02*it is of no branch that DGX OS has (580)*": (
        driver("610.43.02")
    ),
    "error driver: the driver does not answer: NVIDIA-SMI has failed -> *": {
        "gpu": {"fault": "NVIDIA-SMI has failed"}
    },
    "error driver: *parts of a second driver*Reboot. If it stays,*": {"gpu": {"fault": MISMATCH}},
    f"error driver: *{GONE}; so it was where `apt upgrade` had*which brings the firmware*": {
        "gpu": {"fault": GONE}
    },
    "warning driver-version: *nvidia-smi*": driver(None),
    f"warning no-cable: {HIDDEN} -> Plug the cable in; `sudo rm *cx7-hotplug-enabled` and a *": {
        **MEMBER,
        "fabric": {"absent": [PORT, SECOND_PORT]},
    },
    f"error no-interface: there is no network interface {PORT}.100, which `fabric` names -> *": {
        **MEMBER,
        "fabric": {"absent": [f"{PORT}.100"]},
    },
    "warning wifi: it is reached by wlP9s9, and `netplan apply`*": {
        **NETPLAN_MEMBER,
        "fabric": {"wireless": "wlP9s9"},
    },
    "error no-netplan: *": {**NETPLAN_MEMBER, "fabric": {"netplan": False}},
    "error certificate: */etc/ssl/spark.key: Permission denied*": {
        **YOURS,
        "tls": {"fault": "/etc/ssl/spark.key: Permission denied"},
    },
    "warning certificate-ends: *20 days*restart lockstep-tls*": {**YOURS, "tls": {"days": 20}},
    "error not-ours: there is a container open-webui without the label lockstep.unit: *"
    '`webui.unit`*("container open-webui",)*': containers(**PLAYBOOK),
    'error not-ours: *a volume open-webui*`webui.volume`*("volume open-webui",)*': (
        containers("open-webui")
    ),
    "error not-ours: *a container vllm-qwen36*models.NAME.unit*": (
        containers(**{"vllm-qwen36": {"id": "1", "ports": []}})
    ),
    "error not-ours: *sudo docker volume rm vllm-qwen36-cache*": containers("vllm-qwen36-cache"),
    # The volume alone is adopted.
    "error not-ours: there is a container open-webui*": {
        "plan": spark(adopt=("volume open-webui",)),
        **containers("open-webui", **PLAYBOOK),
    },
    # The port of a container that is to go is free, and no other.
    "error port-taken: port 8000 of mistral-vllm*": {
        "plan": spark(adopt=("container open-webui",)),
        **containers(**PLAYBOOK),
        **listener(8000),
    },
    "error not-ours: /data/models was not made by Lockstep (mode 0775), and the deploy would *"
    " -> Move it away,*": {"foreign": {"/data/models": "mode 0775"}},
    'error not-ours: *Give the model another `unit`,*`"adopt": ("unit vllm.service",)` for this*': {
        "foreign": {"unit vllm.service": "of package vllm"}
    },
    "error not-ours: *Set `service_user` to another name,*": {
        "foreign": {"account lockstep": "uid 1001"}
    },
}


@pytest.mark.parametrize("expected", FINDINGS)
def test_a_fault_is_one_finding_with_its_remedy(expected: str):
    facts = FINDINGS[expected]
    [finding] = findings(**facts)
    text = f"{finding.severity} {finding.code}: {finding.message} -> {finding.remedy}"
    assert finding.subject == facts.get("plan", SPARK).name and finding.remedy
    assert fnmatchcase(text, expected), text


ADOPTING = {"plan": spark(adopt=("container open-webui", "volume open-webui"))}
HEALTHY: dict[str, dict[str, Any]] = {
    "a CDI file for this driver": cdi(**{RUN: DRIVER}),
    "an upgrade that is off": {"updates": {"once": {"done": False, "state": "masked"}}},
    "an earlyoom of no known version": {"earlyoom": ""},
    "an earlyoom that nobody asks for": {"plan": spark(packages=("jq",)), "earlyoom": "1.8.2-1"},
    "a kernel whose memory is as it should be": {
        **MEMBER,
        "kernel": {"release": "6.18.44", "cma": {"CmaTotal": 32, "CmaFree": 32}},
    },
    "kexec handover that is off": {**MEMBER, "kernel": KEXEC_OFF},
    "a driver that others serve with": driver("580.142"),
    "no netplan where nobody needs it": {**MEMBER, "fabric": {"netplan": False}},
    "a certificate for three weeks": {**YOURS, "tls": {"days": 21}},
    "what is adopted": {**ADOPTING, **containers("open-webui", **PLAYBOOK)},
    # The port of a container that is to go is free.
    "a port by Docker": {**ADOPTING, **containers(**PLAYBOOK), **listener(8080)},
    "a port in a container": {
        **ADOPTING,
        **containers(**PLAYBOOK),
        **listener(8080, "docker-0123.scope"),
    },
    # A unit of an earlier deploy, which this one stops before anything listens there.
    "a port of ours": listener(30001, "vllm-qwen36-key.service", ours=True),
    # A container's process lives in Docker's cgroup.
    "a port of our engine": {**listener(30001, "docker-0.scope"), "units_held": True},
}


@pytest.mark.parametrize("case", HEALTHY)
def test_what_is_in_order_is_no_finding(case: str):
    assert findings(**HEALTHY[case]) == []


@pytest.mark.parametrize(
    ("facts", "codes"),
    [
        ({"fabric": {"absent": [PORT, "eth0"]}}, ["no-cable", "no-interface"]),
        (containers(**PLAYBOOK) | listener(8080), ["not-ours", "port-taken"]),
        # Before the first deploy a port in Docker is foreign, and so is a unit that none wrote.
        (listener(30001, "docker-0123.scope"), ["port-taken"]),
        ({**listener(30001, "vllm-qwen36.service"), "units_held": True}, ["port-taken"]),
    ],
)
def test_two_faults_are_a_finding_each(facts: dict[str, Any], codes: list[str]) -> None:
    assert [item.code for item in findings(**facts)] == codes


def test_what_endangers_a_host_is_waived_by_nobody() -> None:
    assert {"apt-broken", "not-ours", "key-elsewhere", "key-differs", "clone"} <= FATAL


@pytest.mark.parametrize(
    ("version", "hooks", "devices", "mode", "works"),
    [
        # As shipped: no runtime `nvidia`, no CDI file (dgx-spark-playbooks#26).
        ("28.3.3", [HOOK], [], "", True),
        # Docker before 29 asks no CDI file for `--gpus`.
        ("28.5.2", [CDI_HOOK], [DEVICE], "", False),
        ("29.2.1", [CDI_HOOK], [DEVICE], "", True),
        ("29.2.1", [CDI_HOOK], ["nvidia.com/gpu=0"], "", False),
        ("29.2.1", [], [DEVICE], "", False),
        (None, [CDI_HOOK], [DEVICE], "", False),
        ("28.5.2", [HOOK, CDI_HOOK], [DEVICE], "cdi", False),
        ("29.2.1", [HOOK, CDI_HOOK], [DEVICE], "cdi", True),
    ],
)
def test_what_gpus_all_needs_is_asked_for_and_nothing_besides(version, hooks, devices, mode, works):
    docker = {"version": version, "hooks": hooks, "devices": devices, "mode": mode}
    codes = [item.code for item in findings(docker=docker)]
    assert codes == ([] if works else ["docker-gpu"])


@pytest.mark.parametrize(
    ("image_cuda", "takes", "is_named"),
    [
        ("13.4.1", "13.0", True),
        ("13.0.3", "13.0", False),
        # A lock that is older than the key, and a driver that does not say.
        ("", "13.0", False),
        ("13.4.1", None, False),
    ],
)
def test_an_image_whose_cuda_is_newer_than_the_drivers_is_named(image_cuda: str, takes, is_named):
    pins, facts = pins_for(SPARK), healthy(SPARK, NOW)
    (name, pin), *_ = pins.images.items()
    pins = replace(pins, images={**pins.images, name: replace(pin, cuda=image_cuda)})
    facts["gpu"]["cuda"] = takes
    every = preflight.findings(SPARK, pins, facts, now=NOW)
    assert [item.code for item in every] == ["image-cuda-newer"] * is_named
    assert all(f"image {name} was made with CUDA {image_cuda}" in item.message for item in every)


def test_an_entry_of_the_known_bad_without_a_sign_of_it_is_named(tmp_path) -> None:
    (tmp_path / "list.yaml").write_text("a: {fault: x, remedy: y, source: z, date: 2026-11-22}\n")
    with pytest.raises(CatalogueError, match="a has neither release nor sign"):
        load(tmp_path / "list.yaml", KnownBad)
