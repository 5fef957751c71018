"""Alerts of deployed hosts: what is wrong is told once and is told to be over, a switch is not."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import alerting
import faults
import metric_names
import pytest
from stack import Host, Stack, until

from lockstep.monitoring.alertmanager import UNIT

CAUSES = {cause.alert: cause for cause in alerting.CAUSES}


@pytest.fixture(scope="module")
def told(stack: Stack, first: object) -> Iterator[alerting.Receiver]:
    """Both hosts are monitored and tell the receiver; afterwards as they were."""
    monitored = alerting.inventory(stack)
    stack.good_deploy(inventory=monitored)
    with alerting.Receiver(stack.name) as receiver:
        yield receiver
        for host in stack.hosts:
            host.switch("none")
    stack.good_deploy()


def test_a_test_alert_comes_from_each_host(stack: Stack, told: alerting.Receiver) -> None:
    done = stack.lockstep("alert test", inventory=alerting.inventory(stack))
    assert done.code == 0, done.text
    assert done.out.count("1-webhook (http://10.77.0.1:8499): took the message") == 2
    named = {each.host for each in told.told if each.alert == "LockstepTest"}
    assert named == {"spark1", "spark2"}


def test_each_cause_raises_its_own_alert_once(stack: Stack, told: alerting.Receiver) -> None:
    def on(host: Host, names: tuple[str, ...]) -> list[alerting.Run]:
        return [alerting.raised(stack, host, CAUSES[name], told) for name in names]

    work = (("GpuHot", "FailedUnit"), ("ModelTalksNonsense", "EndedByMemoryFloor"))
    with ThreadPoolExecutor(2) as pool:
        jobs = [pool.submit(on, host, names) for host, names in zip(stack.hosts, work, strict=True)]
        runs = [run for job in jobs for run in job.result()]
    print(alerting.report(runs))
    assert [run.violation for run in runs] == ["", "", "", ""]


def test_an_ordinary_switch_raises_none(stack: Stack, told: alerting.Receiver) -> None:
    before = len(told.told)
    for name in ("mistral", "qwen", "none"):
        assert stack.one.switch(name).code == 0
    # Long enough for every rule that waits for a minute or less.
    time.sleep(alerting.LAG_S + 60)
    assert told.told[before:] == []


def test_a_dashboard_s_metrics_of_the_machine_are_there(
    stack: Stack, told: alerting.Receiver
) -> None:
    page = stack.one.root("curl -fsS http://127.0.0.1:9100/metrics")
    there = {line.split("{")[0].split(" ")[0] for line in page.splitlines()}
    assert there >= metric_names.NODE
    rules = stack.one.get("http://127.0.0.1:9090/api/v1/rules")["data"]["groups"]
    faulty = [rule for group in rules for rule in group["rules"] if rule["health"] == "err"]
    assert rules and faulty == []


def test_a_switch_is_silenced_while_it_runs(stack: Stack, told: alerting.Receiver) -> None:
    one = stack.one
    slow = json.dumps({"load_seconds": 20.0})
    one.root(f"echo '{slow}' > {faults.KNOBS}/standin-vllm.json")
    running = one.begin(f"{alerting.SWITCH} qwen")
    until(lambda: _silenced(one) == ["a switch is under way"], "the switch silences alerts")
    assert running.wait(120) == 0
    until(lambda: _silenced(one) == [], "the silence is taken back")
    # Alertmanager is away, and even hangs: no switch waits for it or fails by it.
    one.root(f"systemctl kill --signal=STOP {UNIT}")
    try:
        assert one.switch("none").code == 0
    finally:
        one.root(f"systemctl kill --signal=CONT {UNIT}; rm -f {faults.KNOBS}/standin-vllm.json")


def _silenced(host: Host) -> list[str]:
    found = host.get("http://127.0.0.1:9093/api/v2/silences")
    return [each["comment"] for each in found if each["status"]["state"] == "active"]
