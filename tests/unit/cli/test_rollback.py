"""A rollback: the deploy to return to, the hosts that return by their journals, and the lock."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from a_spark import pins_for, spark
from click.testing import CliRunner, Result

from group_data import all as all_hosts
from lockstep.cli import rollback
from lockstep.cli.main import main
from lockstep.deploy.inputs import inputs
from lockstep.fleet.hosts import HostAnswer, choose
from lockstep.fleet.webui import Fitting
from lockstep.host.desired_state import DesiredState
from lockstep.lock import lockfile
from lockstep.lock.pins import Pins

FIRST = pins_for(spark(models={"qwen": all_hosts.models["qwen"]}))


def with_images(digit: str) -> Pins:
    """Another lock for the same items."""
    digest = f"sha256:{64 * digit}"
    return replace(
        FIRST, images={name: replace(pin, digest=digest) for name, pin in FIRST.images.items()}
    )


SECOND, THIRD = with_images("d"), with_images("e")
INVENTORY = """\
from group_data.all import models as _models
from lockstep.deploy.checked import checked

_own = {"qwen": _models["qwen"]}
some = checked(__file__, [(name, {"lock": "LOCK", "models": _own}) for name in HOSTS])
"""


class Site:
    """An inventory with its lock, and hosts whose program returns by a journal."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.inventory, self.lock = folder / "some.py", folder / "some.lock.yaml"
        self.write_inventory()
        # Host → digest of its generation, and of the one to which its journal leads.
        self.generations: dict[str, str] = {}
        self.journals: dict[str, str] = {}
        # Host → (hot model, its cluster).
        self.hot: dict[str, tuple[str, str]] = {}
        self.code, self.ends, self.fails = 0, False, ""
        self.foreign: dict[str, str] = {}
        self.copies: list[Fitting] = []
        self.commands: list[tuple[str, list[str]]] = []
        self.differences: list[str] = []
        monkeypatch.setattr(rollback, "fitting", lambda hosts, images: self.copies)
        monkeypatch.setattr(rollback, "read", self._read)
        monkeypatch.setattr(rollback, "ask", self._ask)

    def write_inventory(self, data: str = "", hosts: Sequence[str] = ("spark1",)) -> None:
        text = INVENTORY.replace("LOCK", str(self.lock)).replace("HOSTS", str(tuple(hosts)))
        self.inventory.write_text(text.replace("_own})", f"_own, {data}}})"))

    def deploy(self, pins: Pins, *names: str) -> None:
        """Let this lock have been deployed, to hosts of these names or to all of them."""
        lockfile.save(self.lock, pins)
        hosts, _ = choose(self.inventory)
        of_hosts = {host.name: inputs(DesiredState(host.plan, pins)) for host in hosts}
        for name in names or of_hosts:
            digest = of_hosts[name]["generation"]
            if self.generations.get(name) != digest:
                self.journals[name] = self.generations.get(name, "")
                self.generations[name] = digest
        if not names:
            lockfile.record_deployed(self.lock, pins, of_hosts)

    def _read(self, login: Any, name: str, question: Any, **_: Any) -> tuple[Any, str]:
        if name == "deploy_records.differences_from_generation":
            is_newest = self.generations[login.name] == question
            return self.differences if is_newest else ["another generation"], ""
        model, cluster = self.hot.get(login.name, ("", ""))
        effects = {
            **{"digest": self.journals[login.name], "number": 3, "date": "2026-11-23 10:00 UTC"},
            **{"files": ["/etc/a", "/etc/b"], "webui": "", "interrupted": model},
            **{"cluster": cluster, "ends": self.ends},
        }
        foreign = self.foreign.get(login.name, "")
        return {"from": self.generations[login.name], "foreign": foreign, **effects}, ""

    def _ask(self, login: Any, argv: Sequence[str]) -> HostAnswer:
        self.commands.append((login.name, list(argv)))
        if "rollout" not in argv:
            return HostAnswer(0, "qwen is hot\n")
        if login.name == self.fails:
            return HostAnswer(1, "", "it failed\n")
        present_digest, earlier_digest = self.generations[login.name], self.journals[login.name]
        self.generations[login.name] = earlier_digest
        self.journals[login.name] = present_digest
        return HostAnswer(self.code, "generation 4, as 3 was\n")

    @property
    def returned_hosts(self) -> list[str]:
        """The hosts that returned, in order."""
        return [name for name, argv in self.commands if "back" in argv]

    def back(self, *options: str, exit_code: int = 0) -> Result:
        result = CliRunner().invoke(main, ["rollback", "-i", str(self.inventory), *options])
        assert result.exit_code == exit_code, result.output
        return result


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    """One Spark with two deploys."""
    site = Site(tmp_path, monkeypatch)
    site.deploy(FIRST)
    site.deploy(SECOND)
    return site


@pytest.fixture
def pair(site: Site) -> Site:
    """Two Sparks with two deploys."""
    site.write_inventory(hosts=("spark1", "spark2"))
    site.deploy(FIRST)
    site.deploy(SECOND)
    return site


def test_the_deploy_before_is_back_and_a_second_rollback_undoes_the_first(pair: Site) -> None:
    result = pair.back("--yes")
    assert pair.returned_hosts == ["spark1", "spark2"]
    assert lockfile.load(pair.lock) == FIRST
    assert "spark1: as generation 3 of 2026-11-23 10:00 UTC was, 2 file(s)\n" in result.stdout
    assert result.stdout.endswith("Each host is what its record of that generation says.\n")
    pair.back("--yes")
    assert lockfile.load(pair.lock) == SECOND and len(pair.returned_hosts) == 4


