"""Broken hosts, and hosts at each other's address, are refused before the first change on any."""

import pytest
from stack import state

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


@pytest.fixture
def broken_hosts(stack, first):
    """Both hosts are broken; mended afterwards."""
    hosts = {host.name: host for host in stack.hosts}
    for name, command in BROKEN:
        hosts[name].root(command)
    yield
    for name, command in MENDED:
        hosts[name].root(command)


def test_all_findings_of_all_hosts_are_in_one_table_and_nothing_is_touched(stack, broken_hosts):
    # Each of the two at the other's address: what is said of one was found on the other.
    changes = {"spark1__ssh_hostname": stack.two.address}
    changes["spark2__ssh_hostname"] = stack.spark1.address
    earlier_states = [state(host) for host in stack.hosts]
    result = stack.deploy(inventory=stack.inventory("exchanged", **changes))
    assert [state(host) for host in stack.hosts] == earlier_states
    words = " ".join(result.output.split())
    for message in (
        "spark1 error other-host: the host at this address was deployed as spark2",
        "spark2 error other-host: the host at this address was deployed as spark1",
        "spark2 error port-taken: port 8000 of tiny is taken by python3",
        "spark2 error docker: there is no /usr/bin/docker, by which units start containers",
        "spark2 error dgx-os: it runs Ubuntu 24.04.3 LTS and not DGX OS",
        "spark2 warning cuda-newer: /usr/local/cuda is 13.2, and driver 610.43.02 takes CUDA 13.0",
        "spark2 warning driver-version: driver 610.43.02: it is of no branch that DGX OS has (580)",
        "spark1 error docker: Docker cannot be asked",
        "spark1 error cuda: /usr/local/cuda is no toolkit",
    ):
        assert message in words, words
    assert result.code == 1
    assert "nothing was touched on any host" in words
    assert "Beginning operation run" not in result.output and "Traceback" not in result.output
