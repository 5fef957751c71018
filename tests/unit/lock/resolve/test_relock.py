"""A new lock from an old one: what moves, what stays, and what is shown of it."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from a_spark import pins_for, spark, wheel
from an_inventory import write_inventory
from click.testing import CliRunner

from lockstep.cli.main import main
from lockstep.core.errors import LockstepError, ResolveError
from lockstep.inventory import inventory_file as inventories
from lockstep.lock import lockfile
from lockstep.lock.lockdiff import LockChange, changes
from lockstep.lock.pins import GitPin, Pins, PrecompiledPin
from lockstep.lock.resolve import EarlierLock, relock

PLAN = spark()
OLD = pins_for(PLAN)
FORK = "https://github.com/juliendenize/vllm.git"
NEW_COMMIT = 40 * "d"
DIGEST = "sha256:" + 64 * "d"


class Resolver:
    """Stands in for the sources: what it was asked for, and the lock that it gives."""

    kept_pins, new = Pins(), OLD
    earlier_locks: Mapping[str, EarlierLock]
    known_hashes: Mapping[str, PrecompiledPin]

    def resolve(self, items: Any, pins: Pins, *, earlier_locks: Any, known_hashes: Any, **_: Any):
        self.kept_pins, self.earlier_locks, self.known_hashes = pins, earlier_locks, known_hashes
        return self.new

    def asked_again(self, *names: str) -> set[tuple[str, str]]:
        """Section and key of what is not kept while these move."""
        relock.relock([PLAN], OLD, only=names, report=print)
        return {*OLD.entries} - {*self.kept_pins.entries}


@pytest.fixture
def resolver(monkeypatch: pytest.MonkeyPatch) -> Resolver:
    resolver = Resolver()
    monkeypatch.setattr(relock, "resolve", resolver.resolve)
    return resolver


def test_without_a_name_everything_is_asked_anew_and_nothing_is_kept(resolver: Resolver):
    assert resolver.asked_again() == {*OLD.entries}
    assert resolver.earlier_locks == {}
    # The hash of a compiled wheel is believed, while it is what it was.
    assert resolver.known_hashes == OLD.precompiled


def test_one_package_moves_alone_and_an_environment_whole(resolver: Resolver):
    triple = {"flashinfer-python", "flashinfer-cubin", "flashinfer-jit-cache"}
    for name, packages in (("mistral_common", {"mistral-common"}), ("flashinfer", triple)):
        assert resolver.asked_again(name) == {("python", "engine")}
        moving = EarlierLock(OLD.python["engine"], frozenset(packages))
        assert resolver.earlier_locks["engine"] == moving
    assert resolver.asked_again("tools") == {("python", "tools")}
    assert "tools" not in resolver.earlier_locks


@pytest.mark.parametrize(
    ("name", "section", "key"),
    [
        ("vllm", "git", FORK),
        ("precompiled", "precompiled", FORK),
        ("ghcr.io/open-webui/open-webui", "images", "ghcr.io/open-webui/open-webui:v0.12.4"),
        ("Qwen3.6-35B-A3B-DFlash", "checkpoints", "z-lab/Qwen3.6-35B-A3B-DFlash"),
    ],
)
def test_one_thing_moves_by_the_name_that_people_use(resolver, name: str, section: str, key: str):
    assert resolver.asked_again(name) == {(section, key)}
    # Packages keep their versions, also where the needs of a tree have changed.
    assert resolver.earlier_locks["engine"] == EarlierLock(OLD.python["engine"])
    # A wheel that is named is read again for its hash.
    assert (resolver.known_hashes == {}) is (name == "precompiled")


def test_an_unknown_name_is_refused_with_the_nearest_one(resolver: Resolver):
    with pytest.raises(LockstepError, match="nothing that is locked is called 'flashinfre'") as no:
        resolver.asked_again("flashinfre")
    assert "Did you mean 'flashinfer'?" in str(no.value)
    assert resolver.kept_pins == Pins()


def test_what_has_not_moved_keeps_its_date_and_what_nobody_wants_leaves(resolver: Resolver):
    images = {name: replace(pin, resolved="then") for name, pin in OLD.images.items()}
    old = replace(OLD, images=images) | Pins(git={"u/gone.git": GitPin("main", 40 * "a")})
    moved_image, *_ = OLD.images
    resolver.new = OLD | Pins(images={moved_image: replace(OLD.images[moved_image], digest=DIGEST)})
    new = relock.relock([PLAN], old, report=print)
    assert {name for name, pin in new.images.items() if pin.resolved != "then"} == {moved_image}
    assert "u/gone.git" not in new.git


def test_every_kind_of_change_is_one_line() -> None:
    old = OLD.python["engine"]
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
def site(tmp_path: Path, resolver: Resolver) -> Path:
    """An inventory whose lock is beside it, and of which a package and a model have moved."""
    newer = replace(OLD.python["uv"], packages=(wheel("uv", "2.0"),))
    model, pin = next(iter(OLD.checkpoints.items()))
    checkpoints = {model: replace(pin, commit=NEW_COMMIT)}
    resolver.new = OLD | Pins(python={"uv": newer}, checkpoints=checkpoints)
    lockfile.save(tmp_path / "some.lock.yaml", OLD)
    lock = {"lock": str(tmp_path / "some.lock.yaml")}
    return write_inventory(tmp_path, {"spark1": lock}, "some")


def run(command: str, site: Path, *words: str) -> Any:
    return CliRunner().invoke(main, [command, "-i", str(site), *words])


def test_the_command_writes_the_lock_and_shows_what_moved(site: Path):
    result = run("update", site, "uv")
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines()[1].split() == ["uv", "uv", "1.0", "2.0"]
    end = "2 changes (1 uv, 1 checkpoint); some.lock.yaml written: 20.0 GiB of weights.\n"
    assert result.stdout.endswith(end)
    pins = lockfile.load(site.with_name("some.lock.yaml"))
    assert changes(OLD, pins)[0] == LockChange("uv", "uv", "1.0", "2.0")
    again = run("update", site, "uv")
    assert again.stdout == "Nothing has moved; some.lock.yaml is as it was.\n"
    assert run("update", site, "uv", "--check").exit_code == 0


@pytest.mark.parametrize(("words", "code"), [("lock --dry", 0), ("update --check", 1)])
def test_a_look_writes_nothing(site: Path, words: str, code: int):
    earlier_lock = site.with_name("some.lock.yaml").read_bytes()
    command, option = words.split()
    result = run(command, site, option, "--json")
    assert result.exit_code == code
    document = json.loads(result.stdout)
    assert document["written"] is False
    assert {"kind": "uv", "name": "uv", "old": "1.0", "new": "2.0"} in document["changes"]
    assert site.with_name("some.lock.yaml").read_bytes() == earlier_lock


def test_what_cannot_be_resolved_leaves_the_lock_alone(monkeypatch, site: Path):
    def fail(*_: Any, **__: Any) -> Pins:
        raise ResolveError("the hub shows no such repository", where="org/gone")

    monkeypatch.setattr(relock, "resolve", fail)
    earlier_lock = site.with_name("some.lock.yaml").read_bytes()
    result = run("lock", site)
    assert result.exit_code == 2
    assert "org/gone: the hub shows no such repository" in result.stderr
    assert site.with_name("some.lock.yaml").read_bytes() == earlier_lock


def test_an_inventory_has_a_lock_of_its_own_name() -> None:
    for folder in ("/home/me/inventories", "/home/me"):
        path = inventories.lock_path(Path(folder, "home.py"), [PLAN])
        assert path == Path("/home/me/home.lock.yaml")
