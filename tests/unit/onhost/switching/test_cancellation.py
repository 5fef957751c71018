"""A switch that is cancelled, from the page's socket and from the command."""

import threading

import pytest
from a_process import have_switches, one_clock_of
from a_switching_spark import UNITS, SwitchingSpark
from lab_servers import until

from lockstep.onhost.core import clock, config, errors, switch_lock
from lockstep.onhost.gateway import privileged_switch
from lockstep.onhost.operator import status, switch_sh
from lockstep.onhost.records import switch_history
from lockstep.onhost.switching import hot_change_under_way
from lockstep.onhost.switching import switch as switching
from lockstep.onhost.systemd import transient_job


@pytest.fixture
def spark(tmp_path, monkeypatch):
    """A host where mistral is hot; a start of qwen hangs, and so does one of its fallback."""
    spark = SwitchingSpark(tmp_path, monkeypatch)
    for name in ("qwen", "spare"):
        spark.systemd.unit(UNITS[name], on_start=600)
    have_switches(monkeypatch, (spark.systemd, spark.paths))
    with one_clock_of(spark.systemd, monkeypatch):
        yield spark
    spark.close()


class GatewaySwitch:
    """A switch by the gateway for a person; `end` is the last message of its program."""

    def __init__(self, spark: SwitchingSpark, model: str, person: str) -> None:
        self._messages: list[dict] = []
        arguments = model, f"{person}, by the gateway", spark.paths, self._messages.append
        threading.Thread(target=privileged_switch.run_and_report_switch, args=arguments).start()

    @property
    def lines(self) -> list[str]:
        return [message.get("line", "") for message in self._messages]

    def end(self) -> dict:
        until(lambda: self._messages and "code" in self._messages[-1], "it ends")
        return self._messages[-1]


def starts(spark: SwitchingSpark, name: str) -> None:
    """Wait until a start of a model hangs."""
    until(lambda: spark.systemd.state(UNITS[name])["ActiveState"] == "activating", "it starts")


def start_of_qwen(spark: SwitchingSpark) -> GatewaySwitch:
    """A switch to qwen whose start hangs by now."""
    switch = GatewaySwitch(spark, "qwen", "anna")
    starts(spark, "qwen")
    return switch


def switch_of(spark: SwitchingSpark, user: str = "anna") -> switching.Switch:
    return switching.Switch(config.load_host(spark.paths.models), spark.paths, user=user)


def test_a_start_that_hangs_is_cancelled_and_what_was_hot_is_back(spark):
    switch = start_of_qwen(spark)
    cancel = GatewaySwitch(spark, "cancel", "ben").end()
    assert (cancel["code"], spark.hot) == (0, ["mistral"])
    assert cancel["said"] == "the switch to qwen was cancelled; mistral is hot again"
    # Whoever waited for it sees that too, and it is no failure.
    assert (switch.end()["code"], switch.end()["said"]) == (5, cancel["said"])
    assert "ben, by the gateway cancelled the switch to qwen" in switch.lines
    host = config.load_host(spark.paths.models)
    assert status.query_status(host, spark.paths).last_switch is None
    # Its fallback was never wanted.
    assert f"systemctl start -- {UNITS['spare']}" not in spark.systemd.calls


def test_a_fallback_that_hangs_is_cancelled_by_the_command_too(spark, capsys):
    spark.systemd.unit(UNITS["qwen"], start_ok=False)
    switch = GatewaySwitch(spark, "qwen", "anna")
    starts(spark, "spare")
    assert switch_sh.main(["cancel"], spark.paths) == 0
    assert (spark.hot, switch.end()["code"]) == (["mistral"], 5)
    assert "mistral is hot again" in capsys.readouterr().out


def test_with_nothing_hot_before_nothing_is_hot_and_that_is_as_it_was(spark):
    spark.systemd.unit(UNITS["mistral"])
    switch = start_of_qwen(spark)
    cancel = GatewaySwitch(spark, "cancel", "ben").end()
    assert (cancel["code"], spark.hot, switch.end()["code"]) == (0, [], 5)
    assert cancel["said"] == "the switch to qwen was cancelled; no model is hot"


