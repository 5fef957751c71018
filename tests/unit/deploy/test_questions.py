"""What a deploy asks of a host: everything that its operations read, and no text that it knows."""

from __future__ import annotations

import hashlib
import importlib

from a_spark import pins_for, spark

from lockstep.deploy.questions import questions
from lockstep.files.sent import FACTS, named
from lockstep.host.intended import Intended
from lockstep.inventory.host import HostPlan
from lockstep.onhost.records import boots


def asked(plan: HostPlan) -> tuple[Intended, dict[str, object]]:
    this = Intended(plan, pins_for(plan))
    return this, questions(this)


def test_every_question_has_its_reader() -> None:
    _, found = asked(spark(fabric={"interfaces": {"enp1s0f0np0": "10.0.0.1/24"}, "netplan": True}))
    for name in found:
        module, _, function = name.partition(".")
        reader = getattr(importlib.import_module(f"{FACTS}.{module}"), function or "read")
        assert callable(reader) and named(reader) == name


def test_what_the_inventory_does_not_want_is_not_asked_for() -> None:
    wants = spark(
        firewall={"enabled": True},
        fabric={"interfaces": {"enp1s0f0np0": "10.0.0.1/24"}, "netplan": True},
        fabric_address="10.0.0.1",
    )
    assert {"firewall", "network.fabric"} <= set(asked(wants)[1])
    assert not {"firewall", "network.fabric"} & set(asked(spark(firewall={"enabled": False}))[1])


def test_the_text_of_every_file_is_known_but_of_the_private_ones() -> None:
    this, found = asked(spark())
    question = found["files"]
    assert isinstance(question, dict)
    files = {file.path: file for file in this.all_files if not file.private}
    assert len(files) < len(this.all_files)
    assert set(question["known"]) == set(files)
    for path, digest in question["known"].items():
        assert digest == hashlib.sha256(files[path].text.encode()).hexdigest()


def test_every_unit_that_starts_at_boot_is_asked_for() -> None:
    this, found = asked(spark(gpu={"max_clock_mhz": 2100}, firewall={"enabled": False}))
    at_boot = {
        file.path.rpartition("/")[2]
        for file in this.all_files
        if file.check == "unit" and "\n[Install]\n" in file.text
    }
    assert "lockstep-gpu-cap.service" in at_boot
    units = found["units"]
    assert isinstance(units, dict)
    assert at_boot <= set(units)


def test_with_each_unit_the_modules_are_named_that_its_service_runs() -> None:
    units = asked(spark())[1]["units"]
    assert isinstance(units, dict)
    floor = "/usr/local/lib/lockstep/lockstep/onhost/switching/memory_floor.py"
    assert floor in units["lockstep-memory.service"]
    gateway = units["lockstep-gateway.service"]
    assert "/usr/local/lib/lockstep/lockstep/onhost/gateway/server.py" in gateway
    assert floor not in gateway
    # An engine's program is not ours: its restart key has what it is.
    assert units["vllm-qwen36.service"] == units["docker.service"] == []


def test_the_unit_of_the_next_boot_is_asked_for_where_there_is_one() -> None:
    units = asked(spark(boot="last"))[1]["units"]
    assert isinstance(units, dict) and boots.UNIT in units
