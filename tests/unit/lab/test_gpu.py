"""The words that give a host of the lab a GPU of the machine."""

import json
import platform
import runpy
from pathlib import Path

import pytest

from lab.core.errors import LabError
from lab.core.state import Lab, hosts
from lab.host import disk, gpu
from lab.host.machine import Machine

RUNC = Path(gpu.__file__).parents[1] / "guest/root/usr/lib/lockstep-lab/runc"
TRIPLET = f"{platform.machine()}-linux-gnu"


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """A machine with two GPUs, its driver in a folder of its own, and a library beside it."""
    for name in ("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm", "nvidiafoo", "null"):
        _write(tmp_path / "dev" / name)
    driver = tmp_path / "usr/local/nvidia"
    for name in ("libnvidia-ml.so.580.1", "libcuda.so.580.1", "libvulkan.so.1"):
        _write(driver / "lib64" / name)
    (driver / "lib64/libnvidia-ml.so.1").symlink_to("libnvidia-ml.so.580.1")
    (driver / "lib64/libcuda.so.1").symlink_to("libcuda.so.580.1")
    _write(driver / "bin/nvidia-smi")
    return tmp_path


def _write(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()


def test_each_host_has_one_gpu_and_the_drivers_files_read_only(machine: Path) -> None:
    driver, inside = machine / "usr/local/nvidia", f"/usr/lib/{TRIPLET}"
    first, second, third = (gpu.options(host, machine) for host in hosts(3))
    assert first == [
        *(f"--bind={machine}/dev/{name}:/dev/{name}" for name in ("nvidia0", "nvidiactl")),
        f"--bind={machine}/dev/nvidia-uvm:/dev/nvidia-uvm",
        f"--bind-ro={driver}/lib64/libcuda.so.580.1:{inside}/libcuda.so.1",
        f"--bind-ro={driver}/lib64/libcuda.so.580.1:{inside}/libcuda.so.580.1",
        f"--bind-ro={driver}/lib64/libnvidia-ml.so.580.1:{inside}/libnvidia-ml.so.1",
        f"--bind-ro={driver}/lib64/libnvidia-ml.so.580.1:{inside}/libnvidia-ml.so.580.1",
        f"--bind-ro={driver}/bin/nvidia-smi:/usr/bin/nvidia-smi",
    ]
    assert second == [word.replace("nvidia0", "nvidia1") for word in first]
    # No third GPU: the host keeps its stand-ins.
    assert third == []


@pytest.mark.parametrize("lacks", ["dev/nvidiactl", "usr/local/nvidia/lib64"])
def test_a_machine_without_a_whole_driver_is_refused(machine: Path, lacks: str) -> None:
    (machine / lacks).rename(machine / "away")
    with pytest.raises(LabError, match=r"no NVIDIA driver .*\nInstall it, or leave --gpu away"):
        gpu.options(hosts(1)[0], machine)


def test_a_host_with_a_gpu_has_its_cdi_file_and_the_drivers_settings(tmp_path, monkeypatch) -> None:
    lab, every = Lab("one", tmp_path, tmp_path), hosts(1)
    (lab.host_folder(every[0]) / "kept").mkdir(parents=True)
    settings = tmp_path / "params"
    settings.write_text("ModifyDeviceFiles: 1\n")
    monkeypatch.setattr(gpu, "PARAMETERS", str(settings))
    monkeypatch.setattr(gpu, "options", lambda host: ["--bind=/dev/nvidia0:/dev/nvidia0"])
    words = Machine(lab, every[0], tmp_path, every, "v2", has_gpu=True)._gpu_options()
    cdi = next(word for word in words if word.endswith(":/etc/cdi/nvidia.yaml"))
    assert "/dev/nvidia0" in Path(cdi.removeprefix("--bind-ro=").split(":")[0]).read_text()
    # The source is looked up inside the guest, which sees only this folder of the host's.
    assert words[-1] == f"--bind-ro={disk.SEEN_AS}/nvidia-parameters:{settings}"
    text = (lab.host_folder(every[0]) / "kept/nvidia-parameters").read_text()
    assert text == gpu.host_parameters(settings.read_text()) == "ModifyDeviceFiles: 0\n"


def test_docker_run_with_gpus_gives_a_container_the_gpu_of_its_host_by_the_cdi_file(tmp_path: Path):
    fit = runpy.run_path(str(RUNC))["fit"]
    cdi, bundle = tmp_path / "nvidia.yaml", tmp_path / "config.json"
    cdi.write_text(gpu.cdi_file(["--bind=/dev/null:/dev/null", "--bind-ro=/x/libcuda.so.1:/y"]))
    hook = {"hooks": {"prestart": [{"path": "/usr/bin/nvidia-container-runtime-hook"}]}}
    node = {"type": "c", "major": 1, "minor": 3}
    stand_in = RUNC.parents[3] / "etc/cdi/nvidia.yaml"
    for old_config, file, has_gpu in ((hook, cdi, 1), ({}, cdi, 0), (hook, stand_in, 0)):
        bundle.write_text(json.dumps(old_config))
        fit(str(tmp_path), str(file))
        config = json.loads(bundle.read_text())
        devices = config["linux"].get("devices", [])
        assert [item.items() >= {"path": "/dev/null", **node}.items() for item in devices] == (
            [True] * has_gpu
        )
        rules = config["linux"]["resources"]["devices"]
        assert rules == [{"allow": True, "access": "rwm", **node}] * has_gpu
        mounts = [mount for mount in config["mounts"] if mount["destination"] == "/y"]
        assert [mount["source"] for mount in mounts] == ["/y"] * has_gpu
        assert all("ro" in mount["options"] for mount in mounts)
