"""`systemd-analyze security` of each unit, against the table of docs/security.md.

After a change that is meant, this test says the new figure: put it into the table.
"""

import re
from pathlib import Path

import pair
import pytest
from a_spark import spark
from example import HOSTS, REPOSITORY, rendered_files, steady
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


def documented_figures() -> dict[str, float]:
    """Unit → the figure of the table."""
    text = (REPOSITORY / "docs/security.md").read_text(encoding="utf-8")
    return {name: float(figure) for name, figure in ROW.findall(text)}


def figure(unit: Path) -> float:
    """Overall exposure, 0 (best) to 10, judged from the file alone."""
    result = run(["systemd-analyze", "security", "--offline=true", "--no-pager", unit])
    match = re.search(r"Overall exposure level for \S+: (\d+\.\d)", result.stdout)
    assert match, result.stdout + result.stderr
    return float(match[1])


def plan(**data: object) -> HostPlan:
    """The first of two hosts with these keys, which are off in the examples."""
    plans = [spark(f"spark{n}", fabric_address=f"10.77.0.{n}", **data) for n in (1, 2)]
    return join_clusters(plans, "site.py")[0]


def by_path(*files: ManagedFile) -> dict[str, ManagedFile]:
    return {file.path: file for file in files}


def services() -> dict[str, str]:
    """Name of every service that a deploy writes, with a host that has it → its text."""
    hosts = {host: rendered_files(host) for host in HOSTS}
    hosts |= {f"pair-{rank}": pair.rank_files(rank) for rank in (0, 1)}
    for kind, tls in (("own", "own"), ("yours", YOURS)):
        hosts[kind] = by_path(*tls_files(plan(gateway={"bind": "0.0.0.0", "tls": tls})))
    monitored_plan = plan(monitoring={"enabled": True, "bind": "fabric"})
    hosts["monitored"] = by_path(*monitoring_files(monitored_plan))
    backup_plan = plan(backup={"enabled": True, "to": ("peer",)})
    hosts["backed up"] = by_path(*backup_units(backup_plan), *peer_files(backup_plan))
    every = [
        (Path(path).name, file.text, host)
        for host, files in hosts.items()
        for path, file in files.items()
        if path.endswith(".service")
    ]
    # What several hosts have is judged once.
    once = {(name, steady(text)): (text, host) for name, text, host in every}
    return {f"{host}:{name}": text for (name, _), (text, host) in once.items()}


def row(unit: str) -> str:
    """The row of the table that is about a unit."""
    # A docker client is one like the other, and so is what receives from a host.
    if unit.startswith("lockstep-netconsole-"):
        return "lockstep-netconsole-HOST"
    return "vllm-qwen36" if unit.startswith(("vllm-", "sglang-")) else unit


@pytest.mark.parametrize("name", services())
def test_no_unit_is_more_exposed_than_documented(name: str, tmp_path: Path) -> None:
    unit = tmp_path / name.partition(":")[2]
    unit.write_text(services()[name], encoding="utf-8")
    assert figure(unit) <= documented_figures()[row(unit.stem)]


def test_the_table_has_no_unit_that_is_not_there() -> None:
    assert set(documented_figures()) == {
        row(Path(name.partition(":")[2]).stem) for name in services()
    }
