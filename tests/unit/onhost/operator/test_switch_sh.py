"""A switch: one hot model, never worse off after a failure, and who may do it."""

import getpass
import itertools
import json
import os
import re
import signal
import socket
import threading

import pytest
from a_model_host import UP, ModelHost
from a_process import have_switches, one_clock_of
from lab_servers import until
from local_server import refused_address
from onhost_fakes import let_the_kernel_kill, put_in_container, timeless, write_meminfo

from lockstep.onhost.core import clock, config, errors, switch_lock
from lockstep.onhost.operator import switch_sh
from lockstep.onhost.records import json_records, models_by_boot, switch_history, watch_findings
from lockstep.onhost.switching import hot_change_under_way, precheck, switch_commands
from lockstep.onhost.switching import switch as switching

QWEN_UNIT, MISTRAL_UNIT = "vllm-qwen36.service", "vllm.service"
UNITS = {"qwen": QWEN_UNIT, "mistral": MISTRAL_UNIT, "eagle": "eagle.service"}
UNITS["spare"] = "sglang.service"
IMAGE = "vllm/vllm-openai@sha256:" + "a" * 64
REAL_PROGRAM = switch_commands.switch_program_command


class Spark(ModelHost):
    """A host where mistral is hot and qwen off, its image present."""

    def __init__(self, folder, monkeypatch) -> None:
        models = {name: {"unit": unit} for name, unit in UNITS.items()}
        models["qwen"] |= {"container": "vllm-qwen36", "image": IMAGE}
        models["eagle"]["fallback"] = "spare"
        super().__init__(folder, monkeypatch, models, up="mistral")
        have_switches(monkeypatch, (self.systemd, self.paths))
        self.docker.images[IMAGE] = {}
        self.lines: list[str] = []

    def need(self, name: str, **values: object) -> None:
        """Change a model's data; of its weights nothing is here."""
        self.tell(name, **values)
        file = {"path": "a.safetensors", "size": 1, "blob": "b" * 40}
        repository = {"model": "org/name", "revision": "c" * 40, "files": [file]}
        spec = {"cache_dir": f"{self.folder}/hub", "endpoint": "http://hub.example"}
        self.paths.weights_list.write_text(json.dumps({**spec, "repositories": [repository]}))

    def memory(self, available: float, need: float) -> None:
        write_meminfo(self.paths, available)
        self.need("qwen", memory_gib=need)

    def command(self, *words: str) -> int:
        """Run the command line as root; systemd runs its switches in this process."""
        return switch_sh.main(list(words), self.paths)

    def wait_for_start(self) -> None:
        until(lambda: self.systemd.state(QWEN_UNIT)["ActiveState"] == "activating", "it starts")

    def switch(self, user: str = "") -> switching.Switch:
        host = config.load_host(self.paths.models)
        return switching.Switch(
            host, self.paths, lambda line: self.lines.append(timeless(line)), user
        )

    def to(self, name: str) -> int:
        work = self.switch()
        return work.stop_all_models() if name == "none" else work.switch_to(name)

    def starve(self, name: str, moment: str = "serving") -> None:
        """Record that the memory watch has ended a model's engine."""
        kill = watch_findings.MemoryKill(name, UNITS[name], moment, 4.0, 3.9)
        watch_findings.save(self.paths, kill)

    def starve_hot(self, name: str) -> int:
        """End a model as the memory watch does; returns the exit code of the next switch."""
        self.systemd.unit(UNITS[name])
        self.starve(name)
        return self.switch("the memory watch").replace_memory_killed_model(name)


@pytest.fixture
def spark(tmp_path, monkeypatch):
    """A Spark whose programs are threads by one clock."""
    spark = Spark(tmp_path, monkeypatch)
    with one_clock_of(spark.systemd, monkeypatch) as spark.clock:
        yield spark
    spark.close()


