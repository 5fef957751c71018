"""The ``lockstep lab`` commands."""

from __future__ import annotations

import functools
import json
import os
import sys
from collections.abc import Callable
from typing import Any, NoReturn

import click
from rich.console import Console
from rich.table import Table

from lab import control
from lab.core.errors import LabError
from lab.core.progress import WIDTH, Steps
from lab.core.state import Lab, find_host, hosts, open_lab
from lab.host import connection, network
from lab.host.machine import CGROUP_VERSIONS


def _console() -> Console:
    console = Console(highlight=False)
    return Console(highlight=False, width=min(console.width, WIDTH))


def _fail(error: LabError) -> NoReturn:
    click.echo(error.paragraph(), err=True)
    sys.exit(error.exit_code)


def _of_a_lab(command: Callable[..., None]) -> Callable[..., None]:
    """Give ``command`` the option ``--name`` as a ``Lab``; a ``LabError`` ends it with 2."""

    @click.option("--name", help="Name of the lab, where several run.  [default: lab]")
    @functools.wraps(command)
    def wrapper(name: str | None, **arguments: Any) -> None:
        try:
            command(open_lab(name), **arguments)
        except LabError as error:
            _fail(error)

    return wrapper


@click.group()
def lab() -> None:
    """Stand-in Sparks on this machine; only `up --gpu` has a GPU.

    The hosts have real systemd, sshd and Docker.
    """


@lab.command()
@click.option("--hosts", "count", type=int, help="Number of Sparks, 1 to 16.  [default: 2]")
@click.option(
    "--cgroup",
    "cgroups",
    type=click.Choice(CGROUP_VERSIONS),
    help="Control groups of the hosts: v2 as on DGX OS, v1 where memory limits must hold.",
)
@click.option("--no-services", is_flag=True, help="Only the hosts, without the servers.")
@click.option("--gpu", is_flag=True, help="Give each host an NVIDIA GPU of this machine.")
@_of_a_lab
def up(lab: Lab, count: int | None, cgroups: str | None, no_services: bool, gpu: bool) -> None:
    """Build missing parts, start the hosts, repair a crashed lab."""
    from lab.up import LabRequest
    from lab.up import up as bring_up

    console = _console()
    steps = Steps(console)
    with steps.live_display():
        status = bring_up(lab, LabRequest(count, cgroups, not no_services, gpu), steps)
    console.print(f"lab {lab.name!r} is up")
    for host in status["hosts"]:
        disk = "empty disk" if host.get("fresh") else "disk as it was"
        console.print(f"  {host['name']}  {host['address']:<11}  {disk}")


@lab.command()
@_of_a_lab
def build(lab: Lab) -> None:
    """Prepare the parts that all labs share; starts no host.

    `up` builds missing parts too. This command prepares them beside other work.
    """
    from lab.up import build as build_parts

    console = _console()
    steps = Steps(console)
    with steps.live_display():
        build_parts(lab, steps)
    console.print(f"in {lab.cache}: all that a lab is made of")


@lab.command("copy")
@click.argument("source")
@_of_a_lab
def copy_of(lab: Lab, source: str) -> None:
    """Make a new lab from lab SOURCE.

    SOURCE must be down. The new hosts begin in the state of its hosts.
    """
    from lab.up import copy

    copy(open_lab(source), lab)
    click.echo(f"lab {lab.name!r} is there; bring it up: lockstep lab up --name {lab.name}")


@lab.command()
@click.option("--delete", is_flag=True, help="Cut the power; delete the disks and the lab's key.")
@_of_a_lab
def down(lab: Lab, delete: bool) -> None:
    """Stop the hosts and every process of the lab; disks stay."""
    from lab.copy import require_no_copies
    from lab.host import disk
    from lab.up import down as take_down

    console = _console()
    steps = Steps(console)
    if delete:
        require_no_copies(lab)
    with steps.live_display(), steps.step("down") as report:
        was_up = take_down(lab, report, cut=delete)
        if delete:
            disk.delete(lab)
    console.print(f"lab {lab.name!r} " + ("is down" if was_up else "was not up"))


@lab.command()
@click.option("--json", "as_json", is_flag=True, help="The same facts for programs.")
@_of_a_lab
def status(lab: Lab, as_json: bool) -> None:
    """Show hosts and servers; exit code 1 if one is down."""
    lab_status = control.ask(lab, "status")
    if as_json:
        click.echo(json.dumps(lab_status, indent=2))
    else:
        _print_status(lab_status)
    well = all(host["power"] == "on" for host in lab_status["hosts"])
    sys.exit(0 if well and all(service["running"] for service in lab_status["services"]) else 1)


def _print_status(lab_status: dict[str, Any]) -> None:
    table = Table(box=None, pad_edge=False)
    for heading in ("host", "address", "power", "network", "available"):
        table.add_column(heading)
    for host in lab_status["hosts"]:
        network = "cut" if host["cut"] else f"{host['delay_ms']:g} ms added"
        memory = f"{host['available_gib']} GiB"
        table.add_row(host["name"], host["address"], host["power"], network, memory)
    console = _console()
    console.print(table)
    if lab_status.get("trouble"):
        console.print(f"trouble: {lab_status['trouble']}", style="red")
    running = [f"{s['name']}:{s['port']}" for s in lab_status["services"] if s["running"]]
    stopped_servers = [
        f"{s['name']}:{s['port']}" for s in lab_status["services"] if not s["running"]
    ]
    console.print(f"servers running: {', '.join(running) or 'none'}")
    if stopped_servers:
        console.print(
            f"servers down: {', '.join(stopped_servers)} (logs: {lab_status['state']}/log)"
        )


