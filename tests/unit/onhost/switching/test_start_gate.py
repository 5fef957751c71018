"""The gate in front of every engine start: other engines, memory, page cache, exit codes."""

import contextlib
import os
import ssl
import stat
from dataclasses import replace
from pathlib import Path

import pytest
from a_clock import Clock
from a_disk import Disk, write_checkpoint
from a_model import about, tell
from a_model_host import UP, ModelHost
from a_probe import program
from onhost_fakes import (
    FakeDocker,
    host_root,
    let_the_kernel_kill,
    put_in_container,
    write_meminfo,
    write_models,
)

from lockstep.onhost.cluster import lone_rank_refusal, member_server, rank_memory_guard, run_records
from lockstep.onhost.core import clock, config, errors, layout, topology
from lockstep.onhost.docker import docker_api
from lockstep.onhost.records import models_by_boot, watch_findings
from lockstep.onhost.switching import precheck, start_gate
from lockstep.onhost.system import disk_read_ahead, link_presence
from lockstep.onhost.systemd import transient_job, units
from lockstep.onhost.weights import disk_rate

QWEN = about(url="http://127.0.0.1:30001", container="vllm-qwen36")
MISTRAL = {**QWEN, "unit": "vllm.service", "served_name": "mistral", "container": None}


@pytest.fixture
def spark(tmp_path, monkeypatch, capsys):
    """A host with two models, both off, and 100 GiB available."""

    class Spark(ModelHost):
        def start(self, name: str = "qwen") -> str:
            """Pass the gate, or raise Problem; what the gate says."""
            host = config.load_host(self.paths.models)
            start_gate.Gate(host.model(name), host, self.paths).pass_or_refuse()
            return capsys.readouterr().out

        def refusal(self, code: int, name: str = "qwen") -> str:
            with pytest.raises(errors.Problem) as refusal:
                self.start(name)
            assert refusal.value.code == code
            return str(refusal.value)

        @property
        def has_dropped_cache(self) -> bool:
            return (self.paths.proc / "sys/vm/drop_caches").read_text() == "3\n"

    spark = Spark(tmp_path, monkeypatch, {"qwen": QWEN, "mistral": MISTRAL})
    spark.clock = Clock(monkeypatch)
    yield spark
    spark.close()


def test_an_engine_may_start_on_a_quiet_host_with_enough_memory(spark):
    """Without the folder that is hidden from an engine systemd starts none; a model unit's UMask=
    is 0027."""
    earlier_umask = os.umask(0o027)
    output = spark.start()
    os.umask(earlier_umask)
    assert output == "lockstep gate: 100.0 of 119.6 GiB available, 67.0 GiB needed\n"
    assert not spark.has_dropped_cache
    assert stat.S_IMODE(spark.paths.run.stat().st_mode) == 0o755
    # Noted before the engine runs.
    [boot] = models_by_boot.load(spark.paths).boots
    assert (boot.model, boot.phase) == ("qwen", models_by_boot.STARTING)


def has_large_reads(spark, rank: int | None) -> bool:
    """Pass the gate with weights on a disk, as that rank of a cluster; tells of the disk."""
    disk = Disk(spark.paths)
    write_checkpoint(spark.paths)
    write_models(spark.paths, {"qwen": {**QWEN, "weights": ["/models/m"]}})
    if rank is not None:
        spark.join_cluster("qwen", rank)
    spark.output = spark.start()
    return disk.kib == disk_read_ahead.RAISED_KIB


@pytest.mark.parametrize("rank", [None, 0, 1])
def test_the_disk_of_the_weights_reads_in_large_steps_from_then_on(spark, monkeypatch, rank):
    jobs = []
    monkeypatch.setattr(transient_job, "start_job", lambda job, *_, **__: jobs.append(job))
    assert has_large_reads(spark, rank)
    # The readiness check is the guard where there is one.
    guards = [(job.unit, job.argv[-2:]) for job in jobs]
    assert guards == ([("lockstep-rank-guard.service", ("guard-rank", "qwen"))] if rank else [])