def test_the_hot_model_is_stopped_before_the_wanted_one_is_started(spark):
    record = switch_history.SwitchRecord(1.0, 97.0, "anna", "qwen", 0, "")
    switch_history.add_switch_record(spark.paths, record)
    answer = "answered with 16 tokens in 0.3 s (57.0 tok/s)"
    steps = ("InactiveExit", "1000000"), ("ExecMainStart", "5500000"), ("ActiveEnter", "90000000")
    moments = {f"{name}TimestampMonotonic": microseconds for name, microseconds in steps}
    spark.systemd.unit(QWEN_UNIT, late=[f"lockstep answer: {answer}"], **moments)
    assert (spark.to("qwen"), spark.hot) == (0, ["qwen"])
    calls = [f"stop -- {MISTRAL_UNIT}", f"reset-failed -- {QWEN_UNIT}", f"start -- {QWEN_UNIT}"]
    assert spark.systemd.calls == [f"systemctl {call}" for call in calls]
    assert spark.lines[:2] == ["a switch to qwen usually takes 0 s", "stopping mistral"]
    assert spark.lines[-2].endswith(", gate 4.5 s, load 84.5 s")
    assert spark.lines[-1] == f"qwen is hot, started in 0 s, {answer}"


def test_a_switch_that_fails_brings_the_old_model_back(spark):
    journal = ["INFO loading", "torch.AcceleratorError: out of memory", "lockstep ready: died"]
    spark.systemd.unit(QWEN_UNIT, start_ok=False, journal=journal)
    spark.starve("qwen", "loading")
    assert (spark.to("qwen"), spark.hot) == (1, ["mistral"])
    assert "qwen FAILED after 0 s: exit-code, exit status 3" in spark.lines
    assert f"  {journal[1]}" in spark.lines
    assert any("the memory watch ended it while loading: 3.9 GiB" in line for line in spark.lines)
    assert spark.lines[-1] == "the switch to qwen FAILED; mistral is hot again"


def test_what_the_memory_watch_ended_gives_way_to_its_fallback_and_then_to_what_was_hot(spark):
    assert spark.to("eagle") == 0
    assert (spark.starve_hot("eagle"), spark.hot) == (0, ["spare"])
    message = "the memory watch ended it while serving: 3.9 GiB available, below the minimum of"
    assert f"eagle: {message} 4.0 GiB" in spark.lines
    # mistral was hot before.
    assert (spark.starve_hot("spare"), spark.hot) == (0, ["mistral"])
    assert (spark.starve_hot("mistral"), spark.hot) == (4, [])
    assert spark.lines[-1] == "NO MODEL IS HOT: mistral was ended, and nothing may take its place"


def test_nothing_is_started_that_the_memory_watch_has_ended_too(spark):
    assert spark.to("qwen") == 0
    spark.starve("mistral")
    assert (spark.starve_hot("qwen"), spark.hot) == (4, [])


def test_a_fall_back_leaves_what_somebody_started_and_no_boot_brings_back_what_was_ended(spark):
    models_by_boot.record_hot_model_of_switch(spark.paths, "mistral")
    spark.starve("qwen")
    assert switch_sh.main(["--fall-back", "qwen"], spark.paths) == 0
    assert (spark.hot, models_by_boot.load(spark.paths).hot) == (["mistral"], "mistral")
    spark.systemd.unit(MISTRAL_UNIT)
    spark.starve("mistral")
    assert switch_sh.main(["--fall-back", "mistral"], spark.paths) == 4
    assert models_by_boot.load(spark.paths).hot is None


def test_a_later_switch_that_succeeds_forgets_what_failed_before(spark):
    spark.systemd.unit(QWEN_UNIT, start_ok=False)
    assert (spark.to("qwen"), spark.to("mistral"), spark.hot) == (1, 0, ["mistral"])
    assert spark.systemd.calls[-1] == f"systemctl reset-failed -- {QWEN_UNIT}"


STATES = {
    "off": {},
    "fails": {"start_ok": False},
    "ends": {**UP, "start_ok": False},
    "loops": {"start_ok": False, "restarts_itself": True},
    "dies": {"killed_whole": True},
    "stays": {**UP, "stop_fails": "Job timed out."},
    "restarts": {"ActiveState": "activating", "SubState": "auto-restart"},
}


