"""Preflight on a host with one fault: the finding, and what is none; patterns as in a shell."""

from __future__ import annotations

from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest
from a_spark import findings, healthy, pins_for, spark

from lockstep import preflight
from lockstep.core.errors import CatalogueError
from lockstep.core.findings import FATAL
from lockstep.inventory.cluster_join import join_clusters
from lockstep.inventory.host import HostPlan
from lockstep.preflight.known_bad import BadKernel, KnownBad, load

PORT, SECOND_PORT = "enp1s0f0np0", "enP2p1s0f0np0"


def member(**fabric: object) -> HostPlan:
    """The first of two Sparks with a fast link, with a model of its own beside the cluster's."""
    own = {"recipe": "qwen3.6-35b-a3b-prismaquant-dflash-k3", "unit": "vllm-qwen36"}
    glm = {"recipe": "deepseek-v4-flash-2x", "unit": "vllm-glm", "cluster": "pair", "port": 30002}
    plans = [
        spark(
            name,
            models={"qwen": own, "glm": glm},
            clusters={"pair": {"hosts": ("one", "two")}},
            fabric_address=f"10.77.0.{number}",
            fabric={"interfaces": {PORT: f"10.77.0.{number}/24"}, **fabric},
        )
        for number, name in enumerate(("one", "two"), 11)
    ]
    return join_clusters(plans, "site.py")[0]


SPARK, MEMBER, NETPLAN_MEMBER = spark(), member(), member(netplan=True)
YOURS = {"certificate": "/etc/ssl/spark.pem", "key": "/etc/ssl/spark.key"}


def tls_plan(tls: object, *names: str) -> HostPlan:
    return spark(gateway={"bind": "0.0.0.0", "tls": tls, "names": names})


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