@pytest.mark.parametrize("fault", [errors.Problem("no systemd"), transient_job.OtherJobRunning("")])
def test_without_a_guard_that_puts_it_back_the_disk_keeps_its_read_ahead(spark, monkeypatch, fault):
    def refuse(*_, **__):
        raise fault

    monkeypatch.setattr(transient_job, "start_job", refuse)
    assert not has_large_reads(spark, 1)
    assert "lockstep gate: reads stay small while it loads: " in spark.output


PART = run_records.SwitchPart("1", "anna", "spark1", "deep", None)


@pytest.mark.parametrize(
    ("end", "after_s"),
    [
        (lambda spark: run_records.save_switch_part(spark.paths, None), 40),
        (lambda spark: run_records.save_switch_part(spark.paths, PART.with_admitted("b")), 40),
        (lambda spark: spark.systemd.unit("deep.service"), 40),
        (lambda spark: spark.systemd.unit("deep.service", **UP), 300),
    ],
    ids=["the switch is over", "another model's turn", "the rank has ended", "it takes too long"],
)
def test_the_end_of_a_ranks_guard_puts_the_read_ahead_back(tmp_path, monkeypatch, end, after_s):
    spark = ModelHost(tmp_path, monkeypatch, {"deep": {"start_timeout_s": 300}}, up="deep")
    run_records.save_switch_part(spark.paths, PART.with_admitted("deep"))
    disk = Disk(spark.paths)
    device = spark.paths.root.stat().st_dev
    disk_read_ahead.raise_read_ahead("deep", [device], spark.paths, pytest.fail)
    passed_s = 0.0

    def sleep(seconds: float) -> None:
        nonlocal passed_s
        passed_s += seconds
        assert disk.kib == disk_read_ahead.RAISED_KIB
        if passed_s == 40:
            end(spark)

    # The guard's own thread looks by another clock.
    monkeypatch.setattr(clock, "sleep", sleep)
    monkeypatch.setattr(clock, "now", lambda: passed_s)
    assert rank_memory_guard.main(["deep"], spark.paths) == errors.EXIT_DONE
    assert (passed_s, disk.kib) == (after_s, 128)
    spark.close()


@pytest.mark.parametrize("state", ["active", "activating", "deactivating", "reloading"])
def test_another_model_that_is_not_gone_is_refused_after_the_wait(spark, state):
    spark.systemd.unit("vllm.service", ActiveState=state, SubState="running")
    message = f"another engine is alive after 120 s: vllm.service is {state} (running)"
    assert spark.refusal(3).startswith(message)


def test_another_model_that_ends_in_time_is_waited_for(spark):
    spark.systemd.unit("vllm.service", ActiveState="deactivating")
    spark.clock.at(11, lambda: spark.systemd.unit("vllm.service"))
    assert "waiting for another engine to end, 10 s" in spark.start()


def test_what_is_alive_of_another_model_is_refused(spark):
    spark.docker.containers["vllm-qwen36"] = "vllm/vllm-openai"
    assert "docker rm -f vllm-qwen36" in spark.refusal(3, "mistral")
    spark.docker.containers.clear()
    (spark.paths.proc / "4711").mkdir()
    (spark.paths.proc / "4711/cgroup").write_text("0::/system.slice/vllm-qwen36.service\n")
    assert "processes 4711 of stopped vllm-qwen36.service" in spark.refusal(3, "mistral")
    # Docker does not answer.
    spark.docker.close()
    put_in_container(spark.paths, "vllm-qwen36", 4712, 4713)
    words = "processes 4712, 4713 in container vllm-qwen36 outlived vllm-qwen36.service"
    assert words in spark.refusal(3, "mistral")


def test_its_own_container_is_ended_and_without_docker_only_a_venv_starts(spark, monkeypatch):
    killed_slices = let_the_kernel_kill(monkeypatch)
    spark.docker.close()
    put_in_container(spark.paths, "vllm-qwen36", 4711)
    assert "Docker does not answer" in spark.refusal(1)
    assert len(killed_slices) == 1
    spark.paths.docker_socket.unlink()
    assert "containers not checked: Docker does not answer" in spark.start("mistral")


def test_an_orphan_of_its_own_name_is_removed_and_a_foreign_container_keeps_the_engine_out(spark):
    spark.docker.containers["vllm-qwen36"] = "vllm/vllm-openai"
    assert "removed the orphaned container vllm-qwen36" in spark.start()
    assert spark.docker.containers == {}
    spark.docker.containers["vllm-qwen36"] = "somebody/elses"
    spark.docker.foreign = {"vllm-qwen36"}
    assert "is not Lockstep's" in spark.refusal(1)
    assert "vllm-qwen36" in spark.docker.containers


