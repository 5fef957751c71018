"""The gate in front of every engine start: other engines, memory, page cache, exit codes."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys

import pytest
from a_clock import Clock
from a_disk import Disk, write_checkpoint
from a_model import about, tell
from a_model_host import ModelHost
from onhost_fakes import let_the_kernel_kill, put_in_container, write_meminfo, write_models

from lockstep.onhost.core import config, errors
from lockstep.onhost.records import models_by_boot, watch_findings
from lockstep.onhost.switching import start_gate
from lockstep.onhost.system import disk_read_ahead
from lockstep.onhost.systemd import transient_job
from lockstep.onhost.weights import disk_rate

QWEN = about(url="http://127.0.0.1:30001", container="vllm-qwen36")
MISTRAL = {**QWEN, "unit": "vllm.service", "served_name": "mistral", "container": None}


@pytest.fixture
def spark(tmp_path, monkeypatch):
    """A host with two models, both off, and 100 GiB available."""

    class Spark(ModelHost):
        def gate(self, name: str) -> start_gate.Gate:
            host = config.load_host(self.paths.models)
            return start_gate.Gate(host.model(name), host, self.paths)

    spark = Spark(tmp_path, monkeypatch, {"qwen": QWEN, "mistral": MISTRAL})
    spark.clock = Clock(monkeypatch)
    yield spark
    spark.close()


def has_dropped_cache(spark) -> bool:
    return (spark.paths.proc / "sys/vm/drop_caches").read_text() == "3\n"


def test_an_engine_may_start_on_a_quiet_host_with_enough_memory(spark, capsys):
    spark.gate("qwen").pass_or_refuse()

    assert capsys.readouterr().out == (
        "lockstep gate: 100.0 of 119.6 GiB available, 67.0 GiB needed\n"
    )
    assert not has_dropped_cache(spark)


@pytest.fixture
def jobs(monkeypatch):
    """The jobs that were started."""
    jobs = []
    monkeypatch.setattr(transient_job, "start_job", lambda job, *_, **__: jobs.append(job))
    return jobs


def has_large_reads(spark, rank: int | None) -> bool:
    """Pass the gate with weights on a disk, as that rank of a cluster; tells of the disk."""
    disk = Disk(spark.paths)
    write_checkpoint(spark.paths)
    keys = {} if rank is None else {"cluster": "pair"}
    write_models(spark.paths, {"qwen": {**QWEN, "weights": ["/models/m"], **keys}})
    if rank is not None:
        members = [{"name": name, "address": "10.0.0.1"} for name in ("spark1", "spark2")]
        pair = {"name": "pair", "rank": rank, "port": 29600, "members": members, "links": {}}
        tell(spark.paths, clusters={"pair": pair})
    spark.gate("qwen").pass_or_refuse()
    return disk.kib == disk_read_ahead.RAISED_KIB


@pytest.mark.parametrize("rank", [None, 0, 1])
def test_the_disk_of_the_weights_reads_in_large_steps_from_then_on(spark, jobs, rank):
    assert has_large_reads(spark, rank)
    # The readiness check is the guard where there is one.
    guards = [(job.unit, job.argv[-2:]) for job in jobs]
    assert guards == ([("lockstep-rank-guard.service", ("guard-rank", "qwen"))] if rank else [])


@pytest.mark.parametrize("fault", [errors.Problem("no systemd"), transient_job.OtherJobRunning("")])
def test_without_a_guard_that_puts_it_back_the_disk_keeps_its_own_read_ahead(
    spark, monkeypatch, capsys, fault
):
    def refuse(*_, **__):
        raise fault

    monkeypatch.setattr(transient_job, "start_job", refuse)
    assert not has_large_reads(spark, 1)
    assert "lockstep gate: reads stay small while it loads: " in capsys.readouterr().out


def test_weights_that_the_gate_does_not_see_are_named(spark, capsys):
    write_models(spark.paths, {"qwen": {**QWEN, "weights": ["/models/m"]}})
    spark.gate("qwen").pass_or_refuse()
    line = "lockstep gate: reads stay small while it loads: no file of /models/m is seen\n"
    assert line in capsys.readouterr().out


def test_who_starts_what_the_memory_watch_ended_is_told(spark, capsys):
    end = watch_findings.MemoryKill("qwen", "vllm-qwen36.service", "serving", 4.0, 3.8)
    watch_findings.save(spark.paths, end)
    spark.gate("qwen").pass_or_refuse()

    output = capsys.readouterr().out
    assert output.startswith(
        "lockstep gate: last time the memory watch ended it while serving: 3.8 "
    )


@pytest.mark.parametrize("state", ["active", "activating", "deactivating", "reloading"])
def test_another_model_that_is_not_gone_is_refused_after_the_wait(spark, state):
    spark.systemd.unit("vllm.service", ActiveState=state, SubState="running")

    with pytest.raises(errors.Problem) as refusal:
        spark.gate("qwen").pass_or_refuse()

    assert refusal.value.code == 3
    assert str(refusal.value) == (
        f"another engine is alive after 120 s: vllm.service is {state} (running). Only one model "
        "may be hot. Remedy: switch.sh none, then switch.sh qwen"
    )


def test_another_model_that_ends_in_time_is_waited_for(spark, capsys):
    spark.systemd.unit("vllm.service", ActiveState="deactivating", SubState="stop-sigterm")
    spark.clock.at(11, lambda: spark.systemd.unit("vllm.service"))

    spark.gate("qwen").pass_or_refuse()

    assert spark.clock.elapsed_s == 11
    assert "waiting for another engine to end, 10 s" in capsys.readouterr().out


def outlives(spark) -> None:
    (spark.paths.proc / "4711").mkdir()
    (spark.paths.proc / "4711/cgroup").write_text("0::/system.slice/vllm-qwen36.service\n")


def lives_in_a_container(spark) -> None:
    spark.docker.close()
    put_in_container(spark.paths, "vllm-qwen36", 4711, 4712)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        pytest.param(
            outlives,
            r"processes 4711 of stopped vllm-qwen36\.service",
            id="a process that outlived its unit",
        ),
        pytest.param(
            lives_in_a_container,
            r"processes 4711, 4712 in container vllm-qwen36 outlived vllm-qwen36\.service",
            id="in a container, and Docker does not answer",
        ),
        pytest.param(
            lambda spark: spark.docker.containers.update({"vllm-qwen36": "vllm/vllm-openai"}),
            "docker rm -f vllm-qwen36",
            id="a container outside its unit",
        ),
    ],
)
def test_what_is_alive_of_another_model_is_refused(spark, change, words):
    change(spark)

    with pytest.raises(errors.Problem, match=words) as refusal:
        spark.gate("mistral").pass_or_refuse()
    assert refusal.value.code == 3


def test_what_is_left_in_its_own_container_is_ended_and_without_docker_it_does_not_start(
    spark, monkeypatch
):
    killed_slices = let_the_kernel_kill(monkeypatch)
    spark.docker.close()
    put_in_container(spark.paths, "vllm-qwen36", 4711)

    with pytest.raises(errors.Problem, match="Docker does not answer"):
        spark.gate("qwen").pass_or_refuse()
    assert len(killed_slices) == 1


def test_an_orphan_of_its_own_name_is_removed(spark, capsys):
    spark.docker.containers["vllm-qwen36"] = "vllm/vllm-openai"

    spark.gate("qwen").pass_or_refuse()

    assert spark.docker.containers == {}
    assert "removed the orphaned container vllm-qwen36" in capsys.readouterr().out


def test_a_container_of_its_name_that_is_not_ours_stays_and_keeps_the_engine_out(spark):
    spark.docker.containers["vllm-qwen36"] = "somebody/elses"
    spark.docker.foreign = {"vllm-qwen36"}

    with pytest.raises(errors.Problem, match="is not Lockstep's"):
        spark.gate("qwen").pass_or_refuse()

    assert "vllm-qwen36" in spark.docker.containers


def test_a_host_whose_docker_is_down_can_still_start_a_venv_engine(spark, capsys):
    spark.docker.close()
    spark.paths.docker_socket.unlink()

    spark.gate("mistral").pass_or_refuse()

    assert "containers not checked: Docker does not answer" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("engine", "key"), [("vllm", "models.qwen.overrides"), ("sglang", "qwen.fallback_overrides")]
)
def test_of_a_fallback_the_remedy_names_the_key_of_its_model(spark, engine, key):
    qwen = {**QWEN, "engine": "vllm", "fallback": "qwen-fallback"}
    write_models(spark.paths, {"qwen": qwen, "qwen-fallback": {**MISTRAL, "engine": engine}})
    write_meminfo(spark.paths, 10.0)
    with pytest.raises(errors.Problem, match=rf"{key} gpu_memory"):
        spark.gate("qwen-fallback").wait_for_memory()


def test_a_port_that_somebody_else_has_is_refused_at_once(spark, monkeypatch):
    eve = "python3 (process 7 of eve)"
    monkeypatch.setattr(
        start_gate.foreign_listeners, "foreign_listener_texts", lambda model, paths: [eve]
    )
    with pytest.raises(
        errors.Problem, match=r"of eve\) listens at http://127.0.0.1:30001"
    ) as problem:
        spark.gate("mistral").pass_or_refuse()
    assert problem.value.code == start_gate.EXIT_OTHER_ENGINE
    assert spark.clock.elapsed_s == 0


def test_memory_that_is_being_released_is_waited_for(spark, capsys):
    write_meminfo(spark.paths, available_gib=41.2)
    spark.clock.at(11, lambda: write_meminfo(spark.paths, available_gib=100.0))

    spark.gate("qwen").pass_or_refuse()

    assert spark.clock.elapsed_s == 11
    assert has_dropped_cache(spark)
    assert "waiting for memory, 10 s: 41.2 GiB available, 67.0 GiB needed" in (
        capsys.readouterr().out
    )


def test_the_folder_that_is_hidden_from_an_engine_is_there_for_all_others(spark):
    """Without it systemd starts no engine that it hides it from; a model unit's UMask= is 0027."""
    earlier_umask = os.umask(0o027)
    try:
        spark.gate("mistral").pass_or_refuse()
    finally:
        os.umask(earlier_umask)

    assert stat.S_IMODE(spark.paths.run.stat().st_mode) == 0o755


