"""Going back: which lock is put back, and that it is deployed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import a_run
import pytest
from a_spark import pins_for, spark
from click.testing import CliRunner

from lockstep.cli import deploy, rollback
from lockstep.cli.main import main
from lockstep.deploy import events
from lockstep.deploy.inputs import inputs
from lockstep.fleet.hosts import choose
from lockstep.fleet.webui import Fitting
from lockstep.host.intended import Intended
from lockstep.lock import lockfile
from lockstep.lock.pins import Pins

FIRST = pins_for(spark())


def with_images(digit: str) -> Pins:
    """Another lock of the same things."""
    digest = f"sha256:{64 * digit}"
    return replace(
        FIRST, images={name: replace(pin, digest=digest) for name, pin in FIRST.images.items()}
    )


SECOND, THIRD = with_images("d"), with_images("e")
INVENTORY = """\
from lockstep.deploy.checked import checked
some = checked(__file__, [("spark1", {"lock": "LOCK"})])
"""


class Site:
    """An inventory with its lock; a deploy ends with `code` and is written down."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.inventory = folder / "some.py"
        self.lock = folder / "some.lock.yaml"
        self.inventory.write_text(INVENTORY.replace("LOCK", str(self.lock)))
        self.code = 0
        self.deploys: list[Pins] = []
        self.copies: list[Fitting] = []
        self.used: list[int | None] = []
        monkeypatch.setattr(rollback, "carry_out", self._deploy)
        # How the command asked for the last deploy.
        self.asked: dict[str, Any] = {}
        self.agreed = True
        monkeypatch.setattr(rollback, "fitting", lambda hosts, pins: self.copies)
        monkeypatch.setattr(rollback, "use", self._use)
        monkeypatch.setattr(rollback, "read", self._read)
        # What the host says of a record, and the records that it was asked of.
        self.apart: list[str] = []
        self.compared: list[str] = []

    def _deploy(
        self, inventory: Path, begin: Callable[[], None] = lambda: None, **asked: Any
    ) -> int:
        assert (inventory, asked.pop("what", "rollback")) == (self.inventory, "rollback")
        self.asked = asked
        if asked.get("dry"):
            return self.code
        if not self.agreed:
            return 1
        begin()
        self.deploys.append(lockfile.load(self.lock))
        if self.code == 0:
            lockfile.deployed(self.lock, self.deploys[-1], self._inputs(self.deploys[-1]))
        return self.code

    def _inputs(self, pins: Pins) -> dict[str, Any]:
        hosts, _ = choose(self.inventory)
        return {host.name: inputs(Intended(host.plan, pins)) for host in hosts}

    def _read(self, login: object, name: str, question: str, **_: object) -> tuple[list[str], str]:
        assert name == "records.apart"
        self.compared.append(question)
        return self.apart, ""

    def bind(self, data: str) -> None:
        """Have the inventory say this of its host besides."""
        text = INVENTORY.replace("LOCK", str(self.lock))
        self.inventory.write_text(text.replace("})])", f", {data}}})])"))

    def _use(self, each: Fitting) -> str:
        self.used.append(each.number)
        return ""

    def copy(self, number: int | None) -> None:
        """Let the host have this copy of Open WebUI's data."""
        host = choose(self.inventory)[0][0]
        self.copies = [Fitting(host, "image", number, "2026-11-23 10:00 UTC", 3, 2)]

    def deployed(self, *locks: Pins) -> None:
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
    site.deployed(FIRST, SECOND)
    done = site.back()
    assert done.exit_code == 0, done.output
    assert site.deploys == [FIRST]
    assert lockfile.load(site.lock) == FIRST
    assert "ddddddddd" in done.stdout and "000000000000" in done.stdout
    assert "some.lock.yaml is the lock that was deployed before again" in done.stdout


def test_a_lock_that_was_never_deployed_whole_goes_back_to_the_deployed_one(site: Site) -> None:
    site.deployed(FIRST, SECOND)
    lockfile.save(site.lock, THIRD)
    done = site.back()
    assert done.exit_code == 0
    assert site.deploys == [SECOND]
    assert "the lock that the last whole deploy used" in done.stdout