BACK = "the switch to qwen FAILED; mistral is hot again"


@pytest.mark.parametrize(
    ("states", "started_models", "code", "hot", "message"),
    [
        # A unit that restarts itself is stopped first.
        ("qwen loops", "qwen mistral", 1, ["mistral"], BACK),
        # Killed with its check, its start has succeeded.
        ("qwen dies", "qwen mistral", 1, ["mistral"], BACK),
        # No two engines.
        ("mistral stays", "mistral", 1, ["mistral"], f"stop {MISTRAL_UNIT} failed: Job timed out."),
        ("qwen fails, mistral ends", "qwen mistral", 4, [], "qwen and mistral failed"),
        ("qwen fails, mistral off", "qwen", 4, [], "NO MODEL IS HOT: qwen failed; none was before"),
        ("qwen fails, mistral restarts", "qwen", 4, [], "none was before"),
        ("eagle loops", "eagle spare", 3, ["spare"], "eagle FAILED; its fallback spare is hot"),
        ("eagle fails, spare fails", "eagle spare mistral", 1, ["mistral"], "mistral is hot again"),
        # A fallback that was hot is brought back once.
        ("eagle fails, spare ends, mistral off", "eagle spare", 4, [], "eagle and spare failed"),
    ],
)
def test_what_is_hot_after_a_switch_that_fails(spark, states, started_models, code, hot, message):
    for name, state in (words.split() for words in states.split(", ")):
        spark.systemd.unit(UNITS[name], **STATES[state])
    assert (spark.to("eagle" if "eagle" in states else "qwen"), spark.hot) == (code, hot)
    calls = spark.systemd.calls
    starts = [call.split()[-1] for call in calls if " start " in call]
    assert starts == [UNITS[name] for name in started_models.split()]
    for failed_model, following in itertools.pairwise(starts):
        first = calls[: calls.index(f"systemctl start -- {following}")]
        assert any("stop" in call.split() and failed_model in call.split() for call in first)
    assert any(line.endswith(message) for line in spark.lines)
    assert "activating" not in [spark.systemd.state(unit)["ActiveState"] for unit in UNITS.values()]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda s: s.docker.images.clear(), "is not on this host"),
        (lambda s: s.systemd.unit(QWEN_UNIT, LoadState="masked"), "vllm-qwen36.service is masked"),
        (lambda s: s.need("qwen", memory_gib=130.0), "needs 130.0 GiB, this host has 119.6"),
        (lambda s: s.memory(20.0, need=88.0), "needs 88.0 GiB; 20.0 GiB are available and stop"),
        (lambda s: s.need("qwen", weights=["/nowhere"]), "/nowhere does not exist"),
        (lambda s: s.need("qwen", weights=["org/none"]), "weights.json does not name it"),
        (lambda s: s.need("qwen", weights=["org/name"]), "not whole .*: a.safetensors"),
        # Docker answers from memory: only what it asks containerd for hangs.
        (lambda s: s.docker.silent.add("/version"), "qwen: containerd "),
    ],
)
def test_what_cannot_work_is_refused_before_anything_is_stopped(spark, change, words):
    change(spark)
    with pytest.raises(errors.Problem, match=words) as problem:
        spark.to("qwen")
    assert "nothing was stopped" in str(problem.value)
    assert (spark.hot, spark.systemd.calls) == (["mistral"], [])


@pytest.fixture
def hung_docker(spark, monkeypatch):
    """Docker takes connections and answers nothing."""
    spark.docker.close()
    spark.docker.path.unlink()
    monkeypatch.setattr(precheck, "DOCKER_S", 0.2)
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(spark.docker.path))
        silent.listen(100)
        yield silent


def qwen_is_hot(spark) -> None:
    spark.systemd.unit(MISTRAL_UNIT)
    spark.systemd.unit(QWEN_UNIT, **UP)
    put_in_container(spark.paths, "vllm-qwen36", 4711)


