"""The one process that owns a lab: hosts, cables and servers; ``up`` starts it, ``down`` ends it.

Run as ``python -m lab.supervisor NAME COUNT BASE CGROUPS [--no-services] [--gpu]``. It answers
one JSON line per connection on the lab's control socket; every answer has ``ok``, and ``result``
or ``error`` and ``remedy``.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from lab import heal
from lab.core.errors import LabError
from lab.core.state import CONTROL_ADDRESS, Host, Lab, find_host, hosts, open_lab
from lab.host import cgroup, disk, network
from lab.host.links import Link
from lab.host.machine import Machine
from lab.servers import Server

#: Seconds between two readings of the memory held on the hosts.
MEMORY_PERIOD = 0.2
#: Seconds between two readings while memory falls or rises on a host.
MOVING_PERIOD = 0.02
Request = dict[str, Any]


class Supervisor:
    """A running lab's hosts, cables and servers, and the requests about them."""

    def __init__(
        self,
        lab: Lab,
        count: int,
        base: Path,
        cgroups: str,
        services: bool,
        has_gpu: bool = False,
    ) -> None:
        self._lab = lab
        self._base = base
        self._services = services
        self._cgroups = cgroups
        self._has_gpu = has_gpu
        self._hosts = hosts(count)
        self._machines = {
            host: Machine(lab, host, base, self._hosts, cgroups, has_gpu) for host in self._hosts
        }
        self._buttons = {host: asyncio.Lock() for host in self._hosts}
        self._links = {host: Link(lab, host) for host in self._hosts}
        self._servers: list[Server] = []
        self._over = asyncio.Event()
        self._trouble: LabError | None = None

    async def run(self) -> None:
        """Bring everything up, serve requests until ``down``, leave nothing behind."""
        network.make_bridge(self._lab)
        network.enter(self._lab.namespace)
        control = await asyncio.start_unix_server(self._serve, self._lab.control_socket)
        self._lab.control_socket.chmod(0o600)
        memory = asyncio.create_task(self._watch_memory())
        try:
            await self._start()
            await self._over.wait()
        except LabError as error:
            self._trouble = error
            await self._over.wait()
        finally:
            control.close()
            memory.cancel()
            await self._stop()

    def end(self) -> None:
        """Make ``run`` finish."""
        self._over.set()

    async def _start(self) -> None:
        if self._services:
            self._servers = _servers(self._lab)
        for server in self._servers:
            server.start()
        for host in self._hosts:
            async with self._buttons[host]:
                await self._power_on(host)
        await asyncio.to_thread(disk.empty_trash, self._lab)

    async def _stop(self) -> None:
        # Leftovers of one host are removed, or reported, with the rest of the lab.
        ends = (machine.power_off() for machine in self._machines.values())
        await asyncio.gather(*ends, return_exceptions=True)
        await asyncio.gather(*(link.remove() for link in self._links.values()))
        await asyncio.gather(*(server.stop() for server in self._servers))

    async def _power_on(self, host: Host) -> None:
        await self._machines[host].power_on()
        disk.write_known_hosts(self._lab, self._hosts)
        await self._links[host].apply()

    async def _watch_memory(self) -> None:
        while True:
            for host, machine in self._machines.items():
                if machine.power == "off":
                    continue
                machine.memory.update()
                button = self._buttons[host]
                if machine.memory.is_frozen and not button.locked():
                    async with button:
                        await machine.power_cut()
            moving = any(machine.memory.moving for machine in self._machines.values())
            await asyncio.sleep(MOVING_PERIOD if moving else MEMORY_PERIOD)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            request = json.loads(await reader.readline())
            answer = {"ok": True, "result": await self._answer(request)}
        except LabError as error:
            answer = {"ok": False, "error": error.message, "remedy": error.remedy}
        except Exception as error:
            answer = {"ok": False, "error": f"supervisor: {error!r}", "remedy": ""}
        with contextlib.suppress(ConnectionError):
            writer.write(json.dumps(answer).encode() + b"\n")
            await writer.drain()
        writer.close()

    async def _answer(self, request: Request) -> Any:
        actions: dict[str, Callable[[Request], Awaitable[Any]]] = {
            "status": self._status,
            "ready": self._ready,
            "cycle": self._cycle,
            "wipe": self._wipe,
            "delay": self._delay,
            "cut": self._cut,
            "freeze": self._freeze,
            "memory": self._memory,
            "gpu": self._gpu,
            "services": self._switch_services,
            "down": self._down,
        }
        return await actions[request["action"]](request)

    async def _status(self, _: Request) -> Any:
        return {
            "name": self._lab.name,
            "state": str(self._lab.state),
            "base": str(self._base),
            "cgroups": self._cgroups,
            "gpu": self._has_gpu,
            "trouble": str(self._trouble) if self._trouble else None,
            "supervisor": os.getpid(),
            "hosts": [self._host_status(host) for host in self._hosts],
            "services": [
                {
                    "name": server.service.name,
                    "port": server.service.port,
                    "running": server.running,
                    "starts": server.starts,
                }
                for server in self._servers
            ],
        }

    def _host_status(self, host: Host) -> dict[str, Any]:
        machine, link = self._machines[host], self._links[host]
        return {
            "name": host.name,
            "address": host.address,
            "power": "frozen" if machine.is_frozen else machine.power,
            "fresh": machine.fresh,
            "boots": machine.boots,
            "delay_ms": link.delay,
            "cut": link.cut,
            "available_gib": round(machine.memory.available, 1),
        }

    async def _ready(self, request: Request) -> None:
        """Wait for one server."""
        servers_by_name = {server.service.name: server for server in self._servers}
        await servers_by_name[request["service"]].ready()

    async def _switch_services(self, request: Request) -> None:
        """Stop or start servers by name; all without a name."""
        servers_by_name = {server.service.name: server for server in self._servers}
        unknown = [name for name in request["names"] if name not in servers_by_name]
        if unknown:
            raise LabError(
                f"no server is called {', '.join(unknown)}",
                f"There are {', '.join(servers_by_name)}.",
            )
        chosen_servers = [servers_by_name[name] for name in request["names"] or servers_by_name]
        if request["run"]:
            for server in chosen_servers:
                server.start()
            await asyncio.gather(*(server.ready() for server in chosen_servers))
        else:
            await asyncio.gather(*(server.stop() for server in chosen_servers))

    async def _cycle(self, request: Request) -> None:
        """Cut the power, give it, or both; a host that has power keeps it."""
        host = find_host(self._hosts, request["host"])
        async with self._buttons[host]:
            if request["off"]:
                await self._machines[host].power_cut()
            if request["on"]:
                await self._power_on(host)
        if request["on"]:
            await self._machines[host].ready()

    async def _wipe(self, request: Request) -> None:
        host = find_host(self._hosts, request["host"])
        async with self._buttons[host]:
            await self._machines[host].power_cut()
            self._machines[host].wipe()
            await self._power_on(host)
        await self._machines[host].ready()
        await asyncio.to_thread(disk.empty_trash, self._lab)

    async def _delay(self, request: Request) -> None:
        for name in request["hosts"]:
            host = find_host(self._hosts, name)
            self._links[host].delay = request["milliseconds"]
            if self._machines[host].power != "off":
                await self._links[host].apply()

    async def _cut(self, request: Request) -> None:
        """Cut the cable, or mend it and wait until a login to the host works again."""
        host = find_host(self._hosts, request["host"])
        link, machine = self._links[host], self._machines[host]
        is_mended = link.cut and not request["cut"]
        link.cut = request["cut"]
        if machine.power == "off":
            return
        await link.apply()
        if is_mended:
            await machine.ready()

    async def _freeze(self, request: Request) -> None:
        """Freeze a host that has power, or let it go on."""
        host = find_host(self._hosts, request["host"])
        async with self._buttons[host]:
            if self._machines[host].power == "off":
                raise LabError(f"{host.name} is off", f"Run: lockstep lab cycle {host.name} --on")
            self._machines[host].freeze(request["frozen"])

    async def _memory(self, request: Request) -> float:
        machine = self._machines[find_host(self._hosts, request["host"])]
        if request["available"] is not None:
            if machine.power == "off":
                machine.memory.idle = request["available"]
            else:
                machine.memory.move(request["available"], request["rate"])
        return machine.memory.available

    async def _gpu(self, request: Request) -> None:
        """Have nvidia-smi show other figures from now on; {} shows the usual ones again."""
        machine = self._machines[find_host(self._hosts, request["host"])]
        machine.memory.share("gpu.json", request["shows"])

    async def _down(self, request: Request) -> None:
        """End; with the power of all hosts cut where nobody wants their disks any more."""
        try:
            if request["cut"]:
                await asyncio.gather(*(machine.power_cut() for machine in self._machines.values()))
        finally:
            self.end()


def _servers(lab: Lab) -> list[Server]:
    from lab.services import start_commands

    return [
        Server(lab, command) for command in start_commands(lab.cache, lab.state, CONTROL_ADDRESS)
    ]


async def _main(supervisor: Supervisor) -> None:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        loop.add_signal_handler(number, supervisor.end)
    await supervisor.run()


def main(name: str, count: str, base: str, cgroups: str, *options: str) -> None:
    """Own the lab until it is taken down; the lab's lock is held while this process lives."""
    lab = open_lab(name)
    handle = os.open(lab.supervisor_lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.ftruncate(handle, 0)
    os.write(handle, json.dumps({"state": str(lab.state), "process": os.getpid()}).encode())
    (cgroup.make(lab, "supervisor") / "cgroup.procs").write_text(str(os.getpid()))
    try:
        services = "--no-services" not in options
        has_gpu = "--gpu" in options
        supervisor = Supervisor(lab, int(count), Path(base), cgroups, services, has_gpu)
        asyncio.run(_main(supervisor))
    finally:
        heal.clean(lab, keep_own_group=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
