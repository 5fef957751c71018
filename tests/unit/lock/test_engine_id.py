"""The engine's name changes with what is inside it, and with nothing else."""

from __future__ import annotations

from dataclasses import replace

import pytest
from a_spark import compiled, environment

from lockstep.core.errors import ResolveError
from lockstep.inventory.settings import Settings, Sources, VenvEngine
from lockstep.lock.engine_id import engine_id
from lockstep.lock.packages import engine_precompiled, engine_repositories, engine_sets
from lockstep.lock.pins import GitPin, Pins

SETTINGS = Settings(name="spark", targets={})


def record(settings: Settings, version: str = "1.0", commit: str = "a" * 40) -> Pins:
    python = {item.key: environment(item, version, commit) for item in engine_sets(settings)}
    git = {
        item.url: GitPin(item.branch, item.commit or commit)
        for item in engine_repositories(settings)
    }
    wheels = {item.key: compiled(item, commit) for item in engine_precompiled(settings)}
    return Pins(python=python, git=git, precompiled=wheels)


def named(settings: Settings = SETTINGS, **changes: str) -> str:
    return engine_id(settings, record(settings, **changes))


PINNED = f"transformers @ git+https://github.com/huggingface/transformers.git@{40 * 'c'}"


def test_it_is_twelve_hexadecimal_digits_and_stays() -> None:
    assert len(named()) == 12 and int(named(), 16) >= 0
    assert named() == named()


def test_every_part_of_the_environment_changes_it() -> None:
    engine = SETTINGS.engine
    changed = [
        named(version="1.1"),
        named(commit="b" * 40),
        named(replace(SETTINGS, python="3.13")),
        named(replace(SETTINGS, engine=replace(engine, commit="c" * 40))),
        named(replace(SETTINGS, engine=replace(engine, transformers=PINNED))),
        named(replace(SETTINGS, engine=replace(engine, precompiled=False))),
        named(replace(SETTINGS, engine=replace(engine, precompiled_commit=40 * "c"))),
        named(replace(SETTINGS, engine=replace(engine, build_environment={"MAX_JOBS": "4"}))),
        named(replace(SETTINGS, engine=replace(engine, flashinfer=False))),
        named(replace(SETTINGS, engine=VenvEngine(git=None, release="vllm==0.32.0"))),
    ]
    assert len({named(), *changed}) == len(changed) + 1


def test_where_it_comes_from_does_not() -> None:
    mirror = Sources(python_index="http://10.0.0.5/simple", git={"https://": "git://mirror/"})
    assert named(replace(SETTINGS, sources=mirror)) == named()


def test_an_unresolved_part_is_refused() -> None:
    whole = record(SETTINGS)
    with pytest.raises(ResolveError, match="not resolved"):
        engine_id(SETTINGS, Pins(python=whole.python))
    with pytest.raises(ResolveError, match="not resolved"):
        engine_id(SETTINGS, Pins(git=whole.git))
    with pytest.raises(ResolveError, match="the fork's compiled wheel is not resolved"):
        engine_id(SETTINGS, replace(whole, precompiled={}))
