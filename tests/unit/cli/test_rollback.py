"""A rollback: the lock that is restored, and its deploy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import a_run
import pytest
from a_spark import pins_for, spark
from click.testing import CliRunner

from group_data import all as all_hosts
from lockstep.cli import deploy, rollback
from lockstep.cli.main import main
from lockstep.deploy import events
from lockstep.deploy.inputs import inputs
from lockstep.fleet.hosts import choose
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
# One model: each of the many deploys here renders every file of each model.
INVENTORY = """\
from group_data.all import models as _models
from lockstep.deploy.checked import checked

_own = {"qwen": _models["qwen"]}
some = checked(__file__, [("spark1", {"lock": "LOCK", "models": _own})])
"""


class Site:
    """An inventory with its lock; a deploy ends with `code` and is recorded."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.inventory = folder / "some.py"
        self.lock = folder / "some.lock.yaml"
        self.inventory.write_text(INVENTORY.replace("LOCK", str(self.lock)))
        self.code = 0
        self.deploys: list[Pins] = []
        self.copies: list[Fitting] = []
        self.copy_numbers: list[int | None] = []
        monkeypatch.setattr(rollback, "carry_out", self._deploy)
        # How the command asked for the last deploy.
        self.options: dict[str, Any] = {}
        self.is_agreed = True
        monkeypatch.setattr(rollback, "fitting", lambda hosts, pins: self.copies)
        monkeypatch.setattr(rollback, "use", self._use)
        monkeypatch.setattr(rollback, "read", self._read)
        # What the host says of a record, and the records that it was asked of.
        self.apart: list[str] = []
        self.compared_digests: list[str] = []

    def _deploy(
        self, inventory: Path, begin: Callable[[], None] = lambda: None, **options: Any
    ) -> int:
        assert (inventory, options.pop("command", "rollback")) == (self.inventory, "rollback")
        self.options = options
        if options.get("dry"):
            return self.code
        if not self.is_agreed:
            return 1
        begin()
        self.deploys.append(lockfile.load(self.lock))
        if self.code == 0:
            lockfile.record_deployed(self.lock, self.deploys[-1], self._inputs(self.deploys[-1]))
        return self.code

    def _inputs(self, pins: Pins) -> dict[str, Any]:
        hosts, _ = choose(self.inventory)
        return {host.name: inputs(DesiredState(host.plan, pins)) for host in hosts}

    def _read(self, login: object, name: str, question: str, **_: object) -> tuple[list[str], str]:
        assert name == "deploy_records.differences_from_generation"
        self.compared_digests.append(question)
        return self.apart, ""

    def bind(self, data: str) -> None:
        """Add these keys to the host's data in the inventory."""
        text = INVENTORY.replace("LOCK", str(self.lock))
        self.inventory.write_text(text.replace("})])", f", {data}}})])"))

    def _use(self, fitting: Fitting) -> str:
        self.copy_numbers.append(fitting.number)
        return ""

    def copy(self, number: int | None) -> None:
        """Let the host have this copy of Open WebUI's data."""
        host = choose(self.inventory)[0][0]
        self.copies = [Fitting(host, "image", number, "2026-11-23 10:00 UTC", 3, 2)]

    def deploy_locks(self, *locks: Pins) -> None:
        """Let each of these have been deployed, one after another."""
        for pins in locks:
            lockfile.save(self.lock, pins)
            self._deploy(self.inventory)
        self.deploys.clear()

    def back(self, *options: str) -> Any:
        return CliRunner().invoke(main, ["rollback", "-i", str(self.inventory), *options])


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    return Site(tmp_path, monkeypatch)


def test_the_lock_before_the_deployed_one_is_put_back_and_deployed(site: Site) -> None:
    site.deploy_locks(FIRST, SECOND)
    result = site.back()
    assert result.exit_code == 0, result.output
    assert site.deploys == [FIRST]
    assert lockfile.load(site.lock) == FIRST
    assert "ddddddddd" in result.stdout and "000000000000" in result.stdout
    assert "some.lock.yaml is the lock that was deployed before again" in result.stdout


