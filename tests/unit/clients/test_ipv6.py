"""Hosts by IPv6 addresses: each URL that is printed or written down is one that programs parse."""

import itertools
import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from click.testing import CliRunner

from lockstep.cli.main import main
from lockstep.clients.programs import PROGRAMS
from lockstep.deploy.checked import stand_ins
from lockstep.fleet.hosts import choose
from lockstep.monitoring.stack import monitoring_files
from lockstep.units.all_files import deployed_files
from lockstep.units.tls_unit import tls_files

INVENTORY = """\
from group_data.all import models as _models
from lockstep.deploy.checked import checked

def _spark(address, other):
    return (address, {{
        "ssh_user": "anna", "operators": ("anna",), "fabric_address": address,
        "gateway": {{{gateway}, "peers": (other,)}}, "webui": {{"bind": address}},
        "monitoring": {{"enabled": True, "bind": "fabric", "prometheus": True}},
        "models": {{name: {{**model, "bind": {bind}}} for name, model in _models.items()}},
    }})

sparks = checked(__file__, [_spark("fd00::12", "fd00::13"), _spark("fd00::13", "fd00::12")])
"""
# The address before a port, and not in brackets.
BARE = re.compile(r"(?<![\[\w:])fd00::1[23]:\d{2,5}\b")
URL = re.compile(r"\bhttps?://[^\s\"'<>`,)]*fd00[^\s\"'<>`,)]*")


def printed_texts(folder: Path) -> Iterator[tuple[str, str]]:
    """Command or page → its text."""
    inventory = folder / "sparks.py"
    every, _ = choose(inventory)
    pins = stand_ins([host.plan for host in every])
    for plan in (host.plan for host in every):
        files = deployed_files(plan, pins, engine_id="0"), tls_files(plan), monitoring_files(plan)
        for file in itertools.chain(*files):
            if not file.path.endswith(".py"):
                yield file.path, file.text
    for words in (*(["client", name] for name in PROGRAMS), ["open", "--print"], ["plan"]):
        yield " ".join(words), CliRunner().invoke(main, [*words, "-i", str(inventory)]).output


@pytest.mark.parametrize("tls", [True, False])
def test_every_url_of_hosts_by_ipv6_addresses_can_be_parsed(tmp_path: Path, tls: bool) -> None:
    gateway = '"bind": address, ' + ('"tls": "own"' if tls else '"plain": True')
    text = INVENTORY.format(gateway=gateway, bind='"::1"' if tls else "address")
    (tmp_path / "sparks.py").write_text(text)
    urls: dict[str, list[str]] = {}
    for source, output in printed_texts(tmp_path):
        assert not BARE.search(output), (source, BARE.search(output))
        urls |= {source: URL.findall(output)}
        for url in urls[source]:
            parts = urlsplit(url)
            assert parts.hostname in ("fd00::12", "fd00::13") and parts.port, (source, url)
    assert all(urls[f"client {name}"] for name in PROGRAMS) and urls["open --print"]
    assert urls["/etc/lockstep/Caddyfile" if tls else "open --print"]