@pytest.mark.usefixtures("hung_docker")
@pytest.mark.parametrize("state", ["active", "inactive"])
def test_while_docker_hangs_no_engine_starts_where_one_lives_in_a_container(spark, state):
    qwen_is_hot(spark)
    spark.systemd.unit(QWEN_UNIT, ActiveState=state)
    with pytest.raises(errors.Problem, match="qwen lives in container vllm-qwen36, and Doc"):
        spark.to("mistral")
    assert spark.systemd.calls == []


def test_while_containerd_hangs_no_engine_in_a_container_is_stopped(spark):
    qwen_is_hot(spark)
    spark.docker.containers["vllm-qwen36"] = "image"
    spark.docker.silent = {"/containers/vllm-qwen36/top"}
    message = r"qwen lives in container vllm-qwen36, and containerd .* restart containerd docker"
    with pytest.raises(errors.Problem, match=message):
        spark.to("mistral")
    assert spark.systemd.calls == []


def test_stopped_is_what_has_no_process_left_in_its_container(spark, monkeypatch):
    """Docker hangs after the check: systemctl ends with 0 although the container lives."""
    qwen_is_hot(spark)
    monkeypatch.setattr(switching, "_GONE_S", 0.1)
    assert spark.to("mistral") != 0
    assert f"systemctl start -- {MISTRAL_UNIT}" not in spark.systemd.calls
    assert any("not stopped after 0 s: processes 4711 in cont" in line for line in spark.lines)


def test_none_ends_a_container_without_docker(spark, hung_docker, monkeypatch):
    killed_slices = let_the_kernel_kill(monkeypatch)
    qwen_is_hot(spark)
    spark.systemd.unit(QWEN_UNIT)
    assert spark.to("none") == 0
    assert killed_slices == ["system-lockstep-vllm.qwen36.slice"]
    assert "removing container vllm-qwen36: it runs outside its unit" in spark.lines
    assert any("its name is not free yet: Docker does not" in line for line in spark.lines)


def test_memory_that_a_hot_engine_took_counts_and_what_a_stopped_one_holds_is_the_gates(spark):
    """SGLang takes its share of what it found; that is more than the least that it needs."""
    write_meminfo(spark.paths, 14.0)
    spark.need("qwen", memory_gib=97.0)
    spark.need("mistral", memory_gib=81.6, memory_share=0.85, memory_beside_gib=2.7)
    assert spark.to("qwen") == 0
    spark.systemd.unit(QWEN_UNIT)
    spark.memory(20.0, need=88.0)
    assert spark.to("qwen") == 0


def test_a_hot_model_is_left_alone_unless_it_does_not_serve(spark):
    assert switch_sh.main(["--worker", "mistral", "anna"], spark.paths) == 0
    (record,) = switch_history.load(spark.paths)
    assert record.words.startswith("mistral is hot already (") and record.hot_already
    # The gateway before it is down.
    spark.need("mistral", engine_url=spark.engine.url, url=f"http://{refused_address()}")
    assert spark.to("mistral") == 0
    assert spark.lines[0].startswith("mistral is hot already (")
    # What generates nothing is reported and not killed.
    chat, spark.engine.chat = spark.engine.chat, lambda _: (503, {})
    with pytest.raises(errors.Problem, match="busy or wedged"):
        spark.to("mistral")
    assert spark.systemd.calls == []
    spark.engine.chat, spark.engine.health = chat, 503
    assert spark.to("mistral") == 0
    verbs = ("stop", "reset-failed", "start")
    assert spark.systemd.calls == [f"systemctl {verb} -- {MISTRAL_UNIT}" for verb in verbs]


def test_none_stops_all(spark):
    assert (spark.to("none"), spark.hot) == (0, [])
    assert (spark.to("none"), spark.lines[-1]) == (0, "no model was hot")


