"""Facts of preflight about a host, on this machine and from stand-ins for a Spark's programs."""

import json
import os
import socket
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import a_spark
import pytest
from a_lock import hold_lock
from a_probe import program
from a_spark import healthy
from onhost_fakes import FakeDocker, FakeSystemd

from lockstep.onhost.core import layout
from lockstep.onhost.facts import docker as dockers
from lockstep.onhost.facts import machine, packages, preflight, reader_helpers

# A key that nobody uses, and what `ssh-keygen -lf` shows of it.
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIK5r80uRFOOEmHwCHd1jEkejsC3/dtDhj651LkZy9Ycj"
FINGERPRINT = "SHA256:9BhddaDmPNVhRRQKu4XY4pD7KIqztWzQoAwLzsOr5hU"
LABEL = "lockstep.unit"
ASKED: dict[str, Any] = {
    **{key: [] for key in ["paths", "packages", "ports", "checkpoints", "accounts", "sysctls"]},
    **{key: {} for key in ["reach", "needs", "images", "tls"]},
    "cache": "/nonexistent",
    "fabric": ["lo", "enp9s9"],
    "docker_client": "/usr/bin/docker",
    "netplan": "/nonexistent",
    "docker": {"containers": ["open-webui", "engine"], "volumes": ["open-webui", "engine-cache"]},
}
INFO = {
    "ServerVersion": "28.3.3",
    "DiscoveredDevices": [{"Source": "cdi", "ID": "nvidia.com/gpu=all"}],
    "DockerRootDir": "/var/lib/docker",
}


class Spark:
    """Programs as a Spark has them; a file of its own below `root` is read in the place of ours."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root, self.bin = folder / "root", folder / "bin"
        self.root.mkdir()
        screen = "| NVIDIA-SMI 580.95.05   Driver Version: 580.95.05   CUDA Version: 13.0 |"
        row = "NVIDIA GB10, 580.95.05, 12.1"
        self.does("nvidia-smi", f'[ "$1" ] && echo "{row}" || echo "{screen}"')
        self.does("nvidia-container-runtime-hook", "")
        self.does("nvcc", 'echo "Cuda compilation tools, release 13.0, V13.0.88"')
        self.does("ptxas", "echo ptxas")
        # The machine's own read all of its lists.
        self.does("apt-cache", "exit 100")
        self.does("dpkg-query", "exit 1")
        memory = {"MemTotal": 4000, "MemAvailable": 2000, "CmaTotal": 0, "CmaFree": 940604}
        self.write("/proc/meminfo", "\n".join(f"{key}:  {kib} kB" for key, kib in memory.items()))
        self.write("/proc/cmdline", "BOOT_IMAGE=/boot/vmlinuz ro quiet kho=off\n")
        self.write("/etc/dgx-release", 'DGX_NAME="DGX Spark"\n\n# comment\n')
        self.systemd = FakeSystemd(folder / "systemd", monkeypatch)
        monkeypatch.setenv("PATH", f"{self.bin}:{os.environ['PATH']}")
        paths = layout.Paths(self.root)
        monkeypatch.setattr(layout, "Paths", lambda: paths)
        monkeypatch.setattr(reader_helpers, "open", self._open, raising=False)
        folder_paths = reader_helpers.folder_paths
        monkeypatch.setattr(preflight, "folder_paths", lambda at: folder_paths(self.host_path(at)))
        keys = SimpleNamespace(glob=lambda path: map(str, self.root.glob(path.lstrip("/"))))
        monkeypatch.setattr(preflight, "glob", keys)
        monkeypatch.setattr(machine, "run", self._run)
        for place in ("_MODELS", "_DONE"):
            monkeypatch.setattr(preflight, place, f"{self.root}{getattr(preflight, place)}")
        monkeypatch.setattr(machine, "CDI", [f"{self.root}{folder}" for folder in machine.CDI])
        self.socket = folder / "docker.sock"
        monkeypatch.setattr(dockers, "SOCKET", self.socket)
        monkeypatch.setattr(dockers, "_TOOLKIT", self.root / "toolkit.toml")
        monkeypatch.setattr(dockers, "_DAEMON_PATH", str(self.bin))

    def does(self, name: str, text: str) -> None:
        program(self.bin, name, text)

    def write(self, path: str, text: str = "") -> Path:
        at = self.root / path.lstrip("/")
        at.parent.mkdir(parents=True, exist_ok=True)
        at.write_text(text)
        return at

    def host_path(self, path: str) -> str:
        own = self.root / path.lstrip("/")
        return str(own) if own.exists() else path

    def _open(self, path: str, *how: str, **more: str) -> Any:
        return Path(self.host_path(path)).open(*how, **more)

    def _run(self, *argv: str) -> Any:
        return reader_helpers.run(Path(argv[0]).name, *argv[1:])

    def preflight_answer(self, **questions: Any) -> Any:
        return json.loads(json.dumps(preflight.read({**ASKED, **questions})))


@pytest.fixture
def spark(tmp_path, monkeypatch) -> Spark:
    return Spark(tmp_path, monkeypatch)


@pytest.fixture
def docker(spark):
    """The host's Docker, with one image."""
    daemon = FakeDocker(spark.socket)
    local_images = [{"RepoDigests": ["here@sha256:1"]}, {"RepoDigests": None}]
    daemon.answers = {"/info": INFO, "/images/json": local_images}
    daemon.images["here@sha256:1"] = {"Architecture": "arm64"}
    yield daemon
    daemon.close()


