"""`systemd-analyze security` of each unit, against the table of docs/security.md.

After a change that is meant, this test says the new figure: put it into the table.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import pair
import pytest
from a_spark import spark
from example import REPOSITORY, rendered_files, steady
from tools import run

from lockstep.files.managed_file import ManagedFile
from lockstep.inventory.cluster_join import join_clusters
from lockstep.inventory.host import HostPlan
from lockstep.monitoring.stack import monitoring_files
from lockstep.units.backup_peer import peer_files
from lockstep.units.backup_unit import backup_units
from lockstep.units.tls_unit import tls_files

YOURS = {"certificate": "/etc/ssl/spark.pem", "key": "/etc/ssl/spark.key"}
ROW = re.compile(r"^\| `([\w@-]+)\.service`[^|]*\| (\d+\.\d) \|", re.MULTILINE)
#: Unit → the figure of the table.
DOCUMENTED_FIGURES = {
    name: float(figure)
    for name, figure in ROW.findall((REPOSITORY / "docs/security.md").read_text(encoding="utf-8"))
}


def plan(**data: object) -> HostPlan:
    """The first of two hosts with these keys, which are off in the examples."""
    plans = [spark(f"spark{n}", fabric_address=f"10.77.0.{n}", **data) for n in (1, 2)]
    return join_clusters(plans, "site.py")[0]


def files() -> Iterator[ManagedFile]:
    """Yield every file that a deploy may write."""
    for host_files in (rendered_files("spark"), pair.rank_files(0), pair.rank_files(1)):
        yield from host_files.values()
    for tls in ("own", YOURS):
        yield from tls_files(plan(gateway={"bind": "0.0.0.0", "tls": tls}))
    yield from monitoring_files(plan(monitoring={"enabled": True, "bind": "fabric"}))
    backup_plan = plan(backup={"enabled": True, "to": ("peer",)})
    yield from (*backup_units(backup_plan), *peer_files(backup_plan))


# What several hosts have is judged once.
SERVICES = {
    (Path(file.path).stem, steady(file.text)): file.text
    for file in files()
    if file.path.endswith(".service")
}


def row(unit: str) -> str:
    """The row of the table that is about a unit."""
    # A docker client is one like the other, and so is what receives from a host.
    if unit.startswith("lockstep-netconsole-"):
        return "lockstep-netconsole-HOST"
    return "vllm-qwen36" if unit.startswith(("vllm-", "sglang-")) else unit


@pytest.mark.parametrize(
    ("unit", "text"),
    [(unit, text) for (unit, _), text in SERVICES.items()],
    ids=[unit for unit, _ in SERVICES],
)
def test_no_unit_is_more_exposed_than_documented(unit: str, text: str, tmp_path: Path) -> None:
    path = tmp_path / f"{unit}.service"
    path.write_text(text, encoding="utf-8")
    result = run(["systemd-analyze", "security", "--offline=true", "--no-pager", path])
    match = re.search(r"Overall exposure level for \S+: (\d+\.\d)", result.stdout)
    assert match, result.stdout + result.stderr
    assert float(match[1]) <= DOCUMENTED_FIGURES[row(unit)]


def test_the_table_has_no_unit_that_is_not_there() -> None:
    assert set(DOCUMENTED_FIGURES) == {row(unit) for unit, _ in SERVICES}