@lab.command(context_settings={"ignore_unknown_options": True})
@click.argument("host")
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
@_of_a_lab
def ssh(lab: Lab, host: str, command: tuple[str, ...]) -> None:
    """Log in to HOST, or run a COMMAND on it (after --)."""
    description = connection.load(lab.name)
    argv = connection.ssh_command(description, host, command)
    connection.enter(description)
    sys.stdout.flush()
    os.execvp(argv[0], argv)


@lab.command()
@click.argument("host")
@click.option("--off", "power", flag_value="off", help="Only cut the power.")
@click.option("--on", "power", flag_value="on", help="Only restore the power.")
@_of_a_lab
def cycle(lab: Lab, host: str, power: str | None) -> None:
    """Cut the power of HOST without a shutdown, and restore it."""
    _long(lab, host, "cycle", off=power != "on", on=power != "off")


@lab.command()
@click.argument("host")
@_of_a_lab
def wipe(lab: Lab, host: str) -> None:
    """Reset HOST: empty disk, new host keys."""
    _long(lab, host, "wipe")


@lab.command()
@click.argument("host")
@click.argument("milliseconds", type=click.FloatRange(0, 10_000))
@_of_a_lab
def delay(lab: Lab, host: str, milliseconds: float) -> None:
    """Add MILLISECONDS of round trip to HOST's cable.

    HOST `all` means every cable; 0 removes the delay.
    """
    names = [entry["name"] for entry in control.ask(lab, "status")["hosts"]]
    host_names = names if host == "all" else [host]
    control.ask(lab, "delay", hosts=host_names, milliseconds=milliseconds)


_CONNECTX = click.option(
    "--connectx",
    is_flag=True,
    help="The cable of the ConnectX port. The port exists only with it; a boot removes it.",
)


@lab.command()
@click.argument("host")
@_CONNECTX
@_of_a_lab
def cut(lab: Lab, host: str, connectx: bool) -> None:
    """Let HOST's cable drop everything silently, until `mend`."""
    _cable(lab, host, connectx, is_plugged=False)


@lab.command()
@click.argument("host")
@_CONNECTX
@_of_a_lab
def mend(lab: Lab, host: str, connectx: bool) -> None:
    """Repair a cut cable; ends when a login to HOST works again."""
    _cable(lab, host, connectx, is_plugged=True)


def _cable(lab: Lab, host: str, connectx: bool, *, is_plugged: bool) -> None:
    if connectx:
        lab_hosts = hosts(len(control.ask(lab, "status")["hosts"]))
        network.connectx(lab, find_host(lab_hosts, host), is_plugged)
    else:
        control.ask(lab, "cut", host=host, cut=not is_plugged)


@lab.command()
@click.argument("host")
@_of_a_lab
def freeze(lab: Lab, host: str) -> None:
    """Let nothing on HOST run, until `thaw`; its power stays on."""
    control.ask(lab, "freeze", host=host, frozen=True)


@lab.command()
@click.argument("host")
@_of_a_lab
def thaw(lab: Lab, host: str) -> None:
    """Let a frozen HOST go on."""
    control.ask(lab, "freeze", host=host, frozen=False)


@lab.command()
@click.argument("action", type=click.Choice(["stop", "start"]))
@click.argument("names", nargs=-1, metavar="[SERVER]...")
@_of_a_lab
def services(lab: Lab, action: str, names: tuple[str, ...]) -> None:
    """Stop or start the lab's servers: the named ones, or all."""
    control.ask(lab, "services", run=action == "start", names=list(names))


@lab.command()
@click.argument("host")
@click.option(
    "--available", type=click.FloatRange(0, 121), help="GiB while no engine holds memory."
)
@click.option(
    "--rate", type=click.FloatRange(0, min_open=True), help="GiB a second on the way there."
)
@_of_a_lab
def memory(lab: Lab, host: str, available: float | None, rate: float | None) -> None:
    """Show or set the available unified memory of HOST.

    With --rate it falls or rises to it.
    """
    available_gib = control.ask(lab, "memory", host=host, available=available, rate=rate)
    click.echo(f"{host}: {available_gib:.1f} GiB available")


@lab.command()
@click.argument("host")
@click.option("--watts", type=click.FloatRange(0, 500), help="Power.")
@click.option("--clock", type=click.IntRange(0, 4000), help="Clock in MHz, where no cap is below.")
@click.option("--celsius", type=click.IntRange(0, 120), help="Temperature.")
@click.option("--utilization", type=click.IntRange(0, 100), help="Per cent.")
@click.option("--slowed-by", "reasons", multiple=True, metavar="REASON", help="As nvidia-smi.")
@_of_a_lab
def gpu(lab: Lab, host: str, reasons: tuple[str, ...], **figures: float | None) -> None:
    """Have nvidia-smi on HOST show these figures.

    They last until its power is cut.

    Without an option it shows the usual ones again: at rest, or busy while an engine generates.
    REASON is the name of a `clocks_event_reasons` field, such as sw_thermal_slowdown.
    """
    shows: dict[str, Any] = {key: value for key, value in figures.items() if value is not None}
    if reasons:
        shows["reasons"] = reasons
    control.ask(lab, "gpu", host=host, shows=shows)


def _long(lab: Lab, host: str, action: str, **details: Any) -> None:
    lab_hosts = hosts(len(control.ask(lab, "status")["hosts"]))
    find_host(lab_hosts, host)
    steps = Steps(_console())
    with steps.live_display(), steps.step(host) as report:
        report(action)
        control.ask(lab, action, host=host, **details)


if __name__ == "__main__":
    lab()
