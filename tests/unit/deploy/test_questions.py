"""A deploy's questions to a host: all that its operations read, and no text that it knows."""

import importlib
from fnmatch import fnmatch
from typing import Any

from a_spark import pins_for, spark

from lockstep.deploy.questions import questions
from lockstep.files.managed_file import PEER_AUTHORITY, peer_identity
from lockstep.files.remote_exec import FACTS, reader_name
from lockstep.host.desired_state import DesiredState
from lockstep.onhost.access import peer_tls
from lockstep.onhost.facts.reader_helpers import seal
from lockstep.onhost.records import models_by_boot
from lockstep.resources.files import KEY


def intended_questions(**data: Any) -> tuple[DesiredState, dict[str, Any]]:
    plan = spark(**data)
    desired_state = DesiredState(plan, pins_for(plan))
    return desired_state, questions(desired_state)


def test_every_question_has_its_reader_and_needs_no_asking_where_nothing_is_wanted() -> None:
    fabric = {"interfaces": {"enp1s0f0np0": "10.0.0.1/24"}, "netplan": True}
    _, asked_questions = intended_questions(
        firewall={"enabled": True}, fabric=fabric, fabric_address="10.0.0.1"
    )
    for name in asked_questions:
        module, _, function = name.partition(".")
        reader = getattr(importlib.import_module(f"{FACTS}.{module}"), function or "read")
        assert callable(reader) and reader_name(reader) == name
    unwanted_questions = {"firewall", "network.fabric"}
    assert unwanted_questions <= set(asked_questions)
    assert not unwanted_questions & set(intended_questions(firewall={"enabled": False})[1])


def test_the_text_of_every_file_is_known_but_of_the_private_ones() -> None:
    desired_state, asked_questions = intended_questions()
    files = {file.path: file for file in desired_state.all_files if not file.private}
    assert len(files) < len(desired_state.all_files)
    seals = {path: seal(KEY, file.text.encode()) for path, file in files.items()}
    assert asked_questions["files"]["shown"] == seals


def test_certificates_of_a_host_that_left_its_cluster_are_found() -> None:
    for host in ("spark1", "@ssh/spark", "fe80::1%eth0"):
        question = intended_questions()[1]["files.leftovers"]
        for path in (PEER_AUTHORITY, peer_identity(peer_tls.AGENT, host)):
            assert any(fnmatch(path, pattern) for pattern in question["named"]), path


def test_every_unit_of_a_boot_is_asked_for_with_the_modules_that_its_service_runs() -> None:
    desired_state, asked_questions = intended_questions(
        gpu={"max_clock_mhz": 2100}, firewall={"enabled": False}, boot="last"
    )
    at_boot = {
        file.path.rpartition("/")[2]
        for file in desired_state.all_files
        if file.check == "unit" and "\n[Install]\n" in file.text
    }
    assert "lockstep-gpu-cap.service" in at_boot
    units = asked_questions["units"]["programs"]
    assert {*at_boot, models_by_boot.UNIT} <= set(units)
    watch = "/usr/local/lib/lockstep/lockstep/onhost/switching/memory_watch.py"
    assert watch in units["lockstep-memory.service"]
    gateway = units["lockstep-gateway.service"]
    assert "/usr/local/lib/lockstep/lockstep/onhost/gateway/server.py" in gateway
    assert watch not in gateway
    # An engine's program is not ours: its restart key has what it is.
    assert units["vllm-qwen36.service"] == units["docker.service"] == []