#: Case → the host, its facts, the finding's severity and code, its message and its remedy.
FINDINGS: dict[str, tuple[HostPlan, dict[str, Any], str, str, str]] = {
    "Docker is a snap": (
        *(SPARK, {"docker": SNAP, "docker_ways": {"client": False}, "disks": SNAP_DISK}),
        *("error docker", "Docker is a snap here*", "*`sudo snap disable docker`*"),
    ),
    "a snap beside Docker": (
        *(SPARK, {"docker_ways": {"snap": True}}, "error docker"),
        *("Docker is a snap here*", "*docker-ce*"),
    ),
    "no client of Docker": (
        *(SPARK, {"docker_ways": {"client": False}}, "error docker"),
        *("there is no /usr/bin/docker, by which units start*", "*docker-ce*"),
    ),
    "a rootless Docker alone": (
        *(SPARK, {"docker": FAULT, "docker_ways": {"rootless": ["1000"]}}, "error docker"),
        *("*a rootless one answers, of the account 1000*", "*`systemctl --user disable --now d*"),
    ),
    "a Docker that does not start": (
        *(SPARK, {"docker": FAULT, "docker_ways": {"said": BROKEN}}, "error docker"),
        *(f"*it said: {BROKEN}", "*/var/lib/docker/buildkit.broken*"),
    ),
    "a second daemon": (
        *(SPARK, {"docker_ways": {"rootless": ["1000"]}}, "warning docker-second"),
        *("the account 1000 has a rootless Docker of its own*", "*"),
    ),
    "no way to the GPU": (
        *(SPARK, {"docker": {"version": "29.2.1", "hooks": [CDI_HOOK]}}, "error docker-gpu"),
        "`docker run --gpus all` gets no GPU: Docker 29.2.1 needs nvidia-container-runtime-hook, "
        "or nvidia-cdi-hook and the CDI device nvidia.com/gpu=all; found nvidia-cdi-hook",
        "*apt-get install nvidia-container-toolkit*",
    ),
    "a hook that refuses": (
        *(SPARK, {"docker": {"version": "28.5.2", "mode": "cdi"}}, "error docker-gpu"),
        '*which refuses in the mode "cdi" of its config.toml',
        "*--set nvidia-container-runtime.mode=auto*",
    ),
    "a stale CDI file": (
        *(SPARK, cdi(**{RUN: "575.1"}), "error cdi-stale"),
        f"{RUN} was made for driver 575.1, and {DRIVER} runs: Docker 29.2.1 gives containers the "
        "libraries that it names",
        f"Run `{REFRESH}` there: it writes that file.",
    ),
    "a stale CDI file of no use to this Docker": (
        *(SPARK, cdi("28.5.2", **{RUN: "575.1"}), "warning cdi-stale"),
        *("*: Docker 28.5.2 takes NVIDIA's hook here and not this file", "*"),
    ),
    "a stale CDI file and an old toolkit": (
        *(SPARK, cdi("29.2.1", HOOK, **{RUN: "575.1"}), "warning cdi-stale"),
        *("*: Docker 29.2.1 takes NVIDIA's hook here and not this file", "*"),
    ),
    "a stale CDI file of /etc": (
        *(SPARK, cdi(**{ETC: "575.1"}), "error cdi-stale", "*"),
        f"Run `{REFRESH}`*`sudo rm {ETC}`*`sudo nvidia-ctk cdi generate --output={ETC}`*",
    ),
    "a stale CDI file of /etc beside a good one": (
        *(SPARK, cdi(**{ETC: "575.1", RUN: DRIVER}), "warning cdi-stale"),
        *("*: the files of /var/run/cdi stand before it", "*"),
    ),
    "a stale CDI file before a good one of /etc": (
        *(SPARK, cdi(**{ETC: DRIVER, RUN: "575.1"}), "error cdi-stale", f"{RUN} *", "*"),
    ),
    "the one-shot upgrade is to come": (
        *(SPARK, {"updates": {"once": {"done": False}}}, "warning upgrade-pending"),
        f"{ONCE} has not run yet: at the next boot it upgrades all packages and reboots again",
        '`sudo reboot` now*("upgrade-pending",)*',
    ),
    "the one-shot upgrade runs": (
        *(
            SPARK,
            {"updates": {"once": {"done": False, "running": True}}},
            "warning upgrade-pending",
        ),
        f"{ONCE} upgrades all packages now and then reboots this host",
        'Wait until it has rebooted*("upgrade-pending",)*',
    ),
    "a service uses apt": (
        *(SPARK, {"updates": {"daily": ["apt-daily-upgrade.service"]}}, "warning apt-busy"),
        *("apt-daily-upgrade.service uses apt now", "*"),
    ),
    "who has apt's locks is named once": (
        *(SPARK, {"updates": {"daily": ["apt-daily.service"], "holder": HOLDER}}),
        *("warning apt-busy", "/x/lock is held by packagekitd"),
        "Packages that are missing wait up to 30 min for each*; Stop it.",
    ),
    "half-installed packages of others": (
        *(SPARK, {"unfinished": PACKAGES}, "error apt-broken"),
        *("*thunderbird-locale-d (unpacked) and 2 more", "*--fix-broken*snaps*"),
    ),
    "an earlyoom that counts otherwise": (
        *(SPARK, {"earlyoom": "1:1.10.0-1ubuntu1"}, "warning earlyoom-late"),
        *("earlyoom 1:1.10.0-1ubuntu1 counts percent of *", "*"),
    ),
    "a kernel that was reported to panic": (
        *(MEMBER, {"kernel": {"release": "6.17.0-1008-nvidia"}}, "warning kernel"),
        "kernel 6.17.0-1008-nvidia: it was reported to panic on a Spark",
        "*DGX Dashboard*",
    ),
    "kexec handover": (SPARK, {"kernel": {"release": KEXEC}}, "warning kernel", "*", "*"),
    "kexec handover in a cluster with RDMA": (
        *(MEMBER, {"kernel": {"release": KEXEC}}, "error kernel", "*ibv_reg_mr*", "*kho=off*"),
    ),
    "the sign of kexec handover, whatever the kernel calls itself": (
        *(MEMBER, {"kernel": {**KEXEC_OFF, "release": "7.2.0-own", "cma": SIGN}}, "error kernel"),
        *("*its sign is there: CmaFree 919 MiB of CmaTotal 0 MiB", "*"),
    ),
    "a driver with which engines died": (
        *(SPARK, driver("580.159.03"), "warning driver-version"),
        *("*580.159.03*engines were reported to die*", "*580.178.04*"),
    ),
    "a driver of no branch of DGX OS": (
        *(SPARK, driver("610.43.02"), "warning driver-version"),
        *("*610.43.02*it is of no branch that DGX OS has (580)*", "*"),
    ),
    "parts of two drivers": (
        *(SPARK, {"gpu": {"fault": MISMATCH}}, "error driver"),
        *("*parts of a second driver*", "*Reboot. If it stays,*"),
    ),
    "a GPU that is gone": (
        *(SPARK, {"gpu": {"fault": GONE}}, "error driver"),
        *(f"*{GONE}; so it was where `apt upgrade` had*", "*which brings the firmware*"),
    ),
    "a driver that does not say which": (
        *(SPARK, driver(None), "warning driver-version", "*", "*nvidia-smi*"),
    ),
    "a port without its cable": (
        *(MEMBER, {"fabric": {"absent": [PORT, SECOND_PORT]}}, "warning no-cable", HIDDEN),
        "Plug the cable in; `sudo rm /etc/nvidia/cx7-hotplug-enabled` and a reboot keep the port "
        "without one.",
    ),
    **{
        f"an interface {name} that no cable brings": (
            *(MEMBER, {"fabric": {"absent": [name]}}, "error no-interface"),
            *(f"there is no network interface {name}, which `fabric` names", "*"),
        )
        for name in ("enP7s7", f"{PORT}.100")
    },
    "Wi-Fi while the deploy writes addresses": (
        *(NETPLAN_MEMBER, {"fabric": {"wireless": "wlP9s9"}}, "warning wifi"),
        *("it is reached by wlP9s9, and `netplan apply`*", "*"),
    ),
    "no netplan while the deploy writes addresses": (
        *(NETPLAN_MEMBER, {"fabric": {"netplan": False}}, "error no-netplan", "*", "*"),
    ),
    "a certificate that cannot be used": (
        *(tls_plan(YOURS), {"tls": {"fault": "/etc/ssl/spark.key: Permission denied"}}),
        *("error certificate", "*/etc/ssl/spark.key: Permission denied*", "*"),
    ),
    "a certificate that ends soon": (
        *(tls_plan(YOURS), {"tls": {"days": 20}}, "warning certificate-ends"),
        *("*20 days*", "*restart lockstep-tls*"),
    ),
    "the container of the playbook": (
        *(SPARK, containers(**PLAYBOOK), "error not-ours"),
        "there is a container open-webui without the label lockstep.unit: Lockstep did not make it",
        '*`webui.unit`*("container open-webui",)*',
    ),
    "the volume of the playbook": (
        *(SPARK, containers("open-webui"), "error not-ours", "*a volume open-webui*"),
        '*`webui.volume`*("volume open-webui",)*',
    ),
    "an engine's container": (
        *(SPARK, containers(**{"vllm-qwen36": {"id": "1", "ports": []}}), "error not-ours"),
        *("*a container vllm-qwen36*", "*models.NAME.unit*"),
    ),
    "an engine's cache": (
        *(SPARK, containers("vllm-qwen36-cache"), "error not-ours"),
        *("*", "*sudo docker volume rm vllm-qwen36-cache*"),
    ),
    "a container where the volume alone is adopted": (
        *(spark(adopt=("volume open-webui",)), containers("open-webui", **PLAYBOOK)),
        *("error not-ours", "there is a container open-webui*", "*"),
    ),
    "another port beside a container that is to go": (
        *(spark(adopt=("container open-webui",)), containers(**PLAYBOOK) | listener(8000)),
        *("error port-taken", "port 8000 of mistral-vllm*", "*"),
    ),
    "a folder of somebody else": (
        *(SPARK, {"foreign": {"/data/models": "mode 0775, of me:me; it would be 0755, of root"}}),
        "error not-ours",
        "/data/models was not made by Lockstep (mode 0775, of me:me; it would be 0755, of root), "
        "and the deploy would replace or change it",
        "Move it away,*",
    ),
    "a unit of somebody else": (
        *(SPARK, {"foreign": {"unit vllm.service": "of package vllm"}}, "error not-ours", "*"),
        'Give the model another `unit`,*`"adopt": ("unit vllm.service",)` for this host.',
    ),
    "an account of somebody else": (
        *(SPARK, {"foreign": {"account lockstep": "uid 1001"}}, "error not-ours", "*"),
        "Set `service_user` to another name,*",
    ),
}