def test_a_disk_that_takes_long_leaves_no_page_cache_there(spark, monkeypatch):
    write_meminfo(spark.paths, available_gib=100.0, free_gib=17.0)
    (spark.systemd.folder / "bin/sync").write_text("#!/bin/sh\nexec sleep 600\n")
    monkeypatch.setattr("lockstep.onhost.switching.start_gate._SYNC_TIMEOUT_S", 0.1)

    spark.gate("qwen").pass_or_refuse()

    assert has_dropped_cache(spark)


def test_a_disk_that_never_answers_does_not_hold_the_start(spark, monkeypatch):
    """A program that waits in the kernel for a disk is not ended by SIGKILL before that."""
    write_meminfo(spark.paths, available_gib=100.0, free_gib=17.0)
    pid_file = spark.systemd.folder / "sync.pid"
    (spark.systemd.folder / "bin/sync").write_text(
        f"#!/bin/sh\necho $$ > {pid_file}\nexec sleep 20\n"
    )
    monkeypatch.setattr("lockstep.onhost.switching.start_gate._SYNC_TIMEOUT_S", 1.0)
    monkeypatch.setattr(subprocess.Popen, "kill", lambda _: None)

    spark.gate("qwen").pass_or_refuse()

    assert has_dropped_cache(spark)
    # Not at its end: nobody has waited for it.
    os.kill(int(pid_file.read_text()), signal.SIGKILL)


