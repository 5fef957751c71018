"""What preflight learns from a host, on this machine and from stand-ins for a Spark's programs."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from a_lock import held
from a_probe import ask, program
from onhost_fakes import FakeDocker

from lockstep.onhost.core import meminfo

# Each starts Python, as a host does, and the programs that it asks.
pytestmark = pytest.mark.slow

# A key that nobody uses, and what `ssh-keygen -lf` shows of it.
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIK5r80uRFOOEmHwCHd1jEkejsC3/dtDhj651LkZy9Ycj"
FINGERPRINT = "SHA256:9BhddaDmPNVhRRQKu4XY4pD7KIqztWzQoAwLzsOr5hU"
LABEL = "lockstep.unit"
ASKED: dict[str, Any] = {
    "paths": [],
    "cache": "/nonexistent",
    "reach": {},
    "needs": {},
    "packages": [],
    "ports": [],
    "models": [],
    "images": {},
    "accounts": [],
    "fabric": ["lo", "enp9s9"],
    "sysctls": [],
    "docker_client": "/usr/bin/docker",
    "netplan": "/nonexistent",
    "tls": {},
    "docker": {
        "containers": ["open-webui", "engine"],
        "volumes": ["open-webui", "engine-cache"],
    },
}
INFO = {
    "ServerVersion": "28.3.3",
    "DiscoveredDevices": [{"Source": "cdi", "ID": "nvidia.com/gpu=all"}],
    "DockerRootDir": "/var/lib/docker",
}


@pytest.fixture
def spark(tmp_path: Path) -> Path:
    """Programs as a Spark has them."""
    folder = tmp_path / "bin"
    screen = "| NVIDIA-SMI 580.95.05   Driver Version: 580.95.05   CUDA Version: 13.0 |"
    row = "NVIDIA GB10, 580.95.05, 12.1"
    nvidia_smi = f'[ "$1" ] && echo "{row}" || echo "{screen}"'
    program(folder, "nvidia-smi", nvidia_smi)
    program(folder, "nvidia-container-runtime-hook", "")
    program(folder, "nvcc", 'echo "Cuda compilation tools, release 13.0, V13.0.88"')
    program(folder, "ptxas", "echo ptxas")
    # The machine's own read all of its lists.
    program(folder, "apt-cache", "exit 100")
    program(folder, "dpkg-query", "exit 1")
    (tmp_path / "dgx-release").write_text(
        'DGX_NAME="DGX Spark"\nDGX_SWBUILD_VERSION="7.2.3"\n\n# comment\n'
    )
    (tmp_path / "cmdline").write_text("BOOT_IMAGE=/boot/vmlinuz ro quiet kho=off\n")
    memory = Path("/proc/meminfo").read_text().splitlines()
    own = [line for line in memory if not line.startswith("Cma")]
    own += ["CmaTotal:              0 kB", "CmaFree:          940604 kB"]
    (tmp_path / "meminfo").write_text("\n".join(own) + "\n")
    return tmp_path


@pytest.fixture
def docker(spark: Path) -> Iterator[FakeDocker]:
    """Its Docker, with one image."""
    daemon = FakeDocker(spark / "docker.sock")
    here = [{"RepoDigests": ["here@sha256:1"]}, {"RepoDigests": None}]
    daemon.answers = {"/info": INFO, "/images/json": here}
    daemon.images["here@sha256:1"] = {"Architecture": "arm64"}
    yield daemon
    daemon.close()


def test_leases_that_a_killed_deploy_left_are_told_without_their_tokens(spark: Path) -> None:
    folder = spark / "peers"
    folder.mkdir()
    for name in ("b.client.json", "a.client.json", "a.offer.json", ".c.client.json.new"):
        (folder / name).write_text("token")
    answer = ask("preflight", ASKED, spark / "bin", {"/run/lockstep/peers": str(folder)})
    assert answer["leases"] == ["a", "b"]
    assert "token" not in json.dumps(answer)


def preflight(spark: Path, **asked: Any) -> Any:
    return ask(
        "preflight",
        {**ASKED, **asked},
        spark / "bin",
        {
            "/usr/local/cuda/bin": str(spark / "bin"),
            "/etc/dgx-release": str(spark / "dgx-release"),
            '"/usr/local/sbin:': f'"{spark / "bin"}:',
            "/etc/nvidia-container-runtime": str(spark),
            "/etc/cdi": str(spark / "cdi"),
            "/var/run/cdi": str(spark / "run-cdi"),
            "/run/docker.sock": str(spark / "docker.sock"),
            "/proc/cmdline": str(spark / "cmdline"),
            '"/proc/meminfo"': f'"{spark / "meminfo"}"',
        },
    )


@pytest.mark.parametrize(
    ("state", "up"),
    [("active", ["b.service"]), ("activating", ["b.service"]), ("failed", []), ("inactive", [])],
)
def test_a_unit_of_ours_that_is_not_off_is_told(spark: Path, state: str, up: list[str]) -> None:
    targets = spark / "targets.json"
    units = {name: {"unit": f"{name}.service"} for name in "ab"}
    targets.write_text(json.dumps({"targets": units}))
    shown = f"a.service loaded inactive dead A unit\\nb.service loaded {state} any B unit\\n"
    program(spark / "bin", "systemctl", f"[ $1 != list-units ] || printf '{shown}'")
    found = {"/etc/lockstep/targets.json": str(targets)}
    assert ask("preflight", ASKED, spark / "bin", found)["units_up"] == up
    targets.unlink()
    assert ask("preflight", ASKED, spark / "bin", found)["units_up"] == []


def test_preflight_reads_a_spark(spark: Path, docker: FakeDocker) -> None:
    (spark / "config.toml").write_text(
        'disable-require = false\n[nvidia-container-runtime]\nmode = "cdi"\n'
    )
    answer = preflight(spark, images={"here": "here@sha256:1", "gone": "gone@sha256:2"})
    assert (answer["lacking"], answer["leases"]) == (["gone"], [])
    assert answer["dgx"] == {"DGX_NAME": "DGX Spark", "DGX_SWBUILD_VERSION": "7.2.3"}
    assert answer["cuda"] == {"nvcc": "13.0", "ptxas": "runs"}
    assert answer["gpu"] == {
        "name": "NVIDIA GB10",
        "driver_version": "580.95.05",
        "compute_cap": "12.1",
        "cuda": "13.0",
    }
    assert answer["docker"] == {
        "version": "28.3.3",
        "cdi": {},
        "hooks": ["nvidia-container-runtime-hook"],
        "devices": ["nvidia.com/gpu=all"],
        "mode": "cdi",
        "images": ["here@sha256:1"],
        "foreign": {"containers": {}, "volumes": []},
        "root": "/var/lib/docker",
    }
    assert answer["architecture"] == os.uname().machine
    assert answer["memory"]["MemTotal"] == pytest.approx(
        meminfo.memory().total * meminfo.GIB, rel=1e-6
    )
    assert answer["kernel"] == {
        "release": os.uname().release,
        "command_line": "BOOT_IMAGE=/boot/vmlinuz ro quiet kho=off",
        "cma": {"CmaTotal": 0, "CmaFree": 940604 * 1024},
    }
    assert list(answer["disks"]) == ["/var/lib/docker"]
    assert abs(answer["time"] - time.time()) < 60


@pytest.mark.parametrize(
    ("name", "text", "key", "answer"),
    [
        ("nvidia-smi", "echo no driver >&2; exit 9", "gpu", {"fault": "no driver"}),
        ("nvidia-smi", "exit 9", "gpu", {"fault": "nvidia-smi ended with 9"}),
        ("ptxas", "exit 1", "cuda", {"nvcc": "13.0"}),
        ("nvcc", "exit 1", "cuda", {"ptxas": "runs"}),
    ],
)
def test_preflight_reads_what_is_broken(
    spark: Path, name: str, text: str, key: str, answer: dict[str, Any]
) -> None:
    program(spark / "bin", name, text)
    assert preflight(spark)[key] == answer


def test_a_docker_that_does_not_answer_is_a_fault(spark: Path) -> None:
    assert "No such file" in preflight(spark)["docker"]["fault"]
    daemon = FakeDocker(spark / "docker.sock")
    # This one knows no /info.
    assert preflight(spark)["docker"] == {"fault": "No such object: info"}
    daemon.close()
    assert "refused" in preflight(spark)["docker"]["fault"]


def docker_ways(spark: Path, **replaced: str) -> Any:
    places = {
        "/run/docker.sock": str(spark / "docker.sock"),
        "/run/user/*/docker.sock": f"{spark}/user/*/docker.sock",
        'path.split("/")[3]': 'path.split("/")[-2]',
        "/snap/bin/docker": str(spark / "snap-docker"),
        **replaced,
    }
    asked = {**ASKED, "docker_client": str(spark / "bin/docker")}
    return ask("preflight", asked, spark / "bin", places)["docker_ways"]


def test_preflight_tells_which_dockers_there_are(spark: Path, docker: FakeDocker) -> None:
    none = {"client": False, "rootless": [], "snap": False, "said": ""}
    assert docker_ways(spark) == none
    program(spark / "bin", "docker", "")
    program(spark / "bin", "systemctl", "echo active")
    (spark / "snap-docker").touch()
    for account in ("anna", "ben"):
        (spark / "user" / account).mkdir(parents=True)
    # One that has ended leaves its socket.
    (spark / "user/ben/docker.sock").touch()
    own = FakeDocker(spark / "user/anna/docker.sock")
    own.answers = {"/info": INFO}
    found = docker_ways(spark)
    own.close()
    assert found == {"client": True, "rootless": ["anna"], "snap": True, "said": ""}


def test_a_docker_that_failed_to_start_is_asked_for_its_last_words(spark: Path) -> None:
    line = "failed to start daemon: error initializing buildkit: invalid database"
    program(spark / "bin", "journalctl", f"echo Starting; echo '{line}'; echo stopped")
    said = docker_ways(spark)["said"]
    assert said == "error initializing buildkit: invalid database"


def container(name: str, *labels: str, port: int = 0) -> dict[str, Any]:
    bound = [{"IP": "0.0.0.0", "PrivatePort": 8080, "PublicPort": port}] if port else []
    return {
        "Id": f"id-{name}",
        "Names": [f"/{name}"],
        "Labels": dict.fromkeys(labels, name),
        "Ports": [{"PrivatePort": 9090}, *bound],
    }


def test_preflight_tells_ours_from_somebody_elses_by_the_label(
    spark: Path, docker: FakeDocker
) -> None:
    theirs = [container("open-webui", "maintainer", port=12000), container("engine", LABEL)]
    volumes = [
        {"Name": "open-webui", "Labels": None},
        {"Name": "engine-cache", "Labels": {LABEL: ""}},
    ]
    # Nobody asked about these.
    docker.answers |= {
        "/containers/json": [*theirs, container("other", port=80)],
        "/volumes": {"Volumes": [*volumes, {"Name": "other", "Labels": {}}]},
    }
    assert preflight(spark)["docker"]["foreign"] == {
        "containers": {"open-webui": {"id": "id-open-webui", "ports": [12000]}},
        "volumes": ["open-webui"],
    }


def test_preflight_reads_for_which_driver_each_cdi_file_was_made(
    spark: Path, docker: FakeDocker
) -> None:
    for folder in ("cdi", "run-cdi"):
        (spark / folder).mkdir()
    made = "kind: nvidia.com/gpu\nhostPath: /usr/lib/aarch64-linux-gnu/libcuda.so.580.95.05\n"
    (spark / "cdi/nvidia.yaml").write_text(made)
    (spark / "cdi/other.json").write_text('{"kind": "vendor.com/nic"}')
    (spark / "run-cdi/nvidia.yaml").write_text("kind: nvidia.com/gpu\n")
    assert preflight(spark)["docker"]["cdi"] == {
        str(spark / "cdi/nvidia.yaml"): "580.95.05",
        str(spark / "run-cdi/nvidia.yaml"): "",
    }


def test_preflight_tells_what_should_be_one_hosts_alone(spark: Path) -> None:
    keys = spark / "ssh"
    keys.mkdir()
    (keys / "ssh_host_ed25519_key.pub").write_text(f"{KEY} root@x\n")
    (keys / "ssh_host_rsa_key.pub").write_text("not a key\n")
    (spark / "machine-id").write_text("295f5139615f4bbaa29921a29574c7a3\n")
    replaced = {"/etc/ssh/": f"{keys}/", "/etc/machine-id": str(spark / "machine-id")}
    answer = ask("preflight", ASKED, spark / "bin", replaced)
    assert answer["identity"]["host_keys"] == [f"ssh-ed25519 {FINGERPRINT}"]
    # Confidential by its manual page: told apart by a hash.
    assert len(answer["identity"]["machine_id"]) == 64
    assert "295f5139" not in json.dumps(answer)


def test_a_kernel_without_such_memory_tells_none(spark: Path) -> None:
    (spark / "meminfo").write_text("MemTotal: 4 kB\nMemAvailable: 2 kB\n")
    assert preflight(spark)["kernel"]["cma"] == {}


SHOWN = """\
Id=nvidia-spark-run-apt-upgrade-once.service
ActiveState={once}
UnitFileState=enabled