def test_a_port_that_somebody_else_has_is_refused_at_once(spark, monkeypatch):
    eve = "python3 (process 7 of eve)"
    monkeypatch.setattr(start_gate.foreign_listeners, "foreign_listener_texts", lambda *_: [eve])
    assert f"{eve} listens at http://127.0.0.1:30001" in spark.refusal(3, "mistral")
    assert spark.clock.elapsed_s == 0


def test_memory_that_is_being_released_is_waited_for(spark):
    write_meminfo(spark.paths, available_gib=41.2)
    spark.clock.at(11, lambda: write_meminfo(spark.paths, available_gib=100.0))
    line = "waiting for memory, 10 s: 41.2 GiB available, 67.0 GiB needed"
    assert line in spark.start()
    assert spark.clock.elapsed_s == 11 and spark.has_dropped_cache


def test_memory_that_does_not_come_is_refused_with_numbers_and_a_remedy(spark):
    write_meminfo(spark.paths, available_gib=41.2)
    message = "qwen needs 67.0 GiB, 41.2 GiB available after 120 s (of 119.6 GiB). Remedy: see what"
    assert spark.refusal(4).startswith(message)
    # It is no start, and not noted as one.
    assert models_by_boot.load(spark.paths) == models_by_boot.BootRecord()
    # Of a fallback the remedy names the key of its model.
    spark.tell("qwen", engine="vllm", fallback="mistral")
    spark.tell("mistral", engine="sglang")
    assert "(models.qwen.fallback_overrides gpu_memory" in spark.refusal(4, "mistral")


def test_who_holds_the_gpus_memory_is_named_with_what_stops_it(spark, monkeypatch):
    write_meminfo(spark.paths, 41.2)
    words = ["ollama holds 40.0 GiB on the GPU: `ollama ps`"]
    monkeypatch.setattr(start_gate.gpu_holders, "foreign_holder_sentences", lambda *_: words)
    assert f"Remedy: {words[0]}; then switch.sh qwen" in spark.refusal(4)


SHARE = {"memory_gib": 67.0, "memory_share": 0.8, "memory_beside_gib": 2.7}


@pytest.mark.parametrize(
    ("values", "available", "shortage"),
    [
        # vLLM: 0.8 of 119.6 GiB, and what it takes before it looks.
        ({**SHARE, "memory_of_total": True}, 98.3, "needs 98.4 GiB, 98.3 GiB available"),
        ({**SHARE, "memory_of_total": True}, 98.5, ""),
        # SGLang: its least, whatever the share.
        ({**SHARE, "memory_of_total": False}, 66.9, "needs 67.0 GiB, 66.9 GiB available"),
        ({**SHARE, "memory_of_total": False}, 67.1, ""),
        # Short by less than a tenth: it does not look like enough.
        ({"memory_gib": 99.23}, 99.19, "needs 99.3 GiB, 99.1 GiB available"),
    ],
)
def test_a_share_is_of_the_hosts_memory_or_of_what_is_available(spark, values, available, shortage):
    write_models(spark.paths, {"qwen": {**QWEN, **values}})
    write_meminfo(spark.paths, available_gib=available)
    refusal = pytest.raises(errors.Problem, match=shortage or None)
    with refusal if shortage else contextlib.nullcontext():
        spark.start()


def test_available_memory_counts_and_a_disk_that_hangs_does_not_hold_the_start(spark, monkeypatch):
    write_meminfo(spark.paths, available_gib=100.0, free_gib=17.0)
    program(spark.systemd.folder / "bin", "sync", "exec sleep 600")
    monkeypatch.setattr(start_gate, "_SYNC_TIMEOUT_S", 0.2)
    spark.start()
    assert spark.clock.elapsed_s == 0
    assert spark.has_dropped_cache, "vLLM before 0.20.2 counts MemFree: the cache must go"


