"""Agents as processes, at ports and by the clock of this machine."""

import contextlib
import os
import signal
import subprocess

import pytest
from a_cluster import GLM, OWN, Spark, hosts_of
from fork import Fork
from lab_servers import LIMIT_S, free_port, until

pytestmark = pytest.mark.slow

#: Short, so that nobody waits here; under load a beat may take its time.
TIMES = ("--lease", "3", "--beat", "0.2", "--look", "0.5", "--token-wait", "2")


def start_program(spark: Spark, module: str, *words: str) -> subprocess.Popen[str]:
    """One of a host's programs."""
    environment = {**os.environ, "FAKE_SYSTEMD": str(spark.systemd.folder)}
    return Fork(lambda: spark.program(module, *words), env=environment, stdout=subprocess.DEVNULL)


def answers(spark: Spark) -> bool:
    with contextlib.suppress(Exception):
        return bool(spark.agent_state())
    return False


def test_a_killed_switch_is_undone_by_its_lease_and_agents_end_in_order(tmp_path, monkeypatch):
    pair = hosts_of(tmp_path, monkeypatch, 2, free_port())
    agents = [start_program(spark, "cluster.agent", *TIMES) for spark in pair]
    try:
        for spark in pair:
            until(lambda spark=spark: answers(spark), "its agent listens")
        pair[1].systemd.unit(OWN, ActiveState="active", SubState="running")
        pair[0].systemd.unit(GLM, on_start=LIMIT_S)
        work = start_program(pair[0], "operator.switch_sh", "--worker", "glm", "alice")
        until(lambda: pair[1].hot == ["glm"], "rank 1 is up")
        work.kill()
        until(lambda: pair[1].hot == ["own"], "its model is back")
        assert pair[0].hot == [] and f"systemctl start -- {OWN}" in pair[1].systemd.calls
        work.wait(LIMIT_S)
        for agent in agents:
            agent.send_signal(signal.SIGTERM)
        assert [agent.wait(LIMIT_S) for agent in agents] == [0, 0]
    finally:
        for agent in agents:
            agent.kill()
            agent.wait()
        for spark in pair:
            spark.close()