def test_memory_that_does_not_come_is_refused_with_numbers_and_a_remedy(spark):
    write_meminfo(spark.paths, available_gib=41.2)

    with pytest.raises(errors.Problem) as refusal:
        spark.gate("qwen").pass_or_refuse()

    assert refusal.value.code == 4
    assert str(refusal.value) == (
        "qwen needs 67.0 GiB, 41.2 GiB available after 120 s (of 119.6 GiB). Remedy: see what "
        "holds it with `ps -eo rss,pid,user,args --sort=-rss | head`, stop it, then "
        "switch.sh qwen; where nothing can be stopped, another share "
        "(models.qwen.overrides gpu_memory_utilization, `lockstep help fit`)"
    )


def test_what_is_short_by_less_than_a_tenth_does_not_look_like_enough(spark):
    write_models(spark.paths, {"qwen": {**QWEN, "memory_gib": 99.23}})
    write_meminfo(spark.paths, available_gib=99.19)

    with pytest.raises(errors.Problem, match=r"needs 99\.3 GiB, 99\.1 GiB available"):
        spark.gate("qwen").pass_or_refuse()


SHARE = {"memory_gib": 67.0, "memory_share": 0.8, "memory_beside_gib": 2.7}


@pytest.mark.parametrize(
    ("values", "available", "needs"),
    [
        # vLLM: 0.8 of 119.6 GiB, and what it takes before it looks.
        ({**SHARE, "memory_of_total": True}, 98.3, "98.4"),
        ({**SHARE, "memory_of_total": True}, 98.5, ""),
        # SGLang: its least, whatever the share.
        ({**SHARE, "memory_of_total": False}, 66.9, "67.0"),
        ({**SHARE, "memory_of_total": False}, 67.1, ""),
    ],
)
def test_a_share_is_of_the_hosts_own_memory_or_of_what_is_available(
    spark, values, available, needs
):
    write_models(spark.paths, {"qwen": {**QWEN, **values}})
    write_meminfo(spark.paths, available_gib=available)

    if not needs:
        spark.gate("qwen").pass_or_refuse()
        return
    with pytest.raises(errors.Problem, match=f"qwen needs {needs} GiB, {available} GiB available"):
        spark.gate("qwen").pass_or_refuse()