def test_a_rehearsal_says_what_would_happen_and_touches_nothing(spark, capsys):
    def rehearse(name: str, code: int = 0) -> list[str]:
        assert spark.command(name, "--dry") == code
        return capsys.readouterr().out.splitlines()[1:]

    assert rehearse("eagle") == [
        "image and weights of eagle are here",
        "memory: needs 67.0 GiB, 100.0 available, 67.0 more when mistral is stopped",
        "if eagle does not start: spare, then mistral, then no model",
    ]
    assert rehearse("mistral")[0] == "mistral is hot already: would ask it for a token"
    spark.systemd.unit(MISTRAL_UNIT)
    spark.memory(20.0, need=88.0)
    assert rehearse("qwen", code=1)[-1] == "would wait 120 s for memory and then be refused"
    spark.docker.images.clear()
    with pytest.raises(errors.Problem, match="is not on this host"):
        rehearse("qwen")
    assert spark.systemd.calls == []


@pytest.mark.parametrize("is_ours", [True, False])
def test_a_container_outside_its_unit_is_removed_if_it_is_ours(spark, is_ours):
    spark.docker.containers["vllm-qwen36"] = IMAGE
    if not is_ours:
        spark.docker.foreign = {"vllm-qwen36"}
    spark.to("none")
    assert ("vllm-qwen36" in spark.docker.containers) is not is_ours
    assert is_ours or "container vllm-qwen36 is not Lockstep's and stays" in spark.lines


def test_the_command_does_the_switch_in_a_unit_of_its_own_and_shows_it(spark, capsys):
    assert (spark.command("qwen"), spark.hot) == (0, ["qwen"])
    assert "qwen is hot, started in " in capsys.readouterr().out
    call = spark.systemd.calls[0]
    assert "--unit=lockstep-switch.service" in call
    assert call.endswith(f"--worker qwen {getpass.getuser()}")
    spark.systemd.unit(MISTRAL_UNIT, start_ok=False)
    assert spark.command("mistral") == 1


def test_a_folder_of_logs_that_takes_nothing_silences_no_switch(spark, capsys):
    spark.paths.log.parent.mkdir(parents=True, exist_ok=True)
    spark.paths.log.write_text("")  # No folder: nothing can be made in it.
    assert spark.command("qwen") == 0
    assert "qwen is hot" in capsys.readouterr().out


def test_the_second_operator_is_told_who_holds_the_lock_and_waits_with_wait(spark, capsys):
    def hold() -> None:
        with switch_lock.hold_lock(spark.paths.switch_lock, "anna", "mistral"):
            clock.sleep(40)

    threading.Thread(target=hold).start()
    until(lambda: switch_lock.holder(spark.paths.switch_lock), "it is held")
    with pytest.raises(errors.Problem, match="anna is switching to mistral since ") as problem:
        spark.command("qwen")
    assert (problem.value.code, spark.hot) == (75, ["mistral"])
    assert (spark.command("qwen", "--wait"), spark.hot) == (0, ["qwen"])
    # Every 15 s.
    assert capsys.readouterr().out.count("waiting: anna is switching to mistral") == 3


@pytest.fixture
def operator(spark, monkeypatch):
    """Somebody who is not root, on a host whose switches are not played here."""
    monkeypatch.setattr("lockstep.onhost.systemd.units.is_root", lambda: False)
    monkeypatch.setattr(switch_commands, "switch_program_command", REAL_PROGRAM)
    return spark


def test_an_operator_without_a_sudo_rule_may_look_and_not_switch(operator, capsys):
    with pytest.raises(errors.Problem, match="may not switch models on this host") as problem:
        operator.command("qwen")
    assert problem.value.code == 77
    assert operator.command("status") == 0
    assert capsys.readouterr().out.startswith("spark1: mistral hot\n")


