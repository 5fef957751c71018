"""Broken hosts are refused before the first change on any host."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

import pytest
from copies import address
from stack import DeployResult, Stack, state

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
BROKEN = (
    ("spark1", "systemd-run --quiet --unit=squatter python3 -m http.server -b 127.0.0.1 8000"),
    *(("spark1", command) for command in CHANGED),
    ("spark2", "systemctl stop docker.socket docker.service"),
    ("spark2", "mv /usr/local/cuda /usr/local/cuda.away"),
)
MENDED = (
    ("spark1", "systemctl stop squatter"),
    *(("spark1", command) for command in AS_SHIPPED),
    ("spark2", "mv /usr/local/cuda.away /usr/local/cuda"),
    # Tests before may have started Docker as often as its unit may start in a minute.
    ("spark2", "systemctl reset-failed docker.service"),
    ("spark2", "systemctl start docker.service open-webui.service"),
)


class RefusedDeploys(NamedTuple):
    """Two refused deploys, and whether both hosts were afterwards as before.

    Attributes:
        broken_deploy: The deploy to two broken hosts.
        exchanged_deploy: The deploy to the same hosts, each at the other's address.
        is_unchanged: Whether nothing changed on either.
    """

    broken_deploy: DeployResult
    exchanged_deploy: DeployResult
    is_unchanged: bool


@pytest.fixture(scope="module")
def refused_deploys(stack: Stack, first: object) -> Iterator[RefusedDeploys]:
    """Two deploys to two broken hosts."""
    hosts = {host.name: host for host in stack.hosts}
    first_address, two = (address(host) for host in stack.hosts)
    changes = {"spark1__ssh_hostname": two, "spark2__ssh_hostname": first_address}
    for name, command in BROKEN:
        hosts[name].root(command)
    try:
        earlier_states = [state(host) for host in stack.hosts]
        broken_deploy = stack.deploy()
        exchanged_deploy = stack.deploy(inventory=stack.inventory("exchanged", **changes))
        yield RefusedDeploys(
            broken_deploy, exchanged_deploy, [state(host) for host in stack.hosts] == earlier_states
        )
    finally:
        for name, command in MENDED:
            hosts[name].root(command)


def test_all_findings_of_all_hosts_are_in_one_table(refused_deploys: RefusedDeploys) -> None:
    words = " ".join(" ".join(findings(refused_deploys.broken_deploy)).split())
    for message in (
        "spark1 error port-taken: port 8000 of tiny is taken by python3",
        "spark1 error docker: there is no /usr/bin/docker, by which units start containers",
        "spark1 error dgx-os: it runs Ubuntu 24.04.3 LTS and not DGX OS",
        "spark1 warning cuda-newer: /usr/local/cuda is 13.2, and driver 610.43.02 takes CUDA 13.0",
        "spark1 warning driver-version: driver 610.43.02: it is of no branch that DGX OS has (580)",
        "spark2 error docker: Docker cannot be asked",
        "spark2 error cuda: /usr/local/cuda is no toolkit",
    ):
        assert message in words, words
    assert len(re.findall(r" error ", words)) == 5
    assert words.count(" -> ") == 7


def test_the_findings_fit_eighty_columns(refused_deploys: RefusedDeploys) -> None:
    assert [line for line in findings(refused_deploys.broken_deploy) if len(line) > 80] == []


def test_exchanged_addresses_are_refused(refused_deploys: RefusedDeploys) -> None:
    words = " ".join(refused_deploys.exchanged_deploy.output.split())
    for name, other_name in (("spark1", "spark2"), ("spark2", "spark1")):
        message = f"{name} error other-host: the host at this address was deployed as {other_name}"
        assert message in words, refused_deploys.exchanged_deploy.output


def test_nothing_was_touched_on_either_host(refused_deploys: RefusedDeploys) -> None:
    for result in (refused_deploys.broken_deploy, refused_deploys.exchanged_deploy):
        assert result.code == 1
        assert "nothing was touched on any host" in " ".join(result.output.split())
        assert "Beginning operation run" not in result.output
    assert refused_deploys.is_unchanged


def test_a_refusal_is_no_traceback(refused_deploys: RefusedDeploys) -> None:
    assert (
        "Traceback"
        not in refused_deploys.broken_deploy.output + refused_deploys.exchanged_deploy.output
    )


def findings(result: DeployResult) -> list[str]:
    """Lines of the table of findings, as printed."""
    lines = result.output.splitlines()
    start = next(at for at, line in enumerate(lines) if re.match(r" ?host +finding", line))
    end = next(at for at in range(start, len(lines)) if "preflight found" in lines[at])
    return lines[start:end]