@pytest.mark.parametrize("case", FINDINGS)
def test_a_fault_is_one_finding_with_its_remedy(case: str) -> None:
    plan, facts, kind, message, remedy = FINDINGS[case]
    # Of a member of a cluster nothing lacks, so that no disk is short.
    [finding] = findings(plan, **({"lacking": []} if plan.groups else {}), **facts)
    assert (f"{finding.severity} {finding.code}", finding.subject) == (kind, plan.name)
    assert fnmatchcase(finding.message, message), finding.message
    assert fnmatchcase(finding.remedy, remedy) and finding.remedy, finding.remedy


ADOPTING = spark(adopt=("container open-webui", "volume open-webui"))
HEALTHY: dict[str, tuple[HostPlan, dict[str, Any]]] = {
    "a CDI file for this driver": (SPARK, cdi(**{RUN: DRIVER})),
    "a CDI file that names no driver": (SPARK, cdi(**{RUN: ""})),
    "an upgrade that is off": (SPARK, {"updates": {"once": {"done": False, "state": "masked"}}}),
    "an earlyoom of no known version": (SPARK, {"earlyoom": ""}),
    "an earlyoom that nobody asks for": (spark(packages=("jq",)), {"earlyoom": "1.8.2-1"}),
    "a kernel that nobody reported": (MEMBER, {"kernel": {"release": "7.1.0"}}),
    "a kernel whose memory is as it should be": (
        *(MEMBER, {"kernel": {"release": "6.18.44", "cma": {"CmaTotal": 32, "CmaFree": 32}}}),
    ),
    "kexec handover that is off": (MEMBER, {"kernel": KEXEC_OFF}),
    "a driver that others serve with": (SPARK, driver("580.142")),
    "Wi-Fi where the addresses are the owner's": (MEMBER, {"fabric": {"wireless": "wlP9s9"}}),
    "no netplan where nobody needs it": (MEMBER, {"fabric": {"netplan": False}}),
    "a certificate for three weeks": (tls_plan(YOURS), {"tls": {"days": 21}}),
    "what is adopted": (ADOPTING, containers("open-webui", **PLAYBOOK)),
    # The port of a container that is to go is free.
    "a port by Docker": (ADOPTING, containers(**PLAYBOOK) | listener(8080)),
    "a port in a container": (
        *(ADOPTING, containers(**PLAYBOOK) | listener(8080, "docker-0123.scope")),
    ),
    # A unit of an earlier deploy, which this one stops before anything listens there.
    "a port of ours": (SPARK, listener(30001, "vllm-qwen36-key.service", ours=True)),
    # A container's process lives in Docker's cgroup.
    "a port of our engine": (SPARK, {**listener(30001, "docker-0.scope"), "units_held": True}),
}