def test_available_memory_counts_and_not_free_memory(spark):
    write_meminfo(spark.paths, available_gib=100.0, free_gib=17.0)

    spark.gate("qwen").pass_or_refuse()

    assert spark.clock.elapsed_s == 0
    assert has_dropped_cache(spark), "vLLM before 0.20.2 counts MemFree: the cache must go"


def test_a_kernel_that_refuses_to_drop_the_cache_is_no_reason_to_refuse(spark, capsys):
    write_meminfo(spark.paths, available_gib=100.0, free_gib=17.0)
    control = spark.paths.proc / "sys/vm/drop_caches"
    control.unlink()
    control.mkdir()

    spark.gate("qwen").pass_or_refuse()

    assert "drop_caches not written" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("argv", "code", "words"),
    [
        (["gemma"], 2, "unknown model 'gemma'; known models: qwen, mistral"),
        (["qwen", "--wait", "soon"], 2, "invalid float value"),
        (["qwen", "--wait", "0"], 4, "qwen needs 67.0 GiB, 41.2 GiB available after "),
    ],
)
def test_as_a_program_it_says_why_and_never_shows_a_traceback(spark, capsys, argv, code, words):
    write_meminfo(spark.paths, available_gib=41.2)
    with pytest.raises(SystemExit) as end:
        sys.exit(errors.run_main("lockstep gate", lambda: start_gate.main(argv, spark.paths)))

    output = capsys.readouterr().err
    assert end.value.code == code
    assert words in output and "Traceback" not in output


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "not JSON"),
        ("[]", "the value must be a mapping"),
        (
            '{"name": "spark1", "models": {"qwen": {}}}',
            "models.qwen.name, models.qwen.unit, models.qwen.url",
        ),
        (
            '{"name": "spark1", "models": {"qwen": {"unit": 7}}}',
            "models.qwen.unit must be text; found 7",
        ),
    ],
)
def test_an_unreadable_configuration_names_file_key_and_remedy(tmp_path, text, words):
    path = tmp_path / "models.json"
    path.write_text(text)

    with pytest.raises(errors.Problem) as problem:
        config.load_host(path)

    assert problem.value.code == 2
    assert words in str(problem.value)
    assert str(path) in str(problem.value)
    assert "Remedy: run the deploy again" in str(problem.value)


