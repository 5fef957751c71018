"""A new lock from an old one: what moves, what stays, and what is shown of it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from a_spark import environment, pins_for, precompiled_pin, spark, wheel
from an_inventory import write_inventory
from click.testing import CliRunner

from group_data.all import tools
from lockstep.cli.main import main
from lockstep.core.errors import LockstepError, ResolveError
from lockstep.inventory import inventory_file as inventories
from lockstep.lock import lockfile
from lockstep.lock.lockdiff import LockChange, changes
from lockstep.lock.moving import Item
from lockstep.lock.packages import engine_sets
from lockstep.lock.pins import GitPin, Pins, PrecompiledPin, PythonPin, missing
from lockstep.lock.resolve import EarlierLock, relock

PLAN = spark()
OLD = pins_for(PLAN)
FORK = "https://github.com/juliendenize/vllm.git"
NEW_COMMIT = 40 * "d"
DIGEST = "sha256:" + 64 * "d"


class World:
    """The answers that sources would give now: everything one version on."""

    def __init__(self) -> None:
        self.resolved_keys: list[str] = []
        self.earlier_locks: Mapping[str, EarlierLock] = {}
        self.known_hashes: Mapping[str, PrecompiledPin] = {}

    def resolve(
        self,
        wanted_items: Sequence[Item],
        known_pins: Pins,
        *,
        earlier_locks: Mapping[str, EarlierLock] | None,
        known_hashes: Mapping[str, PrecompiledPin],
        **_: Any,
    ) -> Pins:
        self.earlier_locks, self.known_hashes = earlier_locks or {}, known_hashes
        newer = pins_for(PLAN)
        newer = replace(
            newer,
            git={url: GitPin(pin.branch, NEW_COMMIT, "today") for url, pin in newer.git.items()},
            images={name: replace(pin, digest=DIGEST) for name, pin in newer.images.items()},
            checkpoints={
                name: replace(pin, commit=NEW_COMMIT) for name, pin in newer.checkpoints.items()
            },
        )
        pins = known_pins
        for kind in ("git", "precompiled", "images", "checkpoints", "python"):
            for item in missing(wanted_items, pins):
                if item.section != kind:
                    continue
                self.resolved_keys.append(item.key)
                pin = getattr(newer, kind).get(item.key)
                if kind == "python":
                    pin = self._environment(item, pins)
                elif kind == "precompiled":
                    pin = precompiled_pin(item, pins.git[item.key].commit)
                pins = pins | Pins(**{kind: {item.key: pin}})
        return pins

    def _environment(self, item: Any, pins: Pins) -> PythonPin:
        earlier_lock = self.earlier_locks.get(item.key, EarlierLock())
        newest = environment(item, "2.0")
        kept_versions = earlier_lock.pin.versions if earlier_lock.pin else {}
        packages = tuple(
            wheel(package.name, kept_versions[package.name])
            if package.name in kept_versions and package.name not in earlier_lock.moved_packages
            else package
            for package in newest.packages
        )
        trees = {tree.url: pins.git[tree.url].commit for tree in item.trees}
        return replace(newest, packages=packages, trees=trees)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    world = World()
    monkeypatch.setattr(relock, "resolve", world.resolve)
    return world


def moved_packages(*only: str) -> set[tuple[str, str]]:
    """(kind, name) of everything that is different after this."""
    new = relock.relock([PLAN], OLD, only=only, report=print)
    return {(change.kind, change.name) for change in changes(OLD, new)}


def test_without_a_name_everything_is_asked_anew_and_nothing_is_kept(world: World) -> None:
    new = relock.relock([PLAN], OLD, report=print)
    sections = [getattr(OLD, section.name) for section in fields(Pins)]
    assert len(world.resolved_keys) == sum(map(len, sections))
    assert world.earlier_locks == {}
    assert new.python["uv"].versions == {"uv": "2.0"}


def test_one_package_moves_alone_and_an_environment_whole(world: World) -> None:
    assert moved_packages("mistral_common") == {("engine", "mistral-common")}
    assert world.resolved_keys == ["engine"]
    triple = ("flashinfer-python", "flashinfer-cubin", "flashinfer-jit-cache")
    assert moved_packages("flashinfer") == {("engine", name) for name in triple}
    assert moved_packages("tools") == {("tools", name) for name in tools if name != "uv"}


def test_a_new_commit_asks_again_what_its_tree_needs_and_keeps_the_versions(world: World) -> None:
    assert moved_packages("vllm") == {("git", FORK)}
    assert world.resolved_keys == [FORK, FORK, "engine", "engine-build"]
    assert world.earlier_locks["engine"].pin == OLD.python["engine"]


@pytest.mark.parametrize(
    ("name", "kind", "key"),
    [
        ("ghcr.io/open-webui/open-webui", "image", "ghcr.io/open-webui/open-webui:v0.12.4"),
        ("Qwen3.6-35B-A3B-DFlash", "checkpoint", "z-lab/Qwen3.6-35B-A3B-DFlash"),
    ],
)
def test_one_thing_moves_by_the_name_that_people_use(
    world: World, name: str, kind: str, key: str
) -> None:
    assert moved_packages(name) == {(kind, key)}


def test_a_compiled_wheel_that_is_named_is_read_again_and_else_believed(world: World) -> None:
    relock.relock([PLAN], OLD, report=print)
    assert world.known_hashes == OLD.precompiled
    assert moved_packages("precompiled") == set()
    assert (world.resolved_keys[-1], world.known_hashes) == (FORK, {})


def test_an_unknown_name_is_refused_with_the_nearest_one(world: World) -> None:
    with pytest.raises(LockstepError, match="nothing that is locked is called 'flashinfre'") as no:
        moved_packages("flashinfre")
    assert "Did you mean 'flashinfer'?" in str(no.value)
    assert world.resolved_keys == []


def test_what_has_not_moved_keeps_its_date_and_what_nobody_wants_leaves(world: World) -> None:
    images = {name: replace(pin, resolved="then") for name, pin in OLD.images.items()}
    old = replace(OLD, images=images) | Pins(git={"u/gone.git": GitPin("main", 40 * "a")})
    new = relock.relock([PLAN], old, only=["open-webui"], report=print)
    moved_images = {name for name, pin in new.images.items() if pin.resolved != "then"}
    assert moved_images == {"ghcr.io/open-webui/open-webui:v0.12.4"} and len(images) > 1
    assert "u/gone.git" not in new.git


def test_every_kind_of_change_is_one_line() -> None:
    (engine, _) = engine_sets(PLAN.settings)
    old = environment(engine)
    [first, *other_packages] = old.packages
    changed_package = replace(first, sha256=64 * "0")
    new = replace(old, packages=(changed_package, *other_packages[1:], wheel("brand-new", "3.0")))
    model = "z-lab/Qwen3.6-35B-A3B-DFlash"
    revision = OLD.checkpoints[model].asked[:12]
    moved_model = {model: replace(OLD.checkpoints[model], commit=NEW_COMMIT)}
    pins = replace(OLD, python={**OLD.python, "engine": new}) | Pins(checkpoints=moved_model)
    was, now = (f"{revision} {12 * letter}, 1 file, 20.0 GiB" for letter in "cd")
    assert changes(OLD, OLD) == ()
    assert changes(OLD, pins) == (
        LockChange("engine", "brand-new", None, "3.0"),
        LockChange("engine", first.name, f"1.0 {first.sha256[:12]}", "1.0 000000000000"),
        LockChange("engine", other_packages[0].name, "1.0", None),
        LockChange("checkpoint", model, was, now),
    )


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """An inventory whose lock is beside it."""
    lockfile.save(tmp_path / "some.lock.yaml", OLD)
    lock = {"lock": str(tmp_path / "some.lock.yaml")}
    return write_inventory(tmp_path, {"spark1": lock}, "some")


def run(command: str, site: Path, *words: str) -> Any:
    return CliRunner().invoke(main, [command, "-i", str(site), *words])


def test_the_command_writes_the_lock_and_shows_what_moved(world: World, site: Path) -> None:
    result = run("update", site, "uv")
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines()[0].split() == ["what", "name", "was", "is"]
    assert result.stdout.splitlines()[1].split() == ["uv", "uv", "1.0", "2.0"]
    assert result.stdout.endswith("1 change (1 uv); some.lock.yaml written.\n")
    pins = lockfile.load(site.with_name("some.lock.yaml"))
    assert changes(OLD, pins) == (LockChange("uv", "uv", "1.0", "2.0"),)
    again = run("update", site, "uv")
    assert again.stdout == "Nothing has moved; some.lock.yaml is as it was.\n"
    assert run("update", site, "uv", "--check").exit_code == 0
    whole_update = run("update", site).stdout
    assert whole_update.endswith("written: 100.0 GiB of weights, 30.0 GiB of images.\n")


@pytest.mark.parametrize(("words", "code"), [("lock --dry", 0), ("update --check", 1)])
def test_a_look_writes_nothing(world: World, site: Path, words: str, code: int) -> None:
    earlier_lock = site.with_name("some.lock.yaml").read_bytes()
    command, option = words.split()
    result = run(command, site, option, "--json")
    assert result.exit_code == code
    document = json.loads(result.stdout)
    assert document["written"] is False
    assert {"kind": "uv", "name": "uv", "old": "1.0", "new": "2.0"} in document["changes"]
    assert site.with_name("some.lock.yaml").read_bytes() == earlier_lock


def test_what_cannot_be_resolved_leaves_the_lock_alone(
    monkeypatch: pytest.MonkeyPatch, site: Path
) -> None:
    def fail(*_: Any, **__: Any) -> Pins:
        raise ResolveError("the hub shows no such repository", where="org/gone")

    monkeypatch.setattr(relock, "resolve", fail)
    earlier_lock = site.with_name("some.lock.yaml").read_bytes()
    result = run("lock", site)
    assert result.exit_code == 2
    assert "org/gone: the hub shows no such repository" in result.stderr
    assert site.with_name("some.lock.yaml").read_bytes() == earlier_lock


def test_two_locks_in_one_inventory_are_refused() -> None:
    hosts = [spark("spark1", lock="a.lock.yaml"), spark("spark2", lock="b.lock.yaml")]
    message = r"'a\.lock\.yaml' of spark1 and 'b\.lock\.yaml' of spark2"
    with pytest.raises(LockstepError, match=message):
        inventories.lock_path(Path("some.py"), hosts)


def test_an_inventory_has_a_lock_of_its_own_name() -> None:
    for folder in ("/home/me/inventories", "/home/me"):
        target_path = inventories.lock_path(Path(folder, "home.py"), [PLAN])
        assert target_path == Path("/home/me/home.lock.yaml")
    spark_py = Path(__file__).parents[4] / "inventories/spark.py"
    plans = inventories.load(spark_py)
    assert inventories.lock_path(spark_py, plans).name == "lockstep.lock.yaml"
