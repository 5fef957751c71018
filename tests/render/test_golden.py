"""Every artefact of two hosts, whole, against the copy in `golden/`.

After a change that is meant: UPDATE_GOLDEN=1 .venv/bin/pytest tests/render/test_golden.py
and read the difference in git before committing it.
"""

from __future__ import annotations

import os
import shutil

import pytest
from example import GOLDEN, HOSTS, rendered, steady

from lockstep.units.gateway_unit import PAGE


@pytest.mark.parametrize("host", HOSTS)
def test_artefacts_are_exactly_the_golden_ones(host: str) -> None:
    folder = GOLDEN / host
    # The page is the same on all hosts; tests of its own look at it.
    found = {path: steady(file.text) for path, file in rendered(host).items() if path != PAGE}
    if os.environ.get("UPDATE_GOLDEN"):
        shutil.rmtree(folder, ignore_errors=True)
        for path, text in found.items():
            (folder / path.lstrip("/")).parent.mkdir(parents=True, exist_ok=True)
            (folder / path.lstrip("/")).write_text(text, encoding="utf-8")
    golden = {
        f"/{path.relative_to(folder)}": path.read_text(encoding="utf-8")
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
    assert sorted(found) == sorted(golden)
    for path, text in found.items():
        assert text == golden[path], path


def test_who_may_read_what_and_which_step_writes_it() -> None:
    table = {path: (file.mode, file.check, file.stage) for path, file in rendered("spark").items()}
    assert table == {
        "/etc/systemd/system/ssh.service.d/60-lockstep.conf": ("0644", None, "base"),
        "/etc/systemd/system/user.slice.d/60-lockstep.conf": ("0644", None, "base"),
        "/etc/systemd/system/system.slice.d/60-lockstep.conf": ("0644", None, "base"),
        "/etc/systemd/system/system-lockstep.slice.d/60-lockstep.conf": ("0644", None, "base"),
        "/etc/default/earlyoom": ("0644", None, "base"),
        "/etc/sysctl.d/60-lockstep.conf": ("0644", None, "base"),
        "/etc/logrotate.d/lockstep": ("0644", None, "base"),
        "/etc/lockstep/docker/config.json": ("0644", "json", "base"),
        "/etc/lockstep/firewall.nft": ("0644", "nft", "firewall"),
        "/etc/systemd/system/lockstep-firewall.service": ("0644", "unit", "firewall"),
        "/etc/lockstep/targets.json": ("0644", "json", "services"),
        "/data/scripts/llm/switch.sh": ("0755", "shell", "switch"),
        "/data/scripts/vllm/qwen36-launch.sh": ("0755", "shell", "services"),
        "/data/scripts/llm/sglang-mistral4-launch.sh": ("0755", "shell", "services"),
        "/data/scripts/llm/sglang-mistral4-fallback-launch.sh": ("0755", "shell", "services"),
        "/data/scripts/vllm/qwen36-PRODUCTION.sh": ("0755", "shell", "switch"),
        "/data/scripts/llm/start-mistral.sh": ("0755", "shell", "switch"),
        "/etc/systemd/system/vllm-qwen36.service": ("0644", "unit", "services"),
        "/etc/systemd/system/sglang-mistral4.service": ("0644", "unit", "services"),
        "/etc/systemd/system/sglang-mistral4-fallback.service": ("0644", "unit", "services"),
        "/etc/systemd/system/vllm.service": ("0644", "unit", "services"),
        "/etc/lockstep/gateway.json": ("0644", "json", "gateway"),
        "/etc/lockstep/gateway.html": ("0644", None, "gateway"),
        "/etc/systemd/system/lockstep-gateway-switch.socket": ("0644", "unit", "gateway"),
        "/etc/systemd/system/lockstep-gateway-switch@.service": ("0644", "unit", "gateway"),
        "/etc/systemd/system/lockstep-gateway.service": ("0644", "unit", "gateway"),
        "/etc/systemd/system/lockstep-gateway.socket": ("0644", "unit", "gateway"),
        "/etc/systemd/system/open-webui.service": ("0644", "unit", "webui"),
        "/etc/systemd/system/lockstep-boot.service": ("0644", "unit", "switch"),
        "/etc/systemd/system/lockstep-memory.service": ("0644", "unit", "switch"),
        "/etc/systemd/system/lockstep-wedge.service": ("0644", "unit", "switch"),
        "/etc/systemd/system/lockstep-wedge.timer": ("0644", "unit", "switch"),
        "/etc/systemd/system/lockstep-sense.service": ("0644", "unit", "switch"),
        "/etc/systemd/system/lockstep-sense.timer": ("0644", "unit", "switch"),
        "/etc/sudoers.d/lockstep": ("0440", "sudoers", "switch"),
        "/etc/needrestart/conf.d/lockstep.conf": ("0644", None, "base"),
    }


def test_a_file_that_may_hold_a_proxy_password_is_private() -> None:
    files = rendered("site")
    written = ("pa%24$word", "pa$$word")
    holding = {
        path
        for path, file in files.items()
        if any(word in file.text.replace("\\", "") for word in written)
    }
    assert holding == {"/etc/apt/auth.conf.d/60lockstep.conf", "/etc/lockstep/proxy.env"}
    assert {files[path].mode for path in holding} == {"0600"}
