"""After a boot: what becomes hot by itself, and when nothing does."""

import pytest
from a_cluster import cluster_of
from a_model import tell
from a_model_host import ModelHost
from a_process import have_switches, one_clock_of
from onhost_fakes import begin_boot

from lockstep.onhost.core import clock, config, errors, switch_lock
from lockstep.onhost.operator import boot_switch, status, switch_sh
from lockstep.onhost.records import models_by_boot, switch_history


class Spark(ModelHost):
    """A host that has just booted, with nothing up."""

    def __init__(self, folder, monkeypatch) -> None:
        qwen = {"recipe": "qwen-k3", "not_at_boot": "its author says so"}
        models = {"qwen": qwen, "mistral": {"fallback": "spare"}, "spare": {}}
        super().__init__(folder, monkeypatch, models)
        self.power_cut("1")

    def power_cut(self, name: str, lasted_s: float = 60.0) -> None:
        """The next boot begins; nothing ended in order, and nothing is up."""
        begin_boot(self.paths, name, lasted_s)
        for unit in self.unit_of.values():
            self.systemd.unit(unit)

    def hot_until_cut(self, name: str, boot_: str, lasted_s: float) -> None:
        """Make a model hot in a boot of that name, which lasts for so long."""
        begin_boot(self.paths, boot_, lasted_s)
        models_by_boot.record_model_phase(self.paths, name, models_by_boot.HOT)

    def choose_model(self, name: str) -> None:
        """Make a model hot as an operator, or none."""
        assert switch_sh.main(["--worker", name, "anna"], self.paths) in (0, 3)

    def boots(self):
        """The exit code after a boot, and the hot models."""
        try:
            return boot_switch.main([], self.paths), self.hot
        except errors.Problem as problem:
            self.problem = str(problem)
            return problem.code, self.hot

    @property
    def boot_message(self) -> str | None:
        return status.query_status(config.load_host(self.paths.models), self.paths).boot


@pytest.fixture
def spark(tmp_path, monkeypatch):
    spark = Spark(tmp_path, monkeypatch)
    have_switches(monkeypatch, (spark.systemd, spark.paths))
    with one_clock_of(spark.systemd, monkeypatch):
        yield spark
    spark.close()


def test_a_model_that_the_inventory_names_is_hot_after_a_boot(spark):
    tell(spark.paths, boot="mistral")
    assert spark.boots() == (0, ["mistral"])
    assert spark.boot_message is None
    # By the ordinary switch, in its own unit.
    call = next(call for call in spark.systemd.calls if call.startswith("systemd-run "))
    assert call.endswith(f"--worker mistral {models_by_boot.BOOT}")


def test_last_is_what_a_switch_ended_with(spark):
    tell(spark.paths, boot="last")
    spark.systemd.unit(spark.unit_of["mistral"], start_ok=False)
    spark.choose_model("qwen")
    spark.choose_model("mistral")
    spark.power_cut("2")
    assert spark.boots() == (0, ["spare"])


def test_a_fallback_after_a_boot_is_no_choice_of_an_operator_and_none_fails_the_unit(spark):
    tell(spark.paths, boot="last")
    spark.choose_model("mistral")
    spark.power_cut("2")
    spark.systemd.unit(spark.unit_of["mistral"], start_ok=False)
    assert spark.boots() == (0, ["spare"])
    assert models_by_boot.load(spark.paths).hot == "mistral"
    spark.power_cut("3")
    for name in ("mistral", "spare"):
        spark.systemd.unit(spark.unit_of[name], start_ok=False)
    assert spark.boots() == (errors.EXIT_NOTHING_HOT, [])


@pytest.mark.parametrize(
    ("boot_model", "chosen_model", "reason"),
    [
        ("none", "mistral", "no model was hot"),
        ("last", "none", "no model was hot"),
        ("last", "qwen", "qwen: recipe qwen-k3 forbids it: its author says so"),
        ("last", "mistral", "spare: recipe spare-1 forbids it: no"),
        ("gone", None, "gone, which was hot last, is no model of this host any more"),
    ],
)
def test_nothing_is_made_hot_and_that_is_said(spark, capsys, boot_model, chosen_model, reason):
    tell(spark.paths, boot=boot_model)
    if chosen_model == "mistral":
        spark.tell("spare", recipe="spare-1", not_at_boot="no")
    if chosen_model:
        spark.choose_model(chosen_model)
    spark.power_cut("2")
    assert spark.boots() == (0, [])
    assert f"nothing is made hot: {reason}" in capsys.readouterr().out
    assert spark.boot_message.startswith(reason)


