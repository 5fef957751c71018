"""Broken hosts and wrong data are refused before the first change on any host."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from copies import address
from stack import Deployed, Stack, state

BROKEN = (
    ("spark1", "systemd-run --quiet --unit=squatter python3 -m http.server -b 127.0.0.1 8000"),
    ("spark2", "systemctl stop docker.socket docker.service"),
    ("spark2", "mv /usr/local/cuda /usr/local/cuda.away"),
)
MENDED = (
    ("spark1", "systemctl stop squatter"),
    ("spark2", "mv /usr/local/cuda.away /usr/local/cuda"),
    # Tests before may have started Docker as often as its unit may start in a minute.
    ("spark2", "systemctl reset-failed docker.service"),
    ("spark2", "systemctl start docker.service open-webui.service"),
)


@pytest.fixture(scope="module")
def refused(stack: Stack, first: Deployed) -> Iterator[tuple[Deployed, bool]]:
    """A deploy to two broken hosts, and whether both were afterwards as before."""
    hosts = {host.name: host for host in stack.hosts}
    for name, command in BROKEN:
        hosts[name].root(command)
    try:
        before = [state(host) for host in stack.hosts]
        done = stack.deploy()
        yield done, [state(host) for host in stack.hosts] == before
    finally:
        for name, command in MENDED:
            hosts[name].root(command)


def test_all_findings_of_all_hosts_are_in_one_table(refused: tuple[Deployed, bool]) -> None:
    done, _ = refused
    table = findings(done)
    words = " ".join(" ".join(table).split())
    assert "spark1 error port-taken: port 8000 of tiny is taken by python3" in words
    assert "spark2 error docker: Docker cannot be asked" in words
    assert "spark2 error cuda: /usr/local/cuda is no toolkit" in words
    assert len(re.findall(r" error ", words)) == 3
    assert words.count(" -> ") == 3


def test_the_findings_fit_eighty_columns(refused: tuple[Deployed, bool]) -> None:
    done, _ = refused
    assert [line for line in findings(done) if len(line) > 80] == []


def test_nothing_was_touched_on_either_host(refused: tuple[Deployed, bool]) -> None:
    done, same = refused
    assert done.code == 1
    assert "nothing was touched on any host" in " ".join(done.output.split())
    assert "Beginning operation run" not in done.output
    assert same


def test_a_refusal_is_no_traceback(refused: tuple[Deployed, bool]) -> None:
    done, _ = refused
    assert "Traceback" not in done.output


def test_exchanged_addresses_are_refused_before_any_change(stack: Stack, first: Deployed) -> None:
    one, two = (address(host) for host in stack.hosts)
    before = [state(host) for host in stack.hosts]
    changes = {"spark1__ssh_hostname": two, "spark2__ssh_hostname": one}
    done = stack.deploy(inventory=stack.inventory("exchanged", **changes))
    words = " ".join(done.output.split())
    for name, other in (("spark1", "spark2"), ("spark2", "spark1")):
        said = f"{name} error other-host: the host at this address was deployed as {other}"
        assert said in words, done.output
    assert done.code == 1 and "nothing was touched on any host" in words
    assert [state(host) for host in stack.hosts] == before


# A Spark as owners change theirs: CUDA and a driver of NVIDIA's own repository, Ubuntu in place of
# DGX OS, and Docker as a snap, which has neither the client of our units nor its unit.
CHANGED = (
    "cp -a /usr/local/cuda-13.0 /usr/local/cuda-13.2",
    "sed -i 's/release 13.0/release 13.2/' /usr/local/cuda-13.2/bin/nvcc",
    "ln -sfn cuda-13.2 /usr/local/cuda",
    "sed -i.away 's/^DRIVER = .*/DRIVER = \"610.43.02\"/' /usr/bin/nvidia-smi",
    "mv /etc/dgx-release /etc/dgx-release.away",
    "mv /usr/bin/docker /usr/bin/docker.away",
)
AS_SHIPPED = (
    "mv /usr/bin/docker.away /usr/bin/docker",
    "mv /etc/dgx-release.away /etc/dgx-release",
    "mv /usr/bin/nvidia-smi.away /usr/bin/nvidia-smi",
    "ln -sfn cuda-13.0 /usr/local/cuda; rm -rf /usr/local/cuda-13.2",
)


def test_a_spark_that_its_owner_changed_is_told_what_that_means(deployed: Stack) -> None:
    one = deployed.one
    one.root(" && ".join(CHANGED))
    try:
        done = deployed.deploy("--dry", "--limit", one.name)
    finally:
        one.root(" && ".join(AS_SHIPPED))
    words = " ".join(" ".join(findings(done)).split())
    for said in (
        "error docker: there is no /usr/bin/docker, by which units start containers",
        "error dgx-os: it runs Ubuntu 24.04.3 LTS and not DGX OS",
        "warning cuda-newer: /usr/local/cuda is 13.2, and driver 610.43.02 takes CUDA 13.0",
        "warning driver-version: driver 610.43.02: it is of no branch that DGX OS has (580)",
    ):
        assert f"{one.name} {said}" in words, words
    assert "nothing was touched on any host" in " ".join(done.output.split())


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"enginee": {}}, "enginee"),
        ({"targets": {"tiny": {"recipe": "tiny-qwen4"}}}, "tiny-qwen4"),
        ({"targets": {"qwen": {"port": 8000}}}, "port 8000"),
        ({"webui": {"image": "ghcr.io/x/y@md5:0123"}}, "md5:0123"),
    ],
    ids=["unknown key", "unknown recipe", "port used twice", "digest without sha256"],
)
def test_wrong_data_is_refused_before_any_connection(
    deployed: Stack, request: pytest.FixtureRequest, changes: dict[str, object], said: str
) -> None:
    name = re.sub(r"\W", "-", request.node.name)
    done = deployed.deploy(inventory=deployed.inventory(name, **changes))
    assert done.code == 2
    assert said in done.output
    assert "Nothing was contacted and nothing was changed." in done.output
    assert "Connect" not in done.output and "Traceback" not in done.output


def findings(done: Deployed) -> list[str]:
    """Lines of the table of findings, as printed."""
    lines = done.output.splitlines()
    start = next(at for at, line in enumerate(lines) if re.match(r" ?host +finding", line))
    end = next(at for at in range(start, len(lines)) if "preflight found" in lines[at])
    return lines[start:end]