def test_a_start_that_may_begin_is_noted_before_the_engine_runs(spark):
    spark.gate("qwen").pass_or_refuse()
    assert [(boot.model, boot.phase) for boot in models_by_boot.load(spark.paths).boots] == [
        ("qwen", models_by_boot.STARTING)
    ]


def test_a_start_that_is_refused_is_not_noted(spark):
    write_meminfo(spark.paths, 1.0)
    with pytest.raises(errors.Problem):
        spark.gate("qwen").pass_or_refuse()
    assert models_by_boot.load(spark.paths) == models_by_boot.BootRecord()


def test_a_disk_that_takes_no_note_keeps_no_engine_down(spark, capsys):
    # A file in the place of the record's folder.
    spark.paths.boots.parent.parent.mkdir(parents=True)
    spark.paths.boots.parent.touch()
    spark.gate("qwen").pass_or_refuse()
    assert "start not noted in" in capsys.readouterr().out


def test_who_holds_the_gpus_memory_is_named_with_what_stops_it(spark, tmp_path, monkeypatch):
    write_meminfo(spark.paths, 41.2)
    program = tmp_path / "driver/nvidia-smi"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho 4711, /usr/local/bin/ollama, 40960\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    (spark.paths.proc / "4711").mkdir()
    (spark.paths.proc / "4711/cgroup").write_text("0::/system.slice/ollama.service\n")

    with pytest.raises(errors.Problem) as refusal:
        spark.gate("qwen").pass_or_refuse()
    assert (
        "Remedy: ollama.service (Ollama) holds 40.0 GiB on the GPU: `ollama ps`, then `ollama stop "
        "MODEL`, or `sudo systemctl stop ollama.service`; then switch.sh qwen"
    ) in str(refusal.value)
    assert "ps -eo" not in str(refusal.value)


def test_the_disk_of_the_weights_is_measured_at_the_first_start_of_a_boot(
    spark, tmp_path, monkeypatch, capsys
):
    weights = tmp_path / "weights"
    weights.write_bytes(b"x" * 2**25)
    monkeypatch.setattr(disk_rate, "LEAST", 2**20)
    monkeypatch.setattr(disk_rate, "_measure_bytes_per_second", lambda path: 470.4e6)
    monkeypatch.setattr(start_gate.model_files, "model_files", lambda model, paths: [weights])

    spark.gate("qwen").pass_or_refuse()
    assert "lockstep gate: the disk of the weights gives 470 MB/s\n" in capsys.readouterr().out
    spark.gate("mistral").pass_or_refuse()
    assert "the disk of" not in capsys.readouterr().out


def test_a_disk_that_cannot_be_measured_keeps_no_engine_from_starting(spark, monkeypatch, capsys):
    def refuse(*_):
        raise OSError(22, "Invalid argument")

    monkeypatch.setattr(disk_rate, "measure_once", refuse)
    spark.gate("qwen").pass_or_refuse()

    assert capsys.readouterr().out.endswith(
        "lockstep gate: the disk of the weights was not measured: Invalid argument\n"
    )