def test_a_look_changes_nothing(site: Site) -> None:
    site.deployed(FIRST, SECOND)
    done = site.back("--dry")
    assert done.exit_code == 0
    assert done.stdout.endswith("Would go back to the lock that was deployed before.\n")
    assert (site.deploys, lockfile.load(site.lock)) == ([], SECOND)
    # What it interrupts is said by a deploy of that lock, which only looks.
    assert site.asked == {"dry": True, "diff": False, "lock": lockfile.previous_path(site.lock)}


def test_a_rollback_to_which_nobody_agrees_leaves_lock_and_data(site: Site) -> None:
    site.deployed(FIRST, SECOND)
    site.copy(7)
    site.agreed = False
    done = site.back("--data", "return")
    assert done.exit_code == 1
    assert (site.used, site.deploys, lockfile.load(site.lock)) == ([], [], SECOND)
    assert done.stderr == "some.lock.yaml is as it was before this rollback.\n"


@pytest.mark.parametrize(("words", "code", "left"), [([], 1, SECOND), (["--yes"], 0, FIRST)])
def test_it_asks_as_a_deploy_does_before_it_interrupts(
    site: Site, monkeypatch: pytest.MonkeyPatch, words: list[str], code: int, left: Pins
) -> None:
    site.deployed(FIRST, SECOND)
    hot = events.Interrupts("spark1", "qwen", again=True)
    end = events.Over([a_run.good("spark1")]) if words else events.Refused("Nobody agreed to it.")
    argv = a_run.argv(
        site.lock.parent, [events.Started(["spark1"]), hot, events.Ready(), end, code]
    )
    monkeypatch.setenv("XDG_STATE_HOME", str(site.lock.parent / "state"))
    monkeypatch.setattr(deploy, "deploy_command", lambda *_: argv)
    monkeypatch.setattr(rollback, "carry_out", deploy.carry_out)
    done = site.back(*words)
    assert (done.exit_code, lockfile.load(site.lock)) == (code, left)
    assert "  spark1: qwen is hot: it restarts\n" in done.stdout
    assert ("Nobody can be asked here: --yes goes on." in done.stdout) != bool(words)


def test_a_deploy_that_fails_leaves_the_older_lock_in_place_and_says_how_to_go_on(
    site: Site,
) -> None:
    site.deployed(FIRST, SECOND)
    site.code = 1
    done = site.back()
    assert done.exit_code == 1
    assert lockfile.load(site.lock) == FIRST
    said = " ".join(done.stderr.split())
    assert f"`lockstep deploy -i {site.inventory}` goes on." in said
    assert f"`lockstep rollback -i {site.inventory}` puts the other lock back." in said
    site.code = 0
    assert site.back().exit_code == 0
    assert lockfile.load(site.lock) == SECOND


def test_a_lock_that_is_kept_nowhere_is_not_promised_back(site: Site) -> None:
    site.deployed(SECOND)
    lockfile.save(site.lock, THIRD)
    site.code = 1
    done = site.back()
    assert done.exit_code == 1
    assert "puts the other lock back" not in done.stderr


def test_without_a_lock_to_go_back_to_nothing_is_done(site: Site) -> None:
    lockfile.save(site.lock, FIRST)
    first = site.back()
    site.deployed(FIRST)
    second = site.back()
    for done, name in ((first, "deployed"), (second, "previous")):
        assert done.exit_code == 2
        said = " ".join(done.stderr.split())
        assert f"there is no lock to go back to; found no some.lock.{name}.yaml" in said
    assert site.deploys == []


@pytest.mark.parametrize(("words", "used"), [(("--data", "return"), [7]), (("--data", "keep"), [])])
def test_open_webuis_data_return_where_that_is_wanted(
    site: Site, words: tuple[str, ...], used: list[int]
) -> None:
    site.deployed(FIRST, SECOND)
    site.copy(7)
    done = site.back(*words)
    assert done.exit_code == 0, done.output
    assert "2 chat(s) that were begun or continued since are not in it" in done.stdout
    assert (site.used, site.deploys) == (used, [FIRST])


