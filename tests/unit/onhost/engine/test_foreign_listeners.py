"""An engine's port: only processes of its unit or its container may listen there."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from a_model import model
from onhost_fakes import LOOPBACK, host_root, let_listen, put_in_container

from lockstep.onhost.core import layout
from lockstep.onhost.engine import foreign_listeners

MODEL = model(unit="vllm.service", url="http://127.0.0.1:30001")
EVERYWHERE, OTHER = "00000000", "0200007F"


@pytest.fixture
def paths(tmp_path: Path) -> layout.Paths:
    return host_root(tmp_path, {})


def test_the_unit_s_own_process_is_no_stranger_and_one_that_listens_no_more_is_none(
    paths: layout.Paths,
) -> None:
    assert foreign_listeners.foreign_listener_texts(MODEL, paths) == []
    assert foreign_listeners.impostor_texts(MODEL, paths) == ["a process that listens no more"]
    let_listen(paths, 78, "/system.slice/vllm.service")
    assert (
        foreign_listeners.foreign_listener_texts(MODEL, paths)
        == foreign_listeners.impostor_texts(MODEL, paths)
        == []
    )


@pytest.mark.parametrize("address", [LOOPBACK, EVERYWHERE])
def test_a_process_of_another_unit_is_named(paths: layout.Paths, address: str) -> None:
    let_listen(paths, 77, "/user.slice/user-1001.slice/session-3.scope", address)
    assert foreign_listeners.foreign_listener_texts(MODEL, paths) == [
        "python3 (process 77 of root)"
    ]


def test_a_process_in_its_container_is_none(paths: layout.Paths) -> None:
    let_listen(paths, 79, "/system.slice/docker-0123.scope")
    put_in_container(paths, "vllm-qwen36", 79)
    assert (
        foreign_listeners.foreign_listener_texts(replace(MODEL, container="vllm-qwen36"), paths)
        == []
    )
    assert foreign_listeners.foreign_listener_texts(MODEL, paths) == [
        "python3 (process 79 of root)"
    ]


def test_a_process_of_a_model_that_is_stopped_before_is_none(paths: layout.Paths) -> None:
    let_listen(paths, 83, "/system.slice/vllm-other.service")
    hot = replace(MODEL, name="other", unit="vllm-other.service")
    assert foreign_listeners.foreign_listener_texts(MODEL, paths, [hot]) == []


def test_another_address_of_that_port_is_not_asked(paths: layout.Paths) -> None:
    let_listen(paths, 80, "/user.slice", OTHER)
    assert foreign_listeners.foreign_listener_texts(MODEL, paths) == []


def test_a_rank_without_an_address_has_no_port(paths: layout.Paths) -> None:
    let_listen(paths, 81, "/user.slice")
    assert foreign_listeners.foreign_listener_texts(replace(MODEL, url=""), paths) == []


def test_what_cannot_be_read_is_no_process_of_the_unit(paths: layout.Paths) -> None:
    let_listen(paths, 82, "/system.slice/vllm.service")
    (paths.proc / "82" / "fd" / "3").unlink()
    assert foreign_listeners.foreign_listener_texts(MODEL, paths) == ["a process of root"]