@pytest.mark.parametrize("case", HEALTHY)
def test_what_is_in_order_is_no_finding(case: str) -> None:
    plan, facts = HEALTHY[case]
    assert findings(plan, **({"lacking": []} if plan.groups else {}), **facts) == []


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
        ("29.2.1", [HOOK], [], "", True),
        ("29.2.1", [CDI_HOOK], [DEVICE], "", True),
        ("29.2.1", [CDI_HOOK], ["nvidia.com/gpu=0"], "", False),
        ("29.2.1", [], [DEVICE], "", False),
        (None, [CDI_HOOK], [DEVICE], "", False),
        ("28.5.2", [HOOK, CDI_HOOK], [DEVICE], "cdi", False),
        ("28.5.2", [HOOK, CDI_HOOK], [DEVICE], "auto", True),
        ("28.5.2", [HOOK], [], "legacy", True),
        ("29.2.1", [HOOK, CDI_HOOK], [DEVICE], "cdi", True),
    ],
)
def test_what_gpus_all_needs_is_asked_for_and_nothing_besides(
    version: str | None, hooks: list[str], devices: list[str], mode: str, works: bool
) -> None:
    docker = {"version": version, "hooks": hooks, "devices": devices, "mode": mode}
    codes = [item.code for item in findings(docker=docker)]
    assert codes == ([] if works else ["docker-gpu"])


@pytest.mark.parametrize(
    ("image_cuda", "takes", "is_named"),
    [
        ("13.4.1", "13.0", True),
        ("14.0", "13.0", True),
        ("13.0.3", "13.0", False),
        # A lock that is older than the key, and a driver that does not say.
        ("", "13.0", False),
        ("13.4.1", None, False),
    ],
)
def test_an_image_whose_cuda_is_newer_than_the_drivers_is_named(
    image_cuda: str, takes: str | None, is_named: bool
) -> None:
    pins, now = pins_for(SPARK), 1_795_000_000.0
    name = next(iter(pins.images))
    pins = replace(pins, images={**pins.images, name: replace(pins.images[name], cuda=image_cuda)})
    facts = healthy(SPARK, now)
    facts["gpu"].pop("cuda")
    facts["gpu"] |= {"cuda": takes} if takes else {}
    every = preflight.findings(SPARK, pins, facts, now=now)
    assert [(item.code, item.severity) for item in every] == (
        [("image-cuda-newer", "warning")] if is_named else []
    )
    for item in every:
        assert f"image {name} was made with CUDA {image_cuda}" in item.message
        assert "cudaErrorUnsupportedPtxVersion" in item.message


ENTRY = "a: {fault: x, remedy: y, source: z, date: 2026-11-22"


@pytest.mark.parametrize(
    ("entry", "text", "message"),
    [
        (BadKernel, "a: 7.0", "a must be a mapping"),
        (BadKernel, "a: {release: '7.0.', whatever: 1}", "unknown key 'whatever'"),
        (BadKernel, "a: {release: '7.0.'}", "a.fault, a.remedy, a.source, a.date are missing"),
        (BadKernel, f"{ENTRY}, release: '7', breaks: usb}}", "breaks is not known"),
        (KnownBad, f"{ENTRY}}}", "a has neither release nor sign"),
    ],
)
def test_a_wrong_entry_of_the_known_bad_is_named(
    tmp_path: Path, entry: type[KnownBad], text: str, message: str
) -> None:
    (tmp_path / "list.yaml").write_text(text)
    with pytest.raises(CatalogueError, match=message):
        load(tmp_path / "list.yaml", entry)
