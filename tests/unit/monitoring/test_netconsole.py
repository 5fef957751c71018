"""Units by which a kernel's messages go to another host."""

from __future__ import annotations

from pathlib import Path

from monitored import ON, hosts, written

from lockstep.monitoring import netconsole, stack
from lockstep.system.firewall import RULES

RECEIVER = "lockstep-netconsole-spark-2"


def test_each_sends_to_its_recorder_and_receives_from_whom_it_records() -> None:
    one, _ = hosts(ON, {**ON, "netconsole_port": 7000})
    assert netconsole.units(one.plan.ring) == [
        f"{RECEIVER}.socket",
        f"{RECEIVER}.service",
        netconsole.SENDER,
    ]
    assert {*netconsole.units(one.plan.ring)} <= {*stack.units(one.plan)}
    sender = written(one, netconsole.SENDER)
    assert "netconsole send 10.77.0.1 10.77.0.2 7000\n" in sender
    assert "ExecStopPost=/usr/bin/python3 /usr/local/lib/lockstep netconsole end\n" in sender
    assert "ListenDatagram=10.77.0.1:6666\n" in written(one, f"{RECEIVER}.socket")
    assert "SyslogIdentifier=netconsole-spark-2\n" in written(one, f"{RECEIVER}.service")


def test_the_port_is_open_to_the_sender_alone() -> None:
    one, _ = hosts(ON, ON)
    rules = written(one, Path(RULES).name)
    assert 'ip saddr { 10.77.0.2/32 } udp dport 6666 accept comment "kernel of spark-2"' in rules
    assert rules.count("6666") == 1
    socket = written(one, f"{RECEIVER}.socket")
    assert "IPAddressDeny=any\nIPAddressAllow=10.77.0.2\n" in socket


def test_where_a_kernel_is_to_be_silent_nothing_sends_and_nothing_listens() -> None:
    one, two = hosts({**ON, "netconsole": False}, ON)
    assert netconsole.SENDER not in stack.units(one.plan)
    assert netconsole.units(two.plan.ring) == [netconsole.SENDER]
    assert 6666 not in stack.listening(two.plan)
    assert "udp dport 6666" not in written(two, Path(RULES).name)


def test_one_alone_has_none_of_it() -> None:
    (this,) = hosts(ON)
    assert netconsole.units(this.plan.ring) == []
    assert not list(netconsole.netconsole_files(this.plan))
