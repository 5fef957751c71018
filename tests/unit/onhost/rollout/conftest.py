"""A host where qwen is hot with the old restart key, for the tests of what a deploy does to it."""

from __future__ import annotations

import pytest
from a_clock import Clock
from a_model_host import UP, ModelHost

from lockstep.onhost.records import generations, rollback_journal
from lockstep.onhost.records.ownership import MARK

QWEN, SPARE, OTHER = "vllm-qwen36.service", "vllm-qwen36-fallback.service", "vllm.service"
OLD, NEW = "a" * 16, "b" * 16


@pytest.fixture
def spark(tmp_path, monkeypatch):
    """A host where qwen is hot with the old restart key; `deploy` writes the new one."""

    class Spark(ModelHost):
        def __init__(self) -> None:
            units = {"qwen": {"unit": QWEN}, "other": {"unit": OTHER}}
            super().__init__(tmp_path, monkeypatch, units)
            self.clock = Clock(monkeypatch)
            self.root = tmp_path / "root"
            self.units = self.root / "etc/systemd/system"
            self.units.mkdir(parents=True)
            self.engines = self.root / "opt/engines"
            for name in (OLD, NEW):
                (self.engines / name).mkdir(parents=True)
            (self.engines / "current").symlink_to(OLD)
            self.unit(OLD)
            self.runs()

        def unit(self, restart_key: str) -> None:
            (self.units / QWEN).write_text(
                f"# {MARK}\nEnvironment=LOCKSTEP_RESTART_KEY={restart_key}\n"
            )

        def runs(self, **more: object) -> None:
            """Let qwen run, as process 7, with the old restart key."""
            (self.paths.proc / "7").mkdir(exist_ok=True)
            environ = f"A=b\0LOCKSTEP_RESTART_KEY={OLD}\0C=d\0"
            (self.paths.proc / "7/environ").write_text(environ)
            self.systemd.unit(QWEN, **UP, MainPID="7", **more)

        def starts_only_with(self, restart_key: str) -> None:
            self.runs(starts_with=[str(self.units / QWEN), restart_key])

        def begin(self, *more: str) -> None:
            """Note what is here, as every program does that writes for a deploy."""
            if generations.newest_record(self.paths) is None:
                engine = {"folder": "/opt/engines", "id": OLD}
                record = {"engine": engine, "images": [], "weights": {}, "files": []}
                generations.add_record(self.paths, {"digest": "before", **record})
            paths = [f"/etc/systemd/system/{QWEN}", "/etc/lockstep/models.json", *more]
            rollback_journal.note_before_change(self.paths, paths)

        def deploy(self) -> None:
            """Do the deploy's work before `go`."""
            self.begin("/data/new-launch.sh")
            self.unit(NEW)
            launcher = self.root / "data/new-launch.sh"
            launcher.parent.mkdir(exist_ok=True)
            launcher.write_text(f"# {MARK}\n")
            (self.engines / "current").unlink()
            (self.engines / "current").symlink_to(NEW)

        @property
        def unit_state(self) -> tuple[str, str, bool]:
            """Restart key of the unit file, where `current` leads, whether the new file is
            there."""
            restart_key = (self.units / QWEN).read_text().strip().rpartition("=")[2]
            current = str((self.engines / "current").readlink())
            return restart_key, current, (self.root / "data/new-launch.sh").exists()

        @property
        def active(self) -> list[str]:
            names = (QWEN, SPARE, OTHER)
            states = {
                name: self.systemd.state(name)["ActiveState"]
                for name in names
                if (self.systemd.folder / f"{name}.state").exists()
            }
            return [name for name, state in states.items() if state == "active"]

    spark = Spark()
    yield spark
    spark.close()
