"""The guard over a rank's load ends with the switch of its cluster, or with its unit."""

import pytest
from a_disk import Disk
from a_model_host import UP, ModelHost

from lockstep.onhost.cluster import rank_memory_guard, run_records
from lockstep.onhost.core import clock, errors
from lockstep.onhost.system import disk_read_ahead

PART = run_records.SwitchPart("1", "anna", "spark1", "deep", None)


@pytest.mark.parametrize(
    ("end", "after_s"),
    [
        (lambda spark: run_records.save_switch_part(spark.paths, None), 40),
        (lambda spark: run_records.save_switch_part(spark.paths, PART.with_admitted("b")), 40),
        (lambda spark: spark.systemd.unit("deep.service"), 40),
        (lambda spark: spark.systemd.unit("deep.service", **UP), 300),
    ],
    ids=["the switch is over", "another model's turn", "the rank has ended", "it takes too long"],
)
def test_its_end_puts_the_read_ahead_back(tmp_path, monkeypatch, end, after_s):
    spark = ModelHost(tmp_path, monkeypatch, {"deep": {"start_timeout_s": 300}}, up="deep")
    run_records.save_switch_part(spark.paths, PART.with_admitted("deep"))
    disk = Disk(spark.paths)
    device = spark.paths.root.stat().st_dev
    disk_read_ahead.raise_read_ahead("deep", [device], spark.paths, pytest.fail)
    passed_s = 0.0

    def sleep(seconds: float) -> None:
        nonlocal passed_s
        passed_s += seconds
        assert disk.kib == disk_read_ahead.RAISED_KIB
        if passed_s == 40:
            end(spark)

    # The guard's own thread looks by another clock.
    monkeypatch.setattr(clock, "sleep", sleep)
    monkeypatch.setattr(clock, "now", lambda: passed_s)
    assert rank_memory_guard.main(["deep"], spark.paths) == errors.EXIT_DONE
    assert (passed_s, disk.kib) == (after_s, 128)
    spark.close()