def test_from_a_lock_that_not_every_host_has_only_those_return_that_do(pair: Site) -> None:
    lockfile.save(pair.lock, THIRD)
    result = pair.back()
    assert lockfile.load(pair.lock) == SECOND and pair.commands == []
    assert "spark1: is as it was then" in result.stdout
    pair.deploy(THIRD, "spark2")
    pair.back("--yes")
    assert pair.returned_hosts == ["spark2"]
    assert lockfile.load(pair.lock) == SECOND


def test_a_changed_inventory_is_no_obstacle_and_a_host_fits_its_record(site: Site) -> None:
    (site.lock.parent / "own.conf").write_text("a\n")
    site.write_inventory('"extra_files": {"/etc/own.conf": "own.conf"}')
    site.deploy(SECOND)
    result = site.back("--yes")
    assert site.returned_hosts == ["spark1"]
    assert "Put some.py back, or the next deploy brings again:" in result.stdout
    assert "spark1: extra_files" in result.stdout and "(some.py)" in result.stdout
    site.differences = ["/etc/systemd/system/vllm-qwen36.service: another text"]
    result = site.back("--yes", exit_code=1)
    assert "spark1: not as its record of that generation says: /etc/systemd" in result.stderr


def test_a_look_or_no_yes_changes_nothing_and_files_and_hot_models_are_named(site: Site) -> None:
    site.hot["spark1"] = ("qwen", "")
    look = site.back("--dry")
    assert "2 file(s); qwen is hot: it restarts\n  /etc/a\n  /etc/b\n" in look.stdout
    site.ends = True
    assert "qwen is hot: it ends, for it was not there then" in site.back("--dry").stdout
    unanswered_question = site.back(exit_code=2)
    assert "--yes returns" in unanswered_question.stderr
    assert site.commands == [] and lockfile.load(site.lock) == SECOND


def test_a_host_that_fails_holds_the_others_back_until_a_second_rollback(pair: Site) -> None:
    pair.fails = "spark1"
    result = pair.back("--yes", exit_code=1)
    assert "spark1: it failed" in result.stdout
    assert "Not returned: spark2. `lockstep rollback" in result.stderr
    assert lockfile.load(pair.lock) == SECOND
    pair.fails = "spark2"
    result = pair.back("--yes", exit_code=1)
    assert "Returned: spark1. `lockstep rollback -i" in result.stderr
    assert lockfile.load(pair.lock) == FIRST
    pair.fails = ""
    pair.back("--yes")
    assert pair.returned_hosts == ["spark1", "spark1", "spark2", "spark1"]
    assert lockfile.load(pair.lock) == SECOND


def test_an_obstacle_on_any_host_is_known_before_the_first_change(pair: Site) -> None:
    pair.foreign["spark2"] = "not made by Lockstep: /etc/a; nothing was changed"
    for options in ((), ("--dry",), ("--yes",)):
        result = pair.back(*options, exit_code=2)
        assert "spark2: not made by Lockstep: /etc/a" in result.stderr
    pair.foreign.clear()
    pair.journals["spark2"] = "0" * 16
    result = pair.back("--yes", exit_code=2)
    message = " ".join(result.stderr.split())
    assert "spark2" in message and "copy some.lock.previous.yaml over the lock" in message
    assert pair.commands == [] and lockfile.load(pair.lock) == SECOND


def test_a_cluster_s_model_is_hot_again_when_all_its_members_have_returned(pair: Site) -> None:
    pair.hot = {name: ("qwen", "both") for name in ("spark1", "spark2")}
    pair.code = 4
    pair.back("--yes")
    commands = [(name, argv[-1]) for name, argv in pair.commands]
    assert commands == [("spark1", "back"), ("spark2", "back"), ("spark1", "qwen")]


def test_a_host_that_came_since_stays(site: Site) -> None:
    site.write_inventory(hosts=("spark1", "spark2"))
    site.deploy(THIRD)
    result = site.back("--yes")
    assert site.returned_hosts == ["spark1"]
    assert "spark2: was not in that deploy, and stays as it is" in result.stdout


def test_a_first_deploy_has_none_before_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site(tmp_path, monkeypatch)
    for names, absent in ((("spark1",), "deployed"), ((), "previous")):
        site.deploy(FIRST, *names)
        result = site.back("--yes", exit_code=2)
        message = " ".join(result.stderr.split())
        assert f"there is no deploy to return to; found no some.lock.{absent}.yaml" in message
    assert site.commands == []


@pytest.mark.parametrize(("choice", "words"), [("return", []), ("keep", ["--keep-data"])])
def test_open_webuis_data_return_where_that_is_wanted(site, monkeypatch, choice, words) -> None:
    site.copies = [Fitting(choose(site.inventory)[0][0], "image", 7, "2026-11-23 10:00 UTC", 3, 2)]
    refusal = site.back("--yes", exit_code=2)
    assert "--data return" in refusal.stderr and not site.commands
    result = site.back("--yes", "--data", choice)
    assert "2 chat(s) that were begun or continued since are not in it" in result.stdout
    assert [argv[argv.index("back") :] for _, argv in site.commands] == [["back", *words]]
    # A person at a terminal is asked.
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr(rollback, "confirm", lambda _: choice == "return")
    assert list(rollback._data_words(site.copies, None)) == words