def test_what_somebody_decides_since_the_boot_stays(spark, capsys):
    tell(spark.paths, boot="mistral")
    with switch_lock.hold_lock(spark.paths.switch_lock, "anna", "qwen"):
        assert spark.boots() == (0, [])
    assert "anna is switching to qwen" in capsys.readouterr().out
    spark.choose_model("none")
    assert spark.boots() == (0, [])
    spark.choose_model("spare")
    assert (spark.boots(), spark.boot_message) == ((0, ["spare"]), None)


@pytest.mark.parametrize("boot_model", ["last", "mistral"])
def test_after_two_cuts_within_an_hour_it_stays_down_until_somebody_switches(spark, boot_model):
    tell(spark.paths, boot=boot_model)
    spark.choose_model("mistral")
    spark.hot_until_cut("mistral", "1", 40000.0)
    spark.power_cut("2", lasted_s=5.0)
    # Once is no loop.
    assert spark.boots() == (0, ["mistral"])
    spark.hot_until_cut("mistral", "2", 900.0)
    for name in ("3", "4"):
        spark.power_cut(name)
        assert spark.boots() == (errors.EXIT_FAILED, [])
        assert "stays down: two boots were cut off within 15 min: while mistral" in spark.problem
        assert spark.boot_message == spark.problem
        # Everybody may read this one.
        newest = switch_history.load(spark.paths)[0]
        assert (newest.person, newest.words) == (models_by_boot.BOOT, spark.problem)
    spark.choose_model("mistral")
    assert spark.boot_message is None
    models_by_boot.record_model_end(spark.paths, "mistral")
    spark.power_cut("5")
    assert spark.boots() == (0, ["mistral"])


def test_two_cuts_more_than_an_hour_of_running_apart_are_no_loop(spark):
    tell(spark.paths, boot="mistral")
    spark.hot_until_cut("mistral", "1", 500.0)
    spark.hot_until_cut("mistral", "2", 700.0)
    spark.power_cut("3")
    assert spark.boots() == (errors.EXIT_FAILED, [])
    spark.hot_until_cut("mistral", "3", 3601.0)
    spark.power_cut("4")
    assert spark.boots() == (0, ["mistral"])


def test_nothing_is_tried_that_could_not_be_counted(spark):
    tell(spark.paths, boot="mistral")
    spark.paths.boots.parent.parent.mkdir(parents=True, exist_ok=True)
    spark.paths.boots.parent.touch()
    assert spark.boots() == (errors.EXIT_FAILED, [])
    assert "would not be counted" in spark.problem


@pytest.fixture
def pair(tmp_path, monkeypatch):
    """Two members of a cluster whose model was hot before both lost their power."""
    with cluster_of(tmp_path, monkeypatch, 2) as sparks:
        assert sparks[0].switch("glm")[0] == 0
        for spark in sparks:
            spark.power_off()
            begin_boot(spark.paths, "2")
            tell(spark.paths, boot="last")
        sparks[0].power_on()
        yield sparks


def test_a_clusters_model_waits_for_its_members_and_rank_0_begins(pair):
    began = clock.now()
    pair[0].clock.at(30, pair[1].power_on)
    assert pair[0].run("operator.boot_switch")[0] == 0
    assert clock.now() - began >= 30
    assert [spark.hot for spark in pair] == [["glm"], ["glm"]]


def test_a_member_of_another_rank_leaves_the_clusters_model_to_rank_0(pair):
    pair[1].power_on()
    code, lines = pair[1].run("operator.boot_switch")
    assert (code, lines[-1]) == (0, "lockstep boot: nothing is made hot: spark1 makes glm hot")


def test_a_member_that_does_not_come_back_is_named(pair):
    code, lines = pair[0].run("operator.boot_switch")
    assert code == errors.EXIT_FAILED and "no answer of spark2" in " ".join(lines)


def test_a_member_that_has_another_model_up_keeps_it(pair):
    pair[1].power_on()
    assert pair[1].switch("own")[0] == 0
    code, lines = pair[0].run("operator.boot_switch")
    assert (code, lines[-1]) == (0, "lockstep boot: nothing is made hot: spark2 has own up")
    assert [spark.hot for spark in pair] == [[], ["own"]]