def test_a_lock_that_was_never_deployed_whole_goes_back_to_the_deployed_one(site: Site) -> None:
    site.deploy_locks(FIRST, SECOND)
    lockfile.save(site.lock, THIRD)
    result = site.back()
    assert result.exit_code == 0
    assert site.deploys == [SECOND]
    assert "the lock that the last whole deploy used" in result.stdout


def test_a_look_changes_nothing(site: Site) -> None:
    site.deploy_locks(FIRST, SECOND)
    result = site.back("--dry")
    assert result.exit_code == 0
    assert result.stdout.endswith("Would go back to the lock that was deployed before.\n")
    assert (site.deploys, lockfile.load(site.lock)) == ([], SECOND)
    # What it interrupts is said by a deploy of that lock, which only looks.
    assert site.options == {"dry": True, "diff": False, "lock": lockfile.previous_path(site.lock)}


def test_a_rollback_to_which_nobody_agrees_leaves_lock_and_data(site: Site) -> None:
    site.deploy_locks(FIRST, SECOND)
    site.copy(7)
    site.is_agreed = False
    result = site.back("--data", "return")
    assert result.exit_code == 1
    assert (site.copy_numbers, site.deploys, lockfile.load(site.lock)) == ([], [], SECOND)
    assert result.stderr == "some.lock.yaml is as it was before this rollback.\n"


@pytest.mark.parametrize(("words", "code", "later_lock"), [([], 1, SECOND), (["--yes"], 0, FIRST)])
def test_it_asks_as_a_deploy_does_before_it_interrupts(
    site: Site, monkeypatch: pytest.MonkeyPatch, words: list[str], code: int, later_lock: Pins
) -> None:
    site.deploy_locks(FIRST, SECOND)
    hot = events.Interrupts("spark1", "qwen", again=True)
    end = (
        events.Over([a_run.good("spark1")]) if words else events.RunRefusal("Nobody agreed to it.")
    )
    argv = a_run.argv(
        site.lock.parent, [events.RunStart(["spark1"]), hot, events.Ready(), end, code]
    )
    monkeypatch.setenv("XDG_STATE_HOME", str(site.lock.parent / "state"))
    monkeypatch.setattr(deploy, "deploy_command", lambda *_: argv)
    monkeypatch.setattr(rollback, "carry_out", deploy.carry_out)
    result = site.back(*words)
    assert (result.exit_code, lockfile.load(site.lock)) == (code, later_lock)
    assert "  spark1: qwen is hot: it restarts\n" in result.stdout
    assert ("Nobody can be asked here: --yes goes on." in result.stdout) != bool(words)


def test_a_deploy_that_fails_leaves_the_older_lock_in_place_and_says_how_to_go_on(
    site: Site,
) -> None:
    site.deploy_locks(FIRST, SECOND)
    site.code = 1
    result = site.back()
    assert result.exit_code == 1
    assert lockfile.load(site.lock) == FIRST
    message = " ".join(result.stderr.split())
    assert f"`lockstep deploy -i {site.inventory}` goes on." in message
    assert f"`lockstep rollback -i {site.inventory}` puts the other lock back." in message
    site.code = 0
    assert site.back().exit_code == 0
    assert lockfile.load(site.lock) == SECOND


def test_a_lock_that_is_kept_nowhere_is_not_promised_back(site: Site) -> None:
    site.deploy_locks(SECOND)
    lockfile.save(site.lock, THIRD)
    site.code = 1
    result = site.back()
    assert result.exit_code == 1
    assert "puts the other lock back" not in result.stderr


def test_without_a_lock_to_go_back_to_nothing_is_done(site: Site) -> None:
    lockfile.save(site.lock, FIRST)
    first = site.back()
    site.deploy_locks(FIRST)
    second = site.back()
    for result, name in ((first, "deployed"), (second, "previous")):
        assert result.exit_code == 2
        message = " ".join(result.stderr.split())
        assert f"there is no lock to go back to; found no some.lock.{name}.yaml" in message
    assert site.deploys == []


@pytest.mark.parametrize(
    ("words", "copy_numbers"), [(("--data", "return"), [7]), (("--data", "keep"), [])]
)
def test_open_webuis_data_return_where_that_is_wanted(
    site: Site, words: tuple[str, ...], copy_numbers: list[int]
) -> None:
    site.deploy_locks(FIRST, SECOND)
    site.copy(7)
    result = site.back(*words)
    assert result.exit_code == 0, result.output
    assert "2 chat(s) that were begun or continued since are not in it" in result.stdout
    assert (site.copy_numbers, site.deploys) == (copy_numbers, [FIRST])