def test_what_is_found_beside_the_start_is_told_and_keeps_no_engine_down(spark, monkeypatch):
    def refuse(*_):
        raise OSError(22, "Invalid argument")

    end = watch_findings.MemoryKill("qwen", "vllm-qwen36.service", "serving", 4.0, 3.8)
    watch_findings.save(spark.paths, end)
    write_models(spark.paths, {"qwen": {**QWEN, "weights": ["/models/m"]}})
    write_meminfo(spark.paths, available_gib=100.0, free_gib=17.0)
    control = spark.paths.proc / "sys/vm/drop_caches"
    control.unlink()
    control.mkdir()
    monkeypatch.setattr(disk_rate, "measure_once", refuse)
    # A file in the place of the record's folder.
    spark.paths.boots.parent.parent.mkdir(parents=True)
    spark.paths.boots.parent.touch()
    output = spark.start()
    for words in (
        "lockstep gate: last time the memory watch ended it while serving: 3.8 ",
        "drop_caches not written",
        "the disk of the weights was not measured: Invalid argument",
        "reads stay small while it loads: no file of /models/m is seen\n",
        "start not noted in",
    ):
        assert words in output


def test_the_program_takes_the_model_and_the_longest_wait(spark):
    write_meminfo(spark.paths, available_gib=41.2)
    with pytest.raises(errors.Problem, match=r"41\.2 GiB available after 0 s"):
        start_gate.main(["qwen", "--wait", "0"], spark.paths)


RAISED = disk_read_ahead.RAISED_KIB


@pytest.fixture
def paths(tmp_path) -> layout.Paths:
    return host_root(tmp_path / "root", {})


def start(paths: layout.Paths, model: str = "qwen") -> list[str]:
    """Raise as the gate does, for a model on the disk; returns what was told."""
    lines: list[str] = []
    disk_read_ahead.raise_read_ahead(model, [paths.root.stat().st_dev], paths, lines.append)
    return lines


@pytest.mark.parametrize("is_partition", [False, True])
def test_a_disk_reads_in_large_steps_until_its_value_is_put_back(paths, is_partition):
    disk = Disk(paths, is_partition=is_partition)
    assert start(paths) == []
    assert disk.kib == RAISED
    device = paths.root.stat().st_dev
    assert disk_read_ahead.read_ahead_kib(device, paths) == RAISED
    assert disk_read_ahead.disk_name(device, paths) == ("nvme0n1p2" if is_partition else "nvme0n1")
    disk.give(3.0)
    assert disk_read_ahead.read_bytes(device, paths) == 3 * 2**30
    disk_read_ahead.put_back(paths, pytest.fail, "mistral")
    assert disk.kib == RAISED
    disk_read_ahead.put_back(paths, pytest.fail, "qwen")
    assert disk.kib == 128 and not paths.read_ahead.exists()


def test_after_a_start_that_was_killed_the_first_value_is_still_the_disks_own(paths):
    disk = Disk(paths, own_kib=256)
    start(paths)
    start(paths, "mistral")
    assert disk.kib == RAISED
    disk_read_ahead.put_back(paths, pytest.fail, "mistral")
    assert disk.kib == 256


def test_what_somebody_has_set_is_left_and_a_disk_that_was_unplugged_is_no_fault(paths):
    disk = Disk(paths, own_kib=2 * RAISED)
    assert (start(paths), disk.kib) == ([], 2 * RAISED)
    assert not paths.read_ahead.exists()
    disk.control.write_text("128\n")
    start(paths)
    disk.control.write_text("4096\n")
    disk_read_ahead.put_back(paths, pytest.fail)
    assert disk.kib == 4096 and not paths.read_ahead.exists()
    disk.control.write_text("128\n")
    start(paths)
    disk.control.unlink()
    disk_read_ahead.put_back(paths, pytest.fail)
    assert not paths.read_ahead.exists()


def test_a_kernel_that_refuses_is_told_and_leaves_nothing(paths, monkeypatch):
    disk = Disk(paths)
    write_text = Path.write_text

    def refuse(path, *arguments, **keys):
        if path == disk.control:
            raise OSError(30, "Read-only file system", str(path))
        return write_text(path, *arguments, **keys)

    monkeypatch.setattr(Path, "write_text", refuse)
    [line] = start(paths)
    assert line.startswith("reads stay small while it loads: /")
    assert line.endswith("/read_ahead_kb: Read-only file system")
    assert disk.kib == 128 and not paths.read_ahead.exists()