def test_units_of_ours_that_are_not_off_are_told(spark):
    assert preflight._running_model_units() == []
    states = ("active", "activating", "failed", "inactive")
    models = {state: {"unit": state} for state in states}
    spark.write("/etc/lockstep/models.json", json.dumps({"models": models}))
    for state in states:
        spark.systemd.unit(state, ActiveState=state)
    assert preflight._running_model_units() == ["activating", "active"]


def container(name: str, *labels: str, port: int = 0) -> dict[str, Any]:
    public_ports = [{"IP": "0.0.0.0", "PrivatePort": 8080, "PublicPort": port}] if port else []
    names = {"Id": f"id-{name}", "Names": [f"/{name}"], "Labels": dict.fromkeys(labels, name)}
    return {**names, "Ports": [{"PrivatePort": 9090}, *public_ports]}


def test_preflight_reads_a_spark(spark, docker):
    containers = [container("open-webui", "maintainer", port=12000), container("engine", LABEL)]
    labels = {"open-webui": None, "engine-cache": {LABEL: ""}, "other": {}}
    volumes = [{"Name": name, "Labels": of_volume} for name, of_volume in labels.items()]
    # Nobody asked about the others.
    docker.answers["/containers/json"] = [*containers, container("other", port=80)]
    docker.answers["/volumes"] = {"Volumes": volumes}
    mode = 'disable-require = false\n[nvidia-container-runtime]\nmode = "cdi"\n'
    spark.write("toolkit.toml", mode)
    cdi_text = "kind: nvidia.com/gpu\nhostPath: /usr/lib/aarch64-linux-gnu/libcuda.so.580.95.05\n"
    own = spark.write("/etc/cdi/nvidia.yaml", cdi_text)
    spark.write("/etc/cdi/other.json", '{"kind": "vendor.com/nic"}')
    untold = spark.write("/var/run/cdi/nvidia.yaml", "kind: nvidia.com/gpu\n")
    spark.write("/hub/models--org--big/blobs/a", 1000 * "x")
    spark.write("/hub/models--org--big/blobs/b.incomplete", 24 * "x")
    # A killed deploy left them.
    for name in ("b.client.json", "a.client.json", "a.offer.json", ".c.client.json.new"):
        spark.write(f"/run/lockstep/peers/{name}", "token")
    spark.write("/etc/ssh/ssh_host_ed25519_key.pub", f"{KEY} root@x\n")
    spark.write("/etc/ssh/ssh_host_rsa_key.pub", "not a key\n")
    spark.write("/etc/machine-id", "295f5139615f4bbaa29921a29574c7a3\n")
    path = str(spark.root / "not/yet/there")
    answer = spark.preflight_answer(
        images={"here": "here@sha256:1", "gone": "gone@sha256:2"},
        paths=[path],
        cache=str(spark.root),
        checkpoints=["org/big", "org/none"],
        accounts=["root", "no-such-user"],
        sysctls=["vm.swappiness", "vm.swapiness", "net.none.such"],
    )
    # Tests of what is made of it have the same; "foreign" is asked for itself.
    assert {*answer, "foreign"} == healthy(a_spark.spark(), 0.0).keys()
    assert answer["dgx"] == {"DGX_NAME": "DGX Spark"}
    assert answer["cuda"] == {"nvcc": "13.0", "ptxas": "runs"}
    versions = {"driver_version": "580.95.05", "compute_cap": "12.1", "cuda": "13.0"}
    assert answer["gpu"] == {"name": "NVIDIA GB10", **versions}
    assert answer["docker"] == {
        "version": "28.3.3",
        "cdi": {str(own): "580.95.05", str(untold): ""},
        "hooks": ["nvidia-container-runtime-hook"],
        "devices": ["nvidia.com/gpu=all"],
        "mode": "cdi",
        "images": ["here@sha256:1"],
        "foreign": {
            "containers": {"open-webui": {"id": "id-open-webui", "ports": [12000]}},
            "volumes": ["open-webui"],
        },
        "root": "/var/lib/docker",
    }
    drivers = [fact[1:] for fact in machine.driver({"key": 64 * "0"}) if fact[0] == "CDI driver"]
    assert drivers == [(str(own), "580.95.05"), (str(untold), machine.UNTOLD)]
    assert answer["architecture"] == os.uname().machine
    assert answer["memory"] == {"MemTotal": 4000 * 1024, "MemAvailable": 2000 * 1024}
    assert machine.available(None) == 2000 * 1024
    assert answer["kernel"] == {
        "release": os.uname().release,
        "command_line": "BOOT_IMAGE=/boot/vmlinuz ro quiet kho=off",
        "cma": {"CmaTotal": 0, "CmaFree": 940604 * 1024},
    }
    assert list(answer["disks"]) == [path, "/var/lib/docker"]
    # It is to come, and so the disk is that of the folder above.
    assert answer["disks"][path]["device"] == spark.root.stat().st_dev
    assert answer["disks"][path]["free"] > 0
    assert abs(answer["time"] - time.time()) < 60
    assert answer["checkpoints"] == {"org/big": {"a": 1000, "b.incomplete": 24}, "org/none": {}}
    assert answer["leases"] == ["a", "b"]
    assert answer["unknown_accounts"] == ["no-such-user"]
    assert answer["unknown_sysctls"] == {"vm.swapiness": "vm.swappiness", "net.none.such": ""}
    assert answer["fabric"]["absent"] == ["enp9s9"] and "lo" in answer["fabric"]["known"]
    # Confidential by its manual page: told apart by a hash.
    assert answer["identity"]["host_keys"] == [f"ssh-ed25519 {FINGERPRINT}"]
    assert len(answer["identity"]["machine_id"]) == 64
    assert "295f5139" not in json.dumps(answer) and "token" not in json.dumps(answer)


