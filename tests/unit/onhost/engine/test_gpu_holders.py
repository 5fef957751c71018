"""Foreign holders of the GPU's memory are named with the command that stops them."""

import pytest
from a_model import about
from a_probe import program
from onhost_fakes import FakeDocker, host_root

from lockstep.onhost.core import config
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


def test_the_container_that_nvidia_sync_starts_is_named_with_its_app(spark):
    spark.process(71, f"/docker/{SYNC}", "VLLM::EngineCore")
    [line] = spark.shows("71, VLLM::EngineCore, 61440")
    assert line.startswith("container vllm-qwen36-35b-a3b (NVIDIA Sync's vLLM) holds 60.0 GiB on")
    assert line.endswith("or `docker stop vllm-qwen36-35b-a3b`")


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
        ("python3 -m sglang.launch_server", "512", "(SGLang)", True),
        ("sglang::scheduler", "512", "(SGLang)", True),
        # Of others only what is large matters beside a model.
        ("/usr/bin/gnome-shell", "700", "", False),
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
    spark.paths.models.unlink()
    assert len(gpu_holders.deployed_host_sentences(None)) == 2
    # What may be ours is not accused while Docker is silent.
    spark.docker.close()
    spark.paths.docker_socket.unlink(missing_ok=True)
    assert len(gpu_holders.deployed_host_sentences(None)) == 2


def test_a_line_may_name_no_process_or_no_size(spark):
    lines = ("", "No running processes found", "[N/A], [N/A], [N/A]", "47, /opt/a, b, 2048")
    # A process that is gone is named as the driver does.
    assert spark.shows(*lines, "48, /opt/a, [N/A]") == [
        "a, b, process 47 holds 2.0 GiB on the GPU: `sudo kill 47`",
        "a, process 48 holds memory of unknown size on the GPU: `sudo kill 48`",
    ]


def test_a_driver_that_hangs_or_fails_is_told_in_time(spark, monkeypatch):
    monkeypatch.setattr(gpu_holders, "LIMIT_S", 0.2)
    spark.does("exec sleep 60")
    (line,) = gpu_holders.foreign_holder_sentences(None, spark.paths)
    assert "cannot be told (nvidia-smi did not answer" in line
    spark.does("echo NVIDIA-SMI has failed; exit 9")
    (line,) = gpu_holders.foreign_holder_sentences(None, spark.paths)
    assert "(nvidia-smi ended with 9: NVIDIA-SMI has failed)" in line
    (spark.bin / "nvidia-smi").unlink()
    assert spark.foreign() == []