def test_a_file_system_without_a_disk_is_left_alone(paths):
    device = paths.root.stat().st_dev
    [line] = start(paths)
    assert line.endswith(f"no read-ahead for device {os.major(device)}:{os.minor(device)}")
    assert disk_read_ahead.read_bytes(device, paths) is None
    assert disk_read_ahead.read_ahead_kib(device, paths) == 0
    assert ":" in disk_read_ahead.disk_name(device, paths)
    paths.read_ahead.write_text("{") if paths.run.exists() else None
    disk_read_ahead.put_back(paths, pytest.fail)


PORT_PAIR = {"enp1s0f0np0": "rocep1s0f0", "enP2p1s0f0np0": "roceP2p1s0f0"}
LINK_FOLDERS = [
    f"sys/class/{place}"
    for interface, device in PORT_PAIR.items()
    for place in (f"net/{interface}", f"infiniband/{device}")
]
MEMBERS = [{"name": f"spark{rank}", "address": f"192.0.2.{rank}"} for rank in (1, 2)]
PAIR = {"name": "pair", "rank": 0, "port": 7079, "members": MEMBERS, "links": PORT_PAIR}
GLM = about(unit="vllm-glm.service", model="glm")


@pytest.fixture
def member(tmp_path) -> layout.Paths:
    """A host that is a member, with both interfaces of a port and their RDMA devices."""
    models = {"glm": {**GLM, "cluster": "pair"}, "own": {**GLM, "unit": "vllm-own.service"}}
    member = host_root(tmp_path / "root", models)
    tell(member, clusters={"pair": PAIR})
    for folder in LINK_FOLDERS:
        (member.root / folder).mkdir(parents=True)
    member.run.mkdir(parents=True, exist_ok=True)
    return member


def unplug(member: layout.Paths) -> None:
    """Unplug the cable as DGX OS does: both functions of the port are gone."""
    for folder in LINK_FOLDERS:
        (member.root / folder).rmdir()


def test_no_rank_starts_with_a_device_that_is_not_there(member):
    part = run_records.SwitchPart("1", "anna", "spark1", "glm", None).with_admitted("glm")
    run_records.save_switch_part(member, part)
    assert lone_rank_refusal.main(["admit", "glm"], member) == 0
    unplug(member)
    message = r"spark1 has no network interface enp1s0f0np0 .*stopped\. Remedy: plug the cable in"
    with pytest.raises(errors.Problem, match=message):
        lone_rank_refusal.main(["admit", "glm"], member)
    # What needs no link starts.
    assert lone_rank_refusal.main(["admit", "own"], member) == 0


def test_an_rdma_device_that_is_gone_is_missed_by_a_link_with_rdma_only(member):
    (member.root / "sys/class/infiniband/rocep1s0f0").rmdir()
    pair = config.load_host(member.models).clusters["pair"]
    with pytest.raises(errors.Problem, match="has no RDMA device rocep1s0f0 at enp1s0f0np0"):
        link_presence.refuse_missing_links("glm", pair, member)
    link_presence.refuse_missing_links("glm", replace(pair, links={"enp1s0f0np0": ""}), member)


def test_a_member_refuses_before_anything_is_stopped(member, systemd):
    host = config.load_host(member.models)
    for model in host.models.values():
        systemd.unit(model.unit)
    docker = FakeDocker(member.docker_socket)
    unplug(member)
    unit_states = units.units_by_name(model.unit for model in host.models.values())
    check = precheck.Precheck(host, member, docker_api.Docker(member.docker_socket), unit_states)
    try:
        with pytest.raises(errors.Problem, match="no network interface enp1s0f0np0"):
            check.check_start(host.model("glm"))
        check.check_start(host.model("own"))
    finally:
        docker.close()


def test_the_agent_listens_at_an_address_that_comes_with_the_cable():
    """Documentation's own network (RFC 5737, 3849): no machine has an address of it."""
    for address in ("192.0.2.1", "2001:db8::1"):
        spark = topology.TopologyMember("spark1", address)
        pair = topology.Cluster("pair", 0, 7079, (spark,))
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        server = member_server.ClusterServer([pair], tls, lambda *_: {})
        server.server_close()