@pytest.mark.parametrize(
    ("name", "text", "read", "answer"),
    [
        ("nvidia-smi", "echo no driver >&2; exit 9", machine.gpu, {"fault": "no driver"}),
        ("nvidia-smi", "exit 9", machine.gpu, {"fault": "nvidia-smi ended with 9"}),
        ("nvcc", "exit 1", machine.cuda_toolkit_releases, {"ptxas": "runs"}),
    ],
)
def test_preflight_reads_what_is_broken(spark, name, text, read, answer):
    spark.does(name, text)
    assert read() == answer


def test_a_docker_that_does_not_answer_is_a_fault(spark):
    def fault() -> str:
        return spark.preflight_answer()["docker"]["fault"]

    assert "No such file" in fault()
    daemon = FakeDocker(spark.socket)
    # This one knows no /info.
    assert fault() == "No such object: info"
    daemon.close()
    assert "refused" in fault()


def test_preflight_tells_which_dockers_there_are(spark, monkeypatch):
    client = spark.bin / "docker"
    monkeypatch.chdir(spark.root)
    # Named as the real ones are: the account is the third folder.
    monkeypatch.setattr(dockers, "_ROOTLESS", "./run/user/*/docker.sock")
    monkeypatch.setattr(dockers, "_SNAP", str(spark.root / "snap-docker"))
    none = {"client": False, "rootless": [], "snap": False, "said": ""}
    assert dockers.dockers_of_host(str(client), answers=True) == none
    spark.does("docker", "")
    spark.systemd.unit("snap.docker.dockerd.service", ActiveState="active")
    spark.write("snap-docker")
    # One that has ended leaves its socket.
    spark.write("/run/user/ben/docker.sock")
    (spark.root / "run/user/anna").mkdir()
    own = FakeDocker(Path("run/user/anna/docker.sock"))
    own.answers = {"/info": INFO}
    ways = dockers.dockers_of_host(str(client), answers=True)
    own.close()
    assert ways == {"client": True, "rootless": ["anna"], "snap": True, "said": ""}
    line = "failed to start daemon: error initializing buildkit: invalid database"
    spark.does("journalctl", f"echo Starting; echo '{line}'; echo stopped")
    message = dockers.dockers_of_host(str(client), answers=False)["said"]
    assert message == "error initializing buildkit: invalid database"