@pytest.mark.parametrize("words", ["qwen --wait", "status --json"])
def test_with_a_sudo_rule_it_becomes_root_with_the_rules_arguments(operator, monkeypatch, words):
    (operator.systemd.folder / "sudo-allows").touch()

    def execvp(program: str, argv: list[str]) -> None:
        raise SystemExit(" ".join(argv))

    monkeypatch.setattr("os.execvp", execvp)
    command = "sudo -n -- /usr/bin/python3 /usr/local/lib/lockstep switch"
    with pytest.raises(SystemExit, match=f"{command} {words}$"):
        operator.command(*words.split())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("gemma", f"unknown model 'gemma'. Known: {', '.join(UNITS)}, none, status, log, wait"),
        ("qwen --wait --dry", "qwen does not take --dry"),
    ],
)
def test_wrong_use_is_explained(spark, words, message):
    with pytest.raises(errors.Problem, match=re.escape(message)) as problem:
        switch_sh.main(words.split(), spark.paths)
    assert problem.value.code == 2


def test_a_switch_that_is_killed_is_finished(tmp_path, monkeypatch, capsys):
    """A process is killed here, by the real clock; systemd runs ExecStopPost= of its unit."""
    spark = Spark(tmp_path, monkeypatch)
    spark.systemd.unit(QWEN_UNIT, on_start=60)
    watching = threading.Thread(target=spark.command, args=("qwen",))
    watching.start()
    spark.wait_for_start()
    spark.systemd.unit(QWEN_UNIT, ActiveState="activating", SubState="start")
    os.kill(switch_lock.holder(spark.paths.switch_lock).pid, signal.SIGKILL)
    watching.join(180)
    assert spark.hot == ["qwen"]
    assert "the switch to qwen was cut off, finishing it" in capsys.readouterr().out
    spark.close()


def test_a_finished_switch_leaves_nothing_to_finish_and_what_was_cut_off_goes_back(spark):
    spark.systemd.unit(QWEN_UNIT, start_ok=False)
    spark.to("qwen")
    assert hot_change_under_way.take_unfinished_work(spark.paths, "switch") is None
    assert switch_sh.main(["--finish"], spark.paths) == 0
    assert spark.hot == ["mistral"]
    spark.systemd.unit(MISTRAL_UNIT)
    work = hot_change_under_way.HotWork("qwen", "anna", "mistral")
    json_records.save(spark.paths.hot_change, hot_change_under_way.HotChange(switch=work))
    assert switch_sh.main(["--finish"], spark.paths) == 1
    assert spark.hot == ["mistral"]


def test_wait_ends_with_the_switchs_own_code(spark, capsys):
    spark.systemd.unit(QWEN_UNIT, start_ok=False, on_start=20)
    threading.Thread(target=spark.command, args=("qwen",)).start()
    spark.wait_for_start()
    assert spark.command("wait") == 1
    # Both clients print here, in either order.
    assert "mistral hot" in capsys.readouterr().out.splitlines()


def test_wait_sees_a_start_that_no_switch_made(spark):
    spark.systemd.unit(QWEN_UNIT, ActiveState="activating", SubState="start-post")
    spark.clock.at(20, lambda: spark.systemd.unit(QWEN_UNIT, ActiveState="failed"))
    assert spark.command("wait") == 1


def test_each_way_of_a_switch_is_kept_with_its_person_and_reason(spark):
    assert switch_sh.main(["--worker", "qwen", "anna"], spark.paths) == 0
    spark.systemd.unit(MISTRAL_UNIT, start_ok=False)
    assert switch_sh.main(["--worker", "mistral", "anna, by the gateway"], spark.paths) == 1
    spark.systemd.unit(QWEN_UNIT)
    assert switch_sh.main(["--fall-back", "qwen"], spark.paths) == 4
    spark.systemd.unit(MISTRAL_UNIT)
    work = hot_change_under_way.HotWork("mistral", "bob")
    with hot_change_under_way.keep_on_record(spark.paths, "switch", work):
        assert switch_sh.main(["--finish"], spark.paths) == 0
    records = switch_history.load(spark.paths)[::-1]
    assert [(record.person, record.model, record.code) for record in records] == [
        ("anna", "qwen", 0),
        ("anna, by the gateway", "mistral", 1),
        ("the memory watch", "what replaces qwen", 4),
        ("bob", "mistral", 0),
    ]
