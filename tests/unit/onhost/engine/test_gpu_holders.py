"""Foreign holders of the GPU's memory are named with the command that stops them."""

from __future__ import annotations

import subprocess
import sys

import pytest
from a_model import about
from a_probe import program
from onhost_fakes import FakeDocker, host_root

from lockstep.onhost.core import config, errors, runner
from lockstep.onhost.engine import gpu_holders

SYNC, OURS = "a" * 64, "b" * 64


class Spark:
    """A host whose driver names processes; `shows` says which."""

    def __init__(self, tmp_path, monkeypatch) -> None:
        self.paths = host_root(tmp_path / "root", {"qwen": about(unit="vllm.service")})
        self.docker = FakeDocker(self.paths.docker_socket)
        self.docker.answers["/containers/json"] = [
            {"Id": SYNC, "Names": ["/vllm-qwen36-35b-a3b"], "Image": "vllm/vllm-openai:v0.28.0"},
            {"Id": OURS, "Names": ["/sglang"], "Image": "x", "Labels": {"lockstep.unit": "sglang"}},
        ]
        self.bin = tmp_path / "bin"
        self.does("exit 0")
        monkeypatch.setenv("PATH", f"{self.bin}:/usr/bin:/bin")

    def does(self, script: str) -> None:
        program(self.bin, "nvidia-smi", script)

    def process(self, pid: int, group: str, *argv: str) -> None:
        folder = self.paths.proc / str(pid)
        folder.mkdir()
        (folder / "cgroup").write_text(f"0::{group}\n")
        (folder / "cmdline").write_text("".join(f"{word}\0" for word in argv))

    def shows(self, *lines: str) -> list[str]:
        self.does("cat <<'END'\n" + "\n".join(lines) + "\nEND")
        return [str(holder) for holder in self.foreign()]

    def foreign(self) -> list[gpu_holders.GpuHolder]:
        return gpu_holders.foreign_holders(config.load_host(self.paths.models), self.paths)


@pytest.fixture
def spark(tmp_path, monkeypatch):
    spark = Spark(tmp_path, monkeypatch)
    yield spark
    spark.docker.close()


@pytest.mark.parametrize("group", [f"/system.slice/docker-{SYNC}.scope", f"/docker/{SYNC}"])
def test_the_container_that_nvidia_sync_starts_is_named_with_its_app(spark, group):
    spark.process(71, group, "VLLM::EngineCore")
    assert spark.shows("71, VLLM::EngineCore, 61440") == [
        "container vllm-qwen36-35b-a3b (NVIDIA Sync's vLLM) holds 60.0 GiB on the GPU: stop it in "
        "NVIDIA Sync, tab Models (port 18765), or `docker stop vllm-qwen36-35b-a3b`"
    ]


def test_processes_of_one_unit_are_one_and_the_largest_comes_first(spark):
    ollama = "/usr/local/bin/ollama"
    for pid in (5, 6):
        spark.process(pid, "/system.slice/ollama.service", ollama, "runner")
    spark.process(7, "/user.slice/user-1000.slice/session-3.scope", "python3", "/home/x/train.py")
    assert spark.shows("7, python3, 1024", *(f"{pid}, {ollama}, 20480" for pid in (5, 6))) == [
        "ollama.service (Ollama) holds 40.0 GiB on the GPU: `ollama ps`, then `ollama stop MODEL`, "
        "or `sudo systemctl stop ollama.service`",
        "python3, process 7 holds 1.0 GiB on the GPU: `sudo kill 7`",
    ]