@pytest.mark.parametrize("state", ["inactive", "activating"])
def test_preflight_reads_whether_updates_run_or_are_to_come(spark, state):
    once = {"state": "", "running": False, "done": False}
    assert preflight.updates() == {"once": once, "daily": [], "holder": None}
    spark.systemd.unit(preflight.ONCE, ActiveState=state, UnitFileState="enabled")
    spark.systemd.unit("apt-daily.service", ActiveState=state)
    spark.systemd.unit("apt-daily-upgrade.service")
    running = state == "activating"
    assert preflight.updates() == {
        "once": {"state": "enabled", "running": running, "done": False},
        "daily": ["apt-daily.service"] if running else [],
        "holder": None,
    }
    spark.write("/var/lib/nvidia-spark-run-apt-upgrade-once/done")
    lock = spark.root / "var/lib/dpkg/lock-frontend"
    with hold_lock(lock):
        answer = preflight.updates()
    assert answer["once"]["done"] and answer["holder"]["who"].startswith(f"{lock} is held by a")


def test_packages_of_others_are_looked_for_where_something_is_missing(spark):
    package_line = "git\\t1\\tinstall\\tinstalled"
    query = f"[ \"$4\" ] && printf '{package_line}\\n' || printf 'unpacked snaps\\n'"
    spark.does("dpkg-query", query)
    unmet = " locale : Depends: browser but it is not installable"
    spark.does("apt-get", f"echo '{unmet}'; exit 100")
    assert packages.unfinished_packages(["git"]) == {}
    lacking = {"snaps": "unpacked", "locale": "Depends: browser but it is not installable"}
    assert packages.unfinished_packages(["git", "jq"]) == lacking
    # Its own are no others'.
    assert list(packages.unfinished_packages(["git", "jq", "snaps"])) == ["locale"]


def test_preflight_reads_which_earlyoom_is_there_or_would_come(spark):
    assert packages.installed_or_candidate_version("earlyoom") == ""
    spark.does("apt-cache", "printf 'Package: earlyoom\\nVersion: 1.8.2-1\\n'")
    assert packages.installed_or_candidate_version("earlyoom") == "1.8.2-1"
    spark.does("dpkg-query", 'test "$4" = earlyoom && printf 1.7-2')
    assert packages.installed_or_candidate_version("earlyoom") == "1.7-2"


@pytest.mark.usefixtures("docker")
def test_preflight_tries_every_address_from_which_something_is_needed_and_no_other(spark):
    spark.write("whole")
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket() as idle_socket:
        served_url = f"http://127.0.0.1:{server.getsockname()[1]}/simple"
        # Bound, but nobody listens.
        idle_socket.bind(("127.0.0.1", 0))
        closed_url = f"https://127.0.0.1:{idle_socket.getsockname()[1]}"
        reach = {
            "http://hub.invalid": ["checkpoints"],
            served_url: ["tools", "engine"],
            closed_url: ["tools"],
            "http://registry.invalid": ["here"],
            "http://other.invalid": ["gone"],
            "file:///srv/wheels": ["tools"],
        }
        root = str(spark.root)
        needs = {"checkpoints": {root: ["whole"]}, "tools": {root: ["whole", "absent"]}}
        images = {"here": "here@sha256:1", "gone": "gone@sha256:2"}
        answer = spark.preflight_answer(reach=reach, needs={**needs, "engine": {}}, images=images)
    assert answer["lacking"] == ["tools", "gone"]
    faults = answer["reach"]
    assert list(faults) == [served_url, closed_url, "http://other.invalid", "file:///srv/wheels"]
    assert faults[served_url] is faults["file:///srv/wheels"] is None
    assert "refused" in faults[closed_url] and faults["http://other.invalid"]