Id=apt-daily.service
ActiveState={daily}
UnitFileState=static

Id=apt-daily-upgrade.service
ActiveState=inactive
UnitFileState=static
"""


@pytest.mark.parametrize("state", ["inactive", "activating"])
def test_preflight_reads_whether_updates_run_or_are_to_come(spark: Path, state: str) -> None:
    shown = SHOWN.format(once=state, daily=state)
    program(spark / "bin", "systemctl", f"cat <<'E'\n{shown}E")
    done = {"/var/lib/nvidia-spark-run-apt-upgrade-once/done": str(spark / "done")}
    running = state == "activating"
    assert ask("preflight", ASKED, spark / "bin", done)["updates"] == {
        "once": {"state": "enabled", "running": running, "done": False},
        "daily": ["apt-daily.service"] if running else [],
        "holder": None,
    }
    (spark / "done").touch()
    assert ask("preflight", ASKED, spark / "bin", done)["updates"]["once"]["done"]


def test_a_host_without_these_services_has_none(spark: Path) -> None:
    program(spark / "bin", "systemctl", "exit 1")
    once = {"state": "", "running": False, "done": False}
    assert preflight(spark)["updates"] == {"once": once, "daily": [], "holder": None}


def test_preflight_tells_who_has_a_lock_of_apt(spark: Path) -> None:
    root = {'root: Path = Path("/")': f'root: Path = Path("{spark}")'}
    lock = spark / "var/lib/dpkg/lock-frontend"
    with held(lock) as process:
        holder = ask("preflight", ASKED, spark / "bin", root)["updates"]["holder"]
    assert holder["who"].startswith(f"{lock} is held by a process") and holder["remedy"]
    assert str(process.pid) in holder["who"]


def test_packages_of_others_are_looked_for_where_something_is_missing(spark: Path) -> None:
    said = "git\\t1\\tinstall\\tinstalled"
    query = f"[ \"$4\" ] && printf '{said}\\n' || printf 'unpacked snaps\\n'"
    program(spark / "bin", "dpkg-query", query)
    unmet = " locale : Depends: browser but it is not installable"
    program(spark / "bin", "apt-get", f"echo '{unmet}'; exit 100")
    assert preflight(spark, packages=["git"])["unfinished"] == {}
    lacking = {"snaps": "unpacked", "locale": "Depends: browser but it is not installable"}
    assert preflight(spark, packages=["git", "jq"])["unfinished"] == lacking
    # Its own are no others'.
    mine = preflight(spark, packages=["git", "jq", "snaps"])["unfinished"]
    assert list(mine) == ["locale"]


def test_preflight_reads_which_earlyoom_is_there_or_would_come(spark: Path) -> None:
    program(spark / "bin", "dpkg-query", "exit 1")
    program(spark / "bin", "apt-cache", "exit 100")
    assert preflight(spark)["earlyoom"] == ""
    program(spark / "bin", "apt-cache", "printf 'Package: earlyoom\\nVersion: 1.8.2-1\\n'")
    assert preflight(spark)["earlyoom"] == "1.8.2-1"
    program(spark / "bin", "dpkg-query", 'test "$4" = earlyoom && printf 1.7-2')
    assert preflight(spark)["earlyoom"] == "1.7-2"


def test_preflight_names_accounts_that_are_not_there(spark: Path) -> None:
    answer = preflight(spark, accounts=["root", "no-such-user"])
    assert answer["unknown_accounts"] == ["no-such-user"]


def test_preflight_names_settings_that_this_kernel_does_not_have(spark: Path) -> None:
    answer = preflight(spark, sysctls=["vm.swappiness", "vm.swapiness", "net.none.such"])
    assert answer["unknown_sysctls"] == {"vm.swapiness": "vm.swappiness", "net.none.such": ""}


def test_preflight_measures_the_disk_of_a_folder_that_is_to_come(spark: Path) -> None:
    path = str(spark / "not/yet/there")
    disk = preflight(spark, paths=[path])["disks"][path]
    assert disk["device"] == spark.stat().st_dev
    assert disk["free"] > 0


@pytest.mark.parametrize(("family", "address"), [("AF_INET", "127.0.0.1"), ("AF_INET6", "::1")])
def test_preflight_names_who_listens_on_our_ports(spark: Path, family: str, address: str) -> None:
    with socket.create_server((address, 0), family=socket.AddressFamily[family]) as server:
        port = server.getsockname()[1]
        listeners = preflight(spark, ports=[port, 1])["listeners"]
    assert list(listeners) == [str(port)]
    assert listeners[str(port)]["process"] == Path("/proc/self/comm").read_text().strip()
    assert listeners[str(port)]["ours"] is False


def test_preflight_tries_every_address(spark: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        there = f"http://127.0.0.1:{server.getsockname()[1]}/simple"
        with socket.socket() as bound:
            # Bound, but nobody listens.
            bound.bind(("127.0.0.1", 0))
            closed = f"https://127.0.0.1:{bound.getsockname()[1]}"
            urls = [there, closed, "https://nowhere.invalid", "file:///srv/wheels"]
            needs = {"wheels": {"/nonexistent": ["x"]}}
            reach = preflight(spark, reach={url: ["wheels"] for url in urls}, needs=needs)["reach"]
    assert list(reach) == urls
    assert reach[there] is None
    assert "refused" in reach[closed]
    assert reach["https://nowhere.invalid"]
    assert reach["file:///srv/wheels"] is None


def test_preflight_names_the_blobs_of_a_model_that_are_there(spark: Path) -> None:
    blobs = spark / "hub/models--org--big/blobs"
    blobs.mkdir(parents=True)
    (blobs / "a").write_bytes(bytes(1000))
    (blobs / "b.incomplete").write_bytes(bytes(24))
    answer = preflight(spark, cache=str(spark), models=["org/big", "org/none"])
    assert answer["models"] == {"org/big": {"a": 1000, "b.incomplete": 24}, "org/none": {}}


def test_preflight_tries_no_address_from_which_nothing_is_needed(
    spark: Path, docker: FakeDocker
) -> None:
    (spark / "whole").touch()
    reach = {
        "http://hub.invalid": ["models"],
        "http://index.invalid": ["tools", "engine"],
        "http://registry.invalid": ["here"],
        "http://other.invalid": ["gone"],
    }
    needs = {"models": {str(spark): ["whole"]}, "tools": {str(spark): ["whole", "absent"]}}
    images = {"here": "here@sha256:1", "gone": "gone@sha256:2"}
    answer = preflight(spark, reach=reach, needs={**needs, "engine": {}}, images=images)
    assert answer["lacking"] == ["tools", "gone"]
    assert list(answer["reach"]) == ["http://index.invalid", "http://other.invalid"]


def test_interfaces_that_are_not_there_are_named_among_those_that_are(spark: Path) -> None:
    found = preflight(spark)["fabric"]
    assert found["absent"] == ["enp9s9"] and "lo" in found["known"]
