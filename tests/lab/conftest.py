"""One lab and one first deploy for all tests on hosts.

LOCKSTEP_TEST_LAB=NAME works on a lab of that name and leaves it up, for writing tests: no wait for
a first deploy each time. Without it each run has a lab of its own, gone afterwards.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from stack import Deployed, Host, Stack

#: Files that must meet their lab as a first deploy left it, then the long ones, longest first: no
#: worker is left with one of them when the others have ended.
_FIRST = (
    *("test_10_deploy", "test_12_same_hosts"),
    *("test_60_interrupted", "test_96_cluster_faults", "test_85_copying", "test_20_switching"),
    *("test_roles_proxy", "test_57_rolling", "test_75_drift_is_named", "test_86_cuts"),
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Order the files; tests of one file stay as they are."""
    order = {name: place for place, name in enumerate(_FIRST)}
    items.sort(key=lambda item: order.get(item.path.stem, len(order)))


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """The lab with its two hosts; taken down at the end, also after a failure or Ctrl-C."""
    kept = os.environ.get("LOCKSTEP_TEST_LAB")
    stack = Stack(kept or f"test-{os.getpid()}", tmp_path_factory.mktemp("stack"))
    if kept:
        stack.lab("up")
        yield stack
        stack.reap()
        return
    # Outlives this process, so that a killed run leaves no lab behind either.
    program = Path(__file__).with_name("take_down.py")
    argv = [sys.executable, str(program), stack.name]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, start_new_session=True):
        stack.lab("up")
        yield stack
        stack.reap()


@pytest.fixture(scope="session")
def first(stack: Stack) -> Deployed:
    """The first deploy of the two hosts."""
    began = time.monotonic()
    done = stack.deploy()
    print(f"first deploy: {time.monotonic() - began:.0f} s")
    return done


@pytest.fixture(autouse=True)
def no_deploy_runs_on(request: pytest.FixtureRequest) -> Iterator[None]:
    """A test that failed leaves no deploy running into the next one, and no broken server."""
    yield
    if "stack" in request.fixturenames:
        request.getfixturevalue("stack").mend()


@pytest.fixture
def deployed(stack: Stack, first: Deployed) -> Stack:
    """Two hosts that the deploy has been to."""
    assert first.code == 0, first.output[-8000:]
    return stack


@pytest.fixture
def one(deployed: Stack) -> Host:
    """spark1, for what would be the same on every host."""
    return deployed.one


@pytest.fixture(params=["spark1", "spark2"])
def host(request: pytest.FixtureRequest, deployed: Stack) -> Host:
    """Each of the two hosts in turn."""
    return Host(deployed.name, request.param)
