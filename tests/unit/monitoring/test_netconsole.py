"""Units by which a kernel's messages go to another host."""

from __future__ import annotations

from pathlib import Path

from monitored_spark import ON, file_text, hosts

from lockstep.monitoring import netconsole, stack
from lockstep.system.firewall import RULES

RECEIVER = "lockstep-netconsole-spark-2"


def test_each_sends_to_its_recorder_and_receives_from_whom_it_records() -> None:
    desired_state, _ = hosts(ON, {**ON, "netconsole_port": 7000})
    assert netconsole.units(desired_state.plan.ring) == [
        f"{RECEIVER}.socket",
        f"{RECEIVER}.service",
        netconsole.SENDER,
    ]
    assert {*netconsole.units(desired_state.plan.ring)} <= {*stack.units(desired_state.plan)}
    sender = file_text(desired_state, netconsole.SENDER)
    assert "netconsole send 10.77.0.1 10.77.0.2 7000\n" in sender
    assert "ExecStopPost=/usr/bin/python3 /usr/local/lib/lockstep netconsole end\n" in sender
    assert "ListenDatagram=10.77.0.1:6666\n" in file_text(desired_state, f"{RECEIVER}.socket")
    assert "SyslogIdentifier=netconsole-spark-2\n" in file_text(
        desired_state, f"{RECEIVER}.service"
    )


def test_the_port_is_open_to_the_sender_alone() -> None:
    desired_state, _ = hosts(ON, ON)
    rules = file_text(desired_state, Path(RULES).name)
    assert 'ip saddr { 10.77.0.2/32 } udp dport 6666 accept comment "kernel of spark-2"' in rules
    assert rules.count("6666") == 1
    socket = file_text(desired_state, f"{RECEIVER}.socket")
    assert "IPAddressDeny=any\nIPAddressAllow=10.77.0.2\n" in socket


def test_where_a_kernel_is_to_be_silent_nothing_sends_and_nothing_listens() -> None:
    desired_state, two = hosts({**ON, "netconsole": False}, ON)
    assert netconsole.SENDER not in stack.units(desired_state.plan)
    assert netconsole.units(two.plan.ring) == [netconsole.SENDER]
    assert 6666 not in stack.listening(two.plan)
    assert "udp dport 6666" not in file_text(two, Path(RULES).name)


def test_one_alone_has_none_of_it() -> None:
    (desired_state,) = hosts(ON)
    assert netconsole.units(desired_state.plan.ring) == []
    assert not list(netconsole.netconsole_files(desired_state.plan))
