"""Switches with faults thrown in: never two engines, never worse off without a reason.

The long one, on both hosts, is `make soak`. The seed is fixed, so that a failure can be seen again.
"""

import pytest
import runner
import soaking

# Of four thousand seeds the one with most kinds of faults in so few switches: five.
SEED, SWITCHES = 618, 8
# Only bounds a hang.
LIMIT_S = 1200.0


@pytest.fixture
def quick_to_give_up(deployed_stack, monkeypatch):
    """A lab of one host, whose models give up after seconds; undone afterwards."""
    options = ("-y", "--limit", "spark1")
    deployed_stack.good_deploy(*options, inventory=soaking.inventory(deployed_stack))
    with monkeypatch.context() as alone:
        alone.setattr(deployed_stack, "hosts", (deployed_stack.spark1,))
        yield deployed_stack
    deployed_stack.spark1.switch("none")
    deployed_stack.good_deploy(*options)


def test_never_two_engines_and_never_worse_off_without_a_reason(quick_to_give_up):
    trial = runner.Trial(
        quick_to_give_up, soaking.Round, seed=SEED, switches=SWITCHES, quick=True, limit=LIMIT_S
    )
    soaking.prove(trial)
    report = trial.report(soaking.figures(trial))
    print(report)
    assert trial.broken_rules() == [], report
    assert sum(len(run.codes) for run in trial.runs) >= SWITCHES // 2
    assert len({run.fault for run in trial.runs if run.fault}) >= 5
    samples = int(trial.notes[0].split()[1])
    assert samples >= 10 * len(trial.runs)


@pytest.fixture
def hung_docker(lab_host):
    """A host with qwen hot, in a container, whose Docker then hangs."""
    assert lab_host.switch("qwen").code == 0
    lab_host.root("kill -STOP $(cat /run/docker.pid)")
    yield lab_host
    lab_host.root("kill -CONT $(cat /run/docker.pid)")
    lab_host.switch("none")


def test_while_docker_hangs_two_engines_never_live(hung_docker):
    host = hung_docker
    answer = host.switch("tiny")
    assert answer.code == 1, answer.text
    output = " ".join(answer.text.split())
    assert "qwen lives in container vllm-qwen36, and Docker does not answer" in output
    assert "nothing was stopped" in output
    assert host.active() == {"vllm-qwen36.service"}

    # It needs no Docker: the container's slice tells who lives, and ends it.
    stop_answer = host.switch("none")
    assert stop_answer.code == 0, stop_answer.text
    slice_of_qwen = "/sys/fs/cgroup/system.slice/system-lockstep.slice/system-lockstep-vllm.qwen36"
    leftovers = host.root(f"cat $(find {slice_of_qwen}* -name cgroup.procs) /dev/null")
    assert leftovers == "", stop_answer.text
    assert host.show("vllm-qwen36.service", "ActiveState") == "inactive"