def test_where_nobody_can_be_asked_about_the_data_nothing_is_changed(site: Site) -> None:
    site.deploy_locks(FIRST, SECOND)
    site.copy(7)
    result = site.back()
    assert result.exit_code == 2
    assert (site.copy_numbers, site.deploys, lockfile.load(site.lock)) == ([], [], SECOND)


def test_without_a_copy_that_fits_the_older_image_is_tried(site: Site) -> None:
    site.deploy_locks(FIRST, SECOND)
    site.copy(None)
    result = site.back()
    assert result.exit_code == 0
    assert "no copy of its data is from that one" in result.stdout
    assert site.deploys == [FIRST]


def test_an_image_of_the_inventory_that_was_changed_and_deployed_is_named(site: Site) -> None:
    """The old lock holds no such image: nothing is resolved anew to get one."""
    site.deploy_locks(FIRST)
    image = "ghcr.io/example/vllm:2026110101"
    site.bind(f'"webui": {{"image": {image!r}}}')
    images = {**FIRST.images, image: next(iter(FIRST.images.values()))}
    site.deploy_locks(replace(FIRST, images=images))
    for options in ((), ("--dry",)):
        result = site.back(*options)
        assert result.exit_code == 2, result.output
        assert (
            "spark1: webui.image   " in result.stderr and f" → {image}   (some.py)" in result.stderr
        )
        assert result.stderr.endswith("Nothing was changed.\n")
        assert site.deploys == []
        assert image in lockfile.load(site.lock).images


def test_a_model_that_was_added_is_named_although_the_lock_is_the_same(site: Site) -> None:
    site.deploy_locks(FIRST)
    added_model = '{"recipe": "qwen3.6-35b-a3b-nvfp4-marlin", "unit": "vllm-more", "port": 30077}'
    recipe = choose(site.inventory)[0][0].plan.models[0].recipe.name
    added_model = added_model.replace("qwen3.6-35b-a3b-nvfp4-marlin", recipe)
    text = site.inventory.read_text()
    site.inventory.write_text(text.replace("_own})", f'{{**_own, "more": {added_model}}}}})'))
    site.deploy_locks(FIRST)
    result = site.back("--dry")
    assert result.exit_code == 2, result.output
    assert "spark1: models.more   none → in the inventory   (some.py)" in result.stderr
    # Neither its keys one by one, nor its recipe, which is in the catalogue as it was then.
    assert result.stderr.count("\n  ") == 1
    assert site.back().exit_code == 2 and site.deploys == []
    # As it was then, it is the lock alone that goes back.
    site.bind("")
    assert site.back().exit_code == 0
    assert site.deploys == [FIRST]


def test_what_makes_no_other_generation_is_no_obstacle(site: Site) -> None:
    site.deploy_locks(FIRST, SECOND)
    site.bind('"operators": ("anna",)')
    site.deploy_locks(SECOND)
    assert site.back().exit_code == 0
    assert site.deploys == [FIRST]


def test_a_lock_without_a_record_of_its_hosts_resolves_nothing(site: Site) -> None:
    """As an earlier Lockstep left it."""
    site.deploy_locks(FIRST, SECOND)
    for path in site.lock.parent.glob("*.json"):
        path.unlink()
    site.bind('"webui": {"image": "ghcr.io/example/vllm:new"}')
    result = site.back()
    assert result.exit_code == 2
    assert "not in that lock: ghcr.io/example/vllm:new" in result.stderr
    site.bind("")
    assert site.back().exit_code == 0
    assert site.deploys == [FIRST]


def test_each_host_is_compared_with_the_record_that_it_went_back_to(site: Site) -> None:
    site.deploy_locks(FIRST, SECOND)
    (host,) = choose(site.inventory)[0]
    site.apart = ["/etc/systemd/system/vllm-qwen36.service: another text"]
    result = site.back()
    assert result.exit_code == 1
    assert site.compared_digests == [DesiredState(host.plan, FIRST).generation_document["digest"]]
    assert "spark1: not as its record of that generation says: /etc/systemd" in result.stderr