@pytest.mark.parametrize(
    ("argv", "used_mib", "program_name", "matters"),
    [
        ("python3 /home/x/ComfyUI/main.py", "512", "(ComfyUI)", True),
        ("/opt/llama.cpp/build/bin/llama-server -m x.gguf", "512", "(llama.cpp)", True),
        ("/home/x/.lmstudio/bin/lms server", "512", "(LM Studio)", True),
        ("python3 -m sglang.launch_server", "512", "(SGLang)", True),
        ("sglang::scheduler", "512", "(SGLang)", True),
        ("/home/x/venv/bin/vllm serve org/model", "512", "(vLLM)", True),
        ("trtllm-serve x", "512", "(TensorRT-LLM)", True),
        ("python3 kokoro_server.py", "512", "(a text-to-speech engine)", True),
        # Of others only what is large matters beside a model.
        ("/usr/bin/gnome-shell", "700", "", False),
        ("/usr/bin/dgx-manager", "3300", "", False),
        ("python3 train.py", "4096", "", True),
        ("python3 -m ipykernel_launcher", "[N/A]", "", False),
    ],
)
def test_engines_that_people_run_are_known(spark, argv, used_mib, program_name, matters):
    group = "/user.slice/user-1000.slice/user@1000.service/app.slice/a.scope"
    spark.process(9, group, *argv.split())
    (line,) = spark.shows(f"9, {argv.split()[0]}, {used_mib}")
    assert program_name in line and line.endswith("`sudo kill 9`")
    assert spark.foreign()[0].is_worth_report is matters


def test_ours_are_not_among_them(spark, monkeypatch):
    monkeypatch.setattr(gpu_holders.layout, "Paths", lambda: spark.paths)
    spark.process(1, "/system.slice/vllm.service", "VLLM::EngineCore")
    spark.process(2, f"/system.slice/docker-{OURS}.scope", "sglang::scheduler")
    spark.process(3, "/system.slice/lockstep-job-engine.service", "python3")
    spark.process(4, "/system.slice/ollama.service", "ollama")
    names = [line[:14] for line in spark.shows("1, v, 9", "2, s, 9", "3, p, 9", "4, o, 9")]
    assert names == ["ollama.service"]
    assert len(gpu_holders.deployed_host_sentences(None)) == 1
    # Until the first deploy only a container's label says so.
    spark.paths.models.rename(spark.paths.models.with_name("later"))
    assert len(gpu_holders.deployed_host_sentences(None)) == 2
    # What may be ours is not accused while Docker is silent.
    spark.paths.models.with_name("later").rename(spark.paths.models)
    spark.docker.close()
    spark.paths.docker_socket.unlink(missing_ok=True)
    assert [holder.place for holder in spark.foreign()] == ["ollama.service"]


UNKNOWN_SIZE = "a, process 47 holds memory of unknown size on the GPU: `sudo kill 47`"
SIZES = ("[N/A]", "N/A", "[Not Supported]", "Not Supported", "")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("", None),
        ("No running processes found", None),
        ("[N/A], [N/A], [N/A]", None),
        # A process that is gone is named as the driver does.
        ("47, /opt/a, b, 2048", "a, b, process 47 holds 2.0 GiB on the GPU: `sudo kill 47`"),
        *((f"47, /opt/a, {size}", UNKNOWN_SIZE) for size in SIZES),
    ],
)
def test_a_line_may_name_no_process_or_no_size(spark, line, message):
    assert spark.shows(line) == ([message] if message else [])


def test_a_driver_that_hangs_or_fails_is_told_in_time(spark, monkeypatch):
    monkeypatch.setattr(gpu_holders, "LIMIT_S", 0.2)
    host = config.load_host(spark.paths.models)
    spark.does("exec sleep 60")
    (line,) = gpu_holders.foreign_holder_sentences(host, spark.paths)
    assert "cannot be told (nvidia-smi did not answer" in line
    spark.does("echo NVIDIA-SMI has failed; exit 9")
    (line,) = gpu_holders.foreign_holder_sentences(host, spark.paths)
    assert "(nvidia-smi ended with 9: NVIDIA-SMI has failed)" in line
    (spark.bin / "nvidia-smi").unlink()
    assert spark.foreign() == []


def test_a_program_that_cannot_be_killed_is_not_waited_for(monkeypatch):
    children = []

    class StuckProcess(subprocess.Popen):
        def kill(self) -> None:
            children.append(self)

    monkeypatch.setattr(subprocess, "Popen", StuckProcess)
    monkeypatch.setattr(runner, "_KILLED_S", 0.01, raising=False)
    with pytest.raises(errors.Problem, match="did not answer"):
        runner.run([sys.executable, "-c", "import time; time.sleep(60)"], timeout=0.2)
    (child,) = children
    assert child.poll() is None
    subprocess.Popen.send_signal(child, 9)
    child.wait(10)