def test_what_comes_back_can_be_cancelled_as_well(spark):
    spark.systemd.unit(UNITS["mistral"], ActiveState="active", SubState="running", on_start=600)
    switch = start_of_qwen(spark)
    first = GatewaySwitch(spark, "cancel", "ben")
    starts(spark, "mistral")
    assert GatewaySwitch(spark, "cancel", "carla").end()["code"] == first.end()["code"] == 4
    assert spark.hot == []
    assert switch.end()["said"].startswith("NO MODEL IS HOT: qwen and mistral failed, or carla, by")


@pytest.mark.parametrize(
    ("starts_well", "memory_gib", "code", "hot"),
    [(True, 67, 0, "spare"), (False, 67, 1, "mistral"), (True, 500, 1, "mistral")],
    ids=["it starts", "it fails", "refused"],
)
def test_another_switch_takes_over_and_what_was_hot_comes_back_only_where_that_fails(
    spark, starts_well, memory_gib, code, hot
):
    spark.systemd.unit(UNITS["spare"], start_ok=starts_well)
    spark.tell("spare", memory_gib=memory_gib)
    switch = start_of_qwen(spark)
    assert switch_sh.main(["spare", "--instead"], spark.paths) == code
    assert (spark.hot, switch.end()["code"]) == ([hot], 5)
    # Nothing is loaded in vain.
    mistral = f"systemctl start -- {UNITS['mistral']}"
    assert (mistral in spark.systemd.calls) == (hot == "mistral")


def test_how_a_switch_ended_is_told_although_the_next_one_has_its_unit(spark, monkeypatch):
    def follow_late(job, from_end, say):
        until(lambda: switch_history.load(spark.paths), "it is kept")
        return transient_job.EXIT_GONE

    spark.tell("spare", memory_gib=500.0)
    monkeypatch.setattr("lockstep.onhost.operator.log_and_wait.show_switch_until_end", follow_late)
    lines = []
    code = switch_sh.run_switch("spare", "anna", spark.paths, wait=False, say=lines.append)
    assert code == switch_history.load(spark.paths)[0].code == 1
    assert "needs 500.0 GiB" in lines[-1]


def test_a_rehearsal_leaves_what_a_cancelled_switch_owes(spark):
    spark.systemd.unit(UNITS["mistral"])
    hot_change_under_way.record_hot_model(spark.paths, None, "mistral")
    spark.tell("qwen", fallback=None)
    spark.systemd.unit(UNITS["qwen"], start_ok=False)
    assert switch_of(spark).rehearse_switch("qwen") == 0
    assert switch_of(spark).switch_to("qwen") == 1
    assert spark.hot == ["mistral"]
    # Once, and a stop forgets it.
    hot_change_under_way.record_hot_model(spark.paths, None, "mistral")
    assert switch_of(spark).stop_all_models() == 0
    assert switch_of(spark).switch_to("qwen") == 4


def test_where_no_switch_is_under_way_that_is_said(spark):
    with pytest.raises(errors.Problem, match="no switch is under way"):
        switch_sh.main(["cancel"], spark.paths)
    # A deploy that restarts what is hot holds the same lock.
    with (
        switch_lock.hold_lock(spark.paths.switch_lock, "the deploy", "mistral"),
        pytest.raises(errors.Problem, match="not to be cancelled from here"),
    ):
        switch_sh.main(["cancel"], spark.paths)
    assert spark.hot == ["mistral"]


def test_a_request_of_before_cancels_no_later_switch(spark):
    spark.systemd.unit(UNITS["qwen"])
    hot_change_under_way.request_cancellation(spark.paths, "ben", restore=True)
    clock.sleep(1)
    assert switch_of(spark).switch_to("qwen") == 0
    assert spark.hot == ["qwen"]


def test_who_waited_and_has_gone_starts_nothing_later(spark, monkeypatch):
    monkeypatch.setattr("lockstep.onhost.core.event_lines.has_lost_reader", lambda: True)
    with (
        switch_lock.hold_lock(spark.paths.switch_lock, "ben", "mistral"),
        pytest.raises(errors.Problem, match="nobody waits for this switch any more"),
    ):
        switch_sh.main(["spare", "--wait"], spark.paths)
    assert spark.hot == ["mistral"]