def test_where_nobody_can_be_asked_about_the_data_nothing_is_changed(site: Site) -> None:
    site.deployed(FIRST, SECOND)
    site.copy(7)
    done = site.back()
    assert done.exit_code == 2
    assert (site.used, site.deploys, lockfile.load(site.lock)) == ([], [], SECOND)


def test_without_a_copy_that_fits_the_older_image_is_tried(site: Site) -> None:
    site.deployed(FIRST, SECOND)
    site.copy(None)
    done = site.back()
    assert done.exit_code == 0
    assert "no copy of its data is from that one" in done.stdout
    assert site.deploys == [FIRST]


def test_an_image_of_the_inventory_that_was_changed_and_deployed_is_named(site: Site) -> None:
    """The old lock holds no such image: nothing is resolved anew to get one."""
    site.deployed(FIRST)
    image = "ghcr.io/example/vllm:2026110101"
    site.bind(f'"webui": {{"image": {image!r}}}')
    images = {**FIRST.images, image: next(iter(FIRST.images.values()))}
    site.deployed(replace(FIRST, images=images))
    for options in ((), ("--dry",)):
        done = site.back(*options)
        assert done.exit_code == 2, done.output
        assert "spark1: webui.image   " in done.stderr and f" → {image}   (some.py)" in done.stderr
        assert done.stderr.endswith("Nothing was changed.\n")
        assert site.deploys == []
        assert image in lockfile.load(site.lock).images


def test_a_target_that_was_added_is_named_although_the_lock_is_the_same(site: Site) -> None:
    site.deployed(FIRST)
    text = "__import__('group_data.all').all.targets"
    other = '{"recipe": "qwen3.6-35b-a3b-nvfp4-marlin", "unit": "vllm-more", "port": 30077}'
    recipe = choose(site.inventory)[0][0].plan.targets[0].recipe.name
    other = other.replace("qwen3.6-35b-a3b-nvfp4-marlin", recipe)
    site.bind(f'"targets": {{**{text}, "more": {other}}}')
    site.deployed(FIRST)
    done = site.back("--dry")
    assert done.exit_code == 2, done.output
    assert "spark1: targets.more   none → in the inventory   (some.py)" in done.stderr
    # Neither its keys one by one, nor its recipe, which is in the catalogue as it was then.
    assert done.stderr.count("\n  ") == 1
    assert site.back().exit_code == 2 and site.deploys == []
    # As it was then, it is the lock alone that goes back.
    site.bind("")
    assert site.back().exit_code == 0
    assert site.deploys == [FIRST]


def test_what_makes_no_other_generation_is_no_obstacle(site: Site) -> None:
    site.deployed(FIRST, SECOND)
    site.bind('"operators": ("anna",)')
    site.deployed(SECOND)
    assert site.back().exit_code == 0
    assert site.deploys == [FIRST]


def test_a_lock_without_a_record_of_its_hosts_resolves_nothing(site: Site) -> None:
    """As an earlier Lockstep left it."""
    site.deployed(FIRST, SECOND)
    for path in site.lock.parent.glob("*.json"):
        path.unlink()
    site.bind('"webui": {"image": "ghcr.io/example/vllm:new"}')
    done = site.back()
    assert done.exit_code == 2
    assert "not in that lock: ghcr.io/example/vllm:new" in done.stderr
    site.bind("")
    assert site.back().exit_code == 0
    assert site.deploys == [FIRST]


def test_each_host_is_compared_with_the_record_that_it_went_back_to(site: Site) -> None:
    site.deployed(FIRST, SECOND)
    (host,) = choose(site.inventory)[0]
    site.apart = ["/etc/systemd/system/vllm-qwen36.service: another text"]
    done = site.back()
    assert done.exit_code == 1
    assert site.compared == [Intended(host.plan, FIRST).generation["digest"]]
    assert "spark1: not as its record of that generation says: /etc/systemd" in done.stderr
