"""The whole deploy.py through the real pyinfra command, on two Sparks in memory."""

from __future__ import annotations

import copy
import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from a_spark import pins_for, spark
from fake_spark import HOSTS

from lockstep import pins

REPOSITORY = Path(__file__).parents[2]
PYINFRA = Path(sys.executable).with_name("pyinfra")
PARTS = ("config.py", "deploy.py", "lockstep", "tasks", "templates", "catalogue", "group_data")

INVENTORY = """\
import fake_spark
from lockstep.inventory import checked
fake_spark.install()
site = checked(__file__, [(name, {"operators": ("spark",)}) for name in fake_spark.HOSTS])
"""


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what a deploy reads, with an inventory of two Sparks in memory."""
    folder = tmp_path_factory.mktemp("repository")
    for part in PARTS:
        source = REPOSITORY / part
        (shutil.copytree if source.is_dir() else shutil.copy)(source, folder / part)
    (folder / "inventories").mkdir()
    (folder / "inventories/site.py").write_text(INVENTORY)
    pins.save(folder / "pins.yaml", pins_for(spark()))
    return folder


class Site:
    """Two Sparks; `document` is everything on them and what was run there."""

    def __init__(self, repository: Path, hosts: dict[str, Any]) -> None:
        self.repository = repository
        self.document: dict[str, Any] = {"hosts": copy.deepcopy(hosts)}

    def deploy(
        self, *options: str, task: str = "deploy.py", **changes: Any
    ) -> subprocess.CompletedProcess[str]:
        """`pyinfra -y inventories/site.py TASK`; ``changes`` are faults of the hosts."""
        state = self.repository / "state.json"
        state.write_text(json.dumps({"hosts": self.document["hosts"], **changes}))
        folders = (self.repository, Path(__file__).parent, REPOSITORY / "tests/unit")
        done = subprocess.run(
            [PYINFRA, *options, "-y", "inventories/site.py", task],
            cwd=self.repository,
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join(map(str, folders)),
                "LOCKSTEP_PINS": str(self.repository / "pins.yaml"),
                "FAKE_SPARKS": str(state),
            },
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        self.document = json.loads(state.read_text())
        return done

    def ran(self, host: str = HOSTS[0]) -> list[str]:
        """Every command of the last run on a host; "? NAME" is a probe."""
        ran: list[str] = self.document["ran"][host]
        return ran

    def changes(self, host: str = HOSTS[0]) -> list[str]:
        return [line for line in self.ran(host) if not line.startswith("?")]


@pytest.fixture
def wiped(repository: Path) -> Site:
    return Site(repository, {})


@dataclass(frozen=True)
class First:
    """A deploy of two wiped hosts that nothing disturbed."""

    site: Site
    done: subprocess.CompletedProcess[str]


@pytest.fixture(scope="module")
def first(repository: Path) -> First:
    site = Site(repository, {})
    done = site.deploy()
    assert done.returncode == 0, done.stdout + done.stderr
    return First(site, done)


@pytest.fixture
def whole(first: First) -> Any:
    """Both hosts as that deploy left them."""
    return first.site.document["hosts"]


@pytest.fixture
def converged(repository: Path, whole: Any) -> Site:
    return Site(repository, whole)


def test_a_wiped_host_gets_everything_in_order(first: First) -> None:
    golden = Path(__file__).parent / "golden/wiped_host.txt"
    for host in HOSTS:
        text = "".join(f"{line}\n" for line in first.site.changes(host))
        if os.environ.get("UPDATE_GOLDEN"):
            golden.write_text(text)
        assert text == golden.read_text()


def test_the_run_ends_with_what_runs_where(first: First) -> None:
    lines = first.done.stdout.splitlines()
    assert [line for line in lines if line.startswith("@fake")] == list(HOSTS)
    assert lines.count(" open-webui        active, 127.0.0.1:8080") == 2
    assert lines.count(" models at boot    none") == 2
    assert lines[-1] == "Next: ssh @fake/spark1 /data/scripts/llm/switch.sh status"
    assert max(len(line) for line in lines) <= 80
    assert "Traceback" not in first.done.stderr


def test_the_second_run_changes_nothing_and_asks_little(converged: Site, whole: Any) -> None:
    assert converged.deploy().returncode == 0
    for host in HOSTS:
        assert converged.changes(host) == []
        # The promise of the design: at most 40 remote commands per host and phase.
        assert len(converged.ran(host)) <= 40
    assert converged.document["hosts"] == whole


def test_a_dry_run_of_a_converged_host_proposes_nothing(converged: Site) -> None:
    done = converged.deploy("--dry", "--json")
    plan = json.loads(done.stdout[: done.stdout.rindex("}") + 1])["plan"]
    assert [step["name"] for step in plan if step["hosts_with_change"]] == []
    assert converged.changes() == []


@pytest.mark.parametrize("cut", [12, 31, 58])
def test_a_run_that_is_cut_off_is_finished_by_the_next(wiped: Site, whole: Any, cut: int) -> None:
    assert wiped.deploy(cut=cut).returncode == 137
    assert wiped.document["hosts"] != whole
    assert wiped.deploy().returncode == 0
    assert wiped.document["hosts"] == whole


def test_a_finding_on_one_host_stops_the_run_before_any_change_on_any(wiped: Site) -> None:
    done = wiped.deploy(fails={HOSTS[1]: {"facts": {"architecture": "x86_64"}}})
    assert done.returncode == 1
    assert wiped.ran(HOSTS[0]) == wiped.ran(HOSTS[1]) == ["? preflight"]
    assert "architecture: it is x86_64, expected aarch64" in done.stderr
    assert "nothing was touched on any host" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_host_that_cannot_be_asked_is_left_alone_and_named(wiped: Site) -> None:
    done = wiped.deploy(fails={HOSTS[1]: {"preflight": "python3: not found"}})
    assert done.returncode == 1
    assert wiped.ran(HOSTS[1]) == ["? preflight"]
    assert wiped.changes(HOSTS[0])[-1].startswith("job start-open-webui")
    assert f"FAILED  {HOSTS[1]}: Preflight | Ask the host what it is\n" in done.stdout
    assert "Traceback" not in done.stderr


def test_one_broken_host_neither_stops_nor_taints_the_other(wiped: Site, whole: Any) -> None:
    message = "error: no space left on device"
    done = wiped.deploy(fails={HOSTS[0]: {"job engine-vllm": message}})
    assert done.returncode == 1
    assert wiped.changes(HOSTS[0])[-1].startswith("job engine-vllm")
    assert wiped.changes(HOSTS[1])[-1].startswith("job start-open-webui")
    assert done.stdout.endswith(
        f"FAILED  {HOSTS[0]}: vLLM | Build the engine's environment: vLLM\n"
        f"        {message}\n"
        f"Done on: {HOSTS[1]}\n"
        "Run the same command again: it goes on where this run ended.\n"
    )
    assert "Traceback" not in done.stderr
    assert wiped.deploy().returncode == 0
    assert wiped.document["hosts"] == whole


def test_boot_links_and_older_generations_are_mended_where_they_are(converged: Site) -> None:
    link = "/etc/systemd/system/multi-user.target.wants/vllm-qwen36.service"
    units = converged.document["hosts"][HOSTS[0]]["units"]
    units["vllm-qwen36.service"]["links"] = [link]
    older = {"ActiveState": "active", "SubState": "running", "generation": "0123456789abcdef"}
    units["vllm.service"] |= older
    done = converged.deploy()
    assert done.returncode == 0
    assert converged.changes(HOSTS[0]) == [
        "systemctl --no-reload disable vllm-qwen36.service",
        f"rm -f {link}",
        "systemctl daemon-reload",
        "job restart-vllm: systemctl restart vllm.service",
    ]
    assert converged.changes(HOSTS[1]) == []
    assert f"vllm-qwen36.service had a boot link ({link}): removed" in done.stderr


def test_one_task_runs_alone(converged: Site) -> None:
    units = converged.document["hosts"][HOSTS[0]]["units"]
    units["open-webui.service"]["ActiveState"] = "failed"
    done = converged.deploy(task="tasks.webui.webui")
    assert done.returncode == 0, done.stderr
    assert converged.changes(HOSTS[0]) == [
        "job start-open-webui: systemctl start open-webui.service"
    ]
