"""One first deploy for all tests on hosts, and a lab for each worker that begins as it left one.

LOCKSTEP_TEST_LAB=NAME works on a lab of that name and leaves it up, for writing tests: no wait for
a first deploy each time. Without it each run has a lab of its own, gone afterwards.
"""

import fcntl
import json
import os
import subprocess
import time
from dataclasses import asdict
from typing import Any

import left_behind
import pytest
from stack import BIN, DeployResult, Host, Stack

#: Leaves its lab as no other file wants it: without copies it comes last.
_REMOVE = "deploy/test_remove"

#: Files that must meet their lab as a first deploy left it, and those without a lab, which other
#: workers run meanwhile. Then the long ones: those that mostly wait, while the unit tests use the
#: processor, before those that use it themselves, longest first. So no worker is alone at the end.
_FIRST = (
    *("deploy/test_deploy", "engines/test_engine_parsers", "engines/test_weight_loaders"),
    *("deploy/test_interrupted", "switching/test_switch_faults", "cluster/test_cluster_faults"),
    *("cluster/test_cluster", "webui/test_data", "deploy/test_copying", "deploy/test_rolling"),
    *("monitoring/test_monitoring", "deploy/test_lock", _REMOVE, "engines/test_real_vllm"),
    *("drift/test_drift", "access/test_tls", "engines/test_llamacpp", "switching/test_switching"),
    *("deploy/test_as_shipped", "switching/test_power", "switching/test_memory"),
    *("access/test_open_engine", "deploy/test_artefacts", "access/test_firewall"),
    *("gateway/test_switching", "deploy/test_proxy", "access/test_keys", "access/test_secrets"),
    "deploy/test_one_deploy",
)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Order the files; tests of one file stay as they are."""
    order = {name: place for place, name in enumerate(_FIRST)}
    if not _deployed_lab(config):
        order[_REMOVE] = len(_FIRST) + 1
    items.sort(key=lambda item: order.get(f"{item.path.parent.name}/{item.path.stem}", len(_FIRST)))


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Name the lab that all workers' labs are copies of; it goes when they are gone."""
    if os.environ.get("LOCKSTEP_TEST_LAB"):
        raise pytest.UsageError("LOCKSTEP_TEST_LAB is one lab, for one worker: pytest -n0")
    node.workerinput["deployed_lab"] = name = f"test-{os.getpid()}"
    if name not in _taken_down:
        _taken_down[name] = _take_down(name)


def pytest_unconfigure() -> None:
    """Take down the lab of the first deploy: the workers have ended, and none needs it any more."""
    for process in _taken_down.values():
        process.communicate()


#: Lab → what takes it down when this process, which started the workers, has ended.
_taken_down: dict[str, subprocess.Popen[bytes]] = {}


#: Waits for the end of the run, which holds its standard input.
_TAKE_DOWN = """
cat
for try in $(seq 200); do
    # Refused while there are copies of it, which processes like this one take down now.
    words=$("$0" lab down --name "$1" --delete 2>&1) && exit
    sleep 0.5
done
echo "$words" >&2
exit 1
"""


def _take_down(name: str) -> subprocess.Popen[bytes]:
    # Outlives this process, so that a killed run leaves no lab behind either.
    argv = ["sh", "-c", _TAKE_DOWN, str(BIN / "lockstep"), name]
    return subprocess.Popen(
        argv, stdin=subprocess.PIPE, env=left_behind.outside(), start_new_session=True
    )


@pytest.fixture(scope="session")
def stack(request, tmp_path_factory):
    """The lab with its two hosts; taken down at the end, also after a failure or Ctrl-C."""
    kept_lab = os.environ.get("LOCKSTEP_TEST_LAB")
    name, folder = kept_lab or f"test-{os.getpid()}", tmp_path_factory.mktemp("stack")
    stack = Stack(name, folder, left_behind.outside())
    if kept_lab:
        stack.lab("up")
        yield stack
        stack.reap()
        return
    with _take_down(stack.name):
        if source := _deployed_lab(request.config):
            _deploy_once(source, tmp_path_factory)
            _copy_lab(source, stack)
        else:
            stack.lab("up")
        yield stack
        stack.reap()


def _deployed_lab(config: pytest.Config) -> str | None:
    """The lab that this worker's lab is a copy of; None where there is one process only."""
    worker_input: dict[str, str] = getattr(config, "workerinput", {})
    return worker_input.get("deployed_lab")


def _copy_lab(source: str, stack: Stack) -> None:
    stack.lab("copy", source)
    stack.lab("up")
    for host in stack.hosts:
        # Of no interest is what it says, but that Open WebUI has started by then.
        host.run("systemctl is-system-running --wait")


@pytest.fixture(scope="module")
def another_lab_afterwards(request, stack):
    """Give the files that follow another copy of the deployed lab, where labs are copies."""
    yield
    if source := _deployed_lab(request.config):
        stack.reap()
        stack.lab("down", "--delete")
        _copy_lab(source, stack)


def _deploy_once(source: str, tmp_path_factory: pytest.TempPathFactory) -> DeployResult:
    """The first deploy of `source`, by the first worker that needs it; its lab is down then."""
    folder = tmp_path_factory.getbasetemp().parent
    target_path = folder / "first-deploy.json"
    with (folder / "first-deploy.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target_path.exists():
            stack = Stack(source, tmp_path_factory.mktemp("first"), left_behind.outside())
            stack.lab("up")
            result = _first_deploy(stack)
            stack.lab("down")
            target_path.write_text(json.dumps(asdict(result)))
    return DeployResult(**json.loads(target_path.read_text()))


def _first_deploy(stack: Stack) -> DeployResult:
    began = time.monotonic()
    result = stack.typed_deploy()
    print(f"first deploy: {time.monotonic() - began:.0f} s")
    return result


@pytest.fixture(scope="session")
def first(request, stack, tmp_path_factory):
    """The first deploy of the two hosts, which must end well."""
    source = _deployed_lab(request.config)
    result = _deploy_once(source, tmp_path_factory) if source else _first_deploy(stack)
    assert result.code == 0, result.output[-8000:]
    return result


@pytest.fixture(autouse=True)
def no_deploy_runs_on(request):
    """Let no deploy and no broken server of a failed test run on into the next test."""
    yield
    if "stack" in request.fixturenames:
        request.getfixturevalue("stack").mend()


@pytest.fixture
def deployed_stack(stack, first):
    """Two deployed hosts."""
    return stack


@pytest.fixture
def lab_host(deployed_stack):
    """spark1, for tests that would be the same on every host."""
    return deployed_stack.spark1


@pytest.fixture(params=["spark1", "spark2"])
def host(request, deployed_stack):
    """Each of the two hosts in turn."""
    return Host(deployed_stack.name, request.param)
