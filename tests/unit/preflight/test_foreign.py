"""Preflight asks for all that a deploy would touch, and refuses what is somebody else's there."""

from __future__ import annotations

from a_spark import findings, pins_for, spark

from lockstep.core.findings import FATAL
from lockstep.host.desired_state import DesiredState
from lockstep.preflight import foreign

PLAN = spark(adopt=("unit vllm",), fabric={"interfaces": {"enp1": "10.0.0.1/24"}, "netplan": True})
PINS = pins_for(PLAN)


def test_every_file_unit_folder_link_and_account_is_asked_for() -> None:
    question = foreign.question(DesiredState(PLAN, PINS))
    files = {file["path"]: file["check"] for file in question["files"]}
    for path, check in (
        ("/etc/systemd/system/vllm.service", "unit"),
        ("/etc/systemd/system/lockstep-gateway-switch@.service", "unit"),
        ("/etc/systemd/system/open-webui.service", "unit"),
        ("/data/scripts/llm/switch.sh", "shell"),
        ("/data/scripts/vllm/qwen36-launch.sh", "shell"),
        ("/etc/netplan/40-cx7.yaml", None),
        ("/etc/default/earlyoom", None),
        ("/etc/sudoers.d/lockstep", "sudoers"),
        ("/etc/lockstep/secrets/open-webui.env", None),
    ):
        assert files[path] == check
    folders = {folder["path"]: folder["owner"] for folder in question["folders"]}
    assert folders["/data/models"] == "root"
    assert folders["/opt/lockstep/engines"] == "lockstep"
    assert (question["links"], question["accounts"]) == (
        ["/usr/local/bin/uv"],
        ["lockstep", "lockstep-gateway"],
    )
    assert question["adopt"] == ["unit vllm"]


def test_each_thing_of_somebody_elses_is_an_error_that_nothing_waives() -> None:
    foreign_facts = {
        "/data/models": "mode 0775, of me:me; it would be 0755, of root:root",
        "unit vllm.service": "/usr/lib/systemd/system/vllm.service, of package vllm",
        "account lockstep": "uid 1001, home /home/lockstep",
    }
    foreign_findings = [
        item for item in findings(PLAN, foreign=foreign_facts) if item.code == "not-ours"
    ]
    assert [item.severity for item in foreign_findings] == ["error"] * 3
    assert foreign_findings[0].message == (
        "/data/models was not made by Lockstep (mode 0775, of me:me; it would be 0755, of "
        "root:root), and the deploy would replace or change it"
    )
    assert [item.remedy.partition(",")[0] for item in foreign_findings] == [
        "Move it away",
        "Give the model another `unit`",
        "Set `service_user` to another name",
    ]
    assert foreign_findings[1].remedy.endswith('`"adopt": ("unit vllm.service",)` for this host.')
    assert "not-ours" in FATAL
