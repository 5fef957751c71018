"""A deploy's questions to a host: all that its operations read, and no text that it knows."""

from __future__ import annotations

import importlib
from fnmatch import fnmatch
from typing import Any

import pytest
from a_spark import pins_for, spark

from lockstep.deploy.questions import questions
from lockstep.files.managed_file import PEER_AUTHORITY, peer_identity
from lockstep.files.remote_exec import FACTS, reader_name
from lockstep.host.desired_state import DesiredState
from lockstep.inventory.host import HostPlan
from lockstep.onhost.access import peer_tls
from lockstep.onhost.facts.reader_helpers import seal
from lockstep.onhost.records import models_by_boot
from lockstep.resources.files import KEY


def intended_questions(plan: HostPlan) -> tuple[DesiredState, dict[str, object]]:
    desired_state = DesiredState(plan, pins_for(plan))
    return desired_state, questions(desired_state)


def test_every_question_has_its_reader() -> None:
    _, asked_questions = intended_questions(
        spark(fabric={"interfaces": {"enp1s0f0np0": "10.0.0.1/24"}, "netplan": True})
    )
    for name in asked_questions:
        module, _, function = name.partition(".")
        reader = getattr(importlib.import_module(f"{FACTS}.{module}"), function or "read")
        assert callable(reader) and reader_name(reader) == name


def test_what_the_inventory_does_not_want_is_not_asked_for() -> None:
    wants = spark(
        firewall={"enabled": True},
        fabric={"interfaces": {"enp1s0f0np0": "10.0.0.1/24"}, "netplan": True},
        fabric_address="10.0.0.1",
    )
    assert {"firewall", "network.fabric"} <= set(intended_questions(wants)[1])
    assert not {"firewall", "network.fabric"} & set(
        intended_questions(spark(firewall={"enabled": False}))[1]
    )


def test_the_text_of_every_file_is_known_but_of_the_private_ones() -> None:
    desired_state, asked_questions = intended_questions(spark())
    question = asked_questions["files"]
    assert isinstance(question, dict)
    files = {file.path: file for file in desired_state.all_files if not file.private}
    assert len(files) < len(desired_state.all_files)
    assert set(question["shown"]) == set(files)
    for path, text_seal in question["shown"].items():
        assert text_seal == seal(KEY, files[path].text.encode())


def test_every_unit_that_starts_at_boot_is_asked_for() -> None:
    desired_state, asked_questions = intended_questions(
        spark(gpu={"max_clock_mhz": 2100}, firewall={"enabled": False})
    )
    at_boot = {
        file.path.rpartition("/")[2]
        for file in desired_state.all_files
        if file.check == "unit" and "\n[Install]\n" in file.text
    }
    assert "lockstep-gpu-cap.service" in at_boot
    units = asked_questions["units"]["programs"]
    assert isinstance(units, dict)
    assert at_boot <= set(units)


@pytest.mark.parametrize("host", ["spark1", "@ssh/spark", "fe80::1%eth0"])
def test_certificates_of_a_host_that_left_its_cluster_are_found(host: str) -> None:
    files = (PEER_AUTHORITY, peer_identity(peer_tls.AGENT, host))
    question: Any = intended_questions(spark())[1]["files.leftovers"]
    for path in files:
        assert any(fnmatch(path, pattern) for pattern in question["named"]), path


def test_with_each_unit_the_modules_are_named_that_its_service_runs() -> None:
    units = intended_questions(spark())[1]["units"]["programs"]
    assert isinstance(units, dict)
    minimum = "/usr/local/lib/lockstep/lockstep/onhost/switching/memory_watch.py"
    assert minimum in units["lockstep-memory.service"]
    gateway = units["lockstep-gateway.service"]
    assert "/usr/local/lib/lockstep/lockstep/onhost/gateway/server.py" in gateway
    assert minimum not in gateway
    # An engine's program is not ours: its restart key has what it is.
    assert units["vllm-qwen36.service"] == units["docker.service"] == []


def test_the_unit_of_the_next_boot_is_asked_for_where_there_is_one() -> None:
    units = intended_questions(spark(boot="last"))[1]["units"]["programs"]
    assert isinstance(units, dict) and models_by_boot.UNIT in units
