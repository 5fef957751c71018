"""One stand-in Spark: a systemd-nspawn guest that boots, reboots, and loses its power."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import socket
import stat
import time
from collections.abc import Sequence
from pathlib import Path

from lab.core.errors import LabError
from lab.core.state import Host, Lab
from lab.host import cgroup, connection, disk, gpu, network
from lab.host.memory import Ledger

#: systemd-nspawn's exit status when the guest asked for a reboot.
REBOOT = 133
#: Longest wait for a login, in seconds: a boot takes 2, under load up to 9 (facts of the lab).
LOGIN_LIMIT = 60.0
#: Longest wait for the last unit of the boot after that, in seconds.
BOOT_LIMIT = 30.0
#: Longest wait for a clean shutdown before the power is cut, in seconds.
SHUTDOWN_LIMIT = 15.0
_SYSCTLS = ("vm", "fs/inotify")
#: The sysctl of the console's level, by which messages of the kernel go to netconsole.
_PRINTK = "kernel/printk"
#: Version of control groups a host has: 2 as on DGX OS, 1 where limits must be enforced.
CGROUP_VERSIONS = ("v2", "v1")
#: systemd-nspawn from version 257 on mounts a folder here, and leaves it behind when it is killed.
_EXPORTS = Path("/run/systemd/nspawn/unix-export")
_ENTER_GROUPS = 'while [ "$1" != -- ]; do echo $$ > "$1/cgroup.procs" || exit; shift; done; '
_ENTER_GROUPS += 'shift; exec "$@"'


class Machine:
    """A host's power button. Every method must run in the supervisor's event loop."""

    def __init__(
        self,
        lab: Lab,
        host: Host,
        base: Path,
        lab_hosts: tuple[Host, ...],
        cgroups: str,
        has_gpu: bool = False,
    ) -> None:
        self.host = host
        self.boots = 0
        self.fresh = False
        self._lab = lab
        self._base = base
        self._lab_hosts = lab_hosts
        self._cgroups = cgroups
        self._has_gpu = has_gpu
        self._folder = lab.host_folder(host)
        self.memory = Ledger(self._folder / "kept")
        self._process: asyncio.subprocess.Process | None = None
        self._watch: asyncio.Task[None] | None = None
        self._is_wanted = False
        self._unclean = False
        self._boot_event = asyncio.Event()
        self._notify: asyncio.DatagramTransport | None = None

    @property
    def power(self) -> str:
        """``off``, ``starting`` or ``on`` (the boot is over)."""
        if self._watch is None:
            return "off"
        return "on" if self._boot_event.is_set() else "starting"

    async def power_on(self) -> None:
        """Press the button of a host that is off; returns once the guest is starting."""
        if self._watch is not None:
            return
        if self._unclean:
            await self._clear()
        try:
            self.fresh = disk.mount(self._lab, self.host, self._base, self._lab_hosts)
            network.connect(self._lab, self.host)
            self.memory.reset()
            await self._listen()
        except BaseException:
            self._remains()
            raise
        self._is_wanted = True
        self._watch = asyncio.create_task(self._run())

    async def power_cut(self) -> None:
        """Pull the plug: first the network falls silent, then everything in the guest dies."""
        self._is_wanted = False
        watch = self._watch
        if watch is None:
            return
        network.plug(self._lab, self.host.name, False)
        # Again and again, because a guest that is only just starting has nothing to kill yet.
        while not watch.done():
            self._kill()
            await asyncio.wait({watch}, timeout=0.2)
        # The error that kept the host from ending goes on: its disk must not be touched then.
        await watch

    def freeze(self, is_frozen: bool) -> None:
        """Freeze the guest, or let it go on, like a host that hangs with its power on."""
        (self._group / "cgroup.freeze").write_text(str(int(is_frozen)))

    @property
    def is_frozen(self) -> bool:
        """Tell whether the guest is frozen."""
        return self.power != "off" and (self._group / "cgroup.freeze").read_text().strip() == "1"

    async def power_off(self) -> None:
        """Shut down cleanly; a guest that does not finish in time loses its power."""
        self._is_wanted = False
        if self._watch is None:
            return
        init = cgroup.guest_init(self._group)
        if init is not None:
            os.kill(init, signal.SIGRTMIN + 4)
        finished_tasks, _ = await asyncio.wait({self._watch}, timeout=SHUTDOWN_LIMIT)
        if not finished_tasks:
            await self.power_cut()

    async def ready(self) -> None:
        """Wait until the user can log in and the boot is over; ``LabError`` when no one can."""
        give_up = time.monotonic() + LOGIN_LIMIT
        while not await self._login():
            if self._watch is None:
                raise LabError(f"{self.host.name} went off while starting:\n{self.console()}")
            if time.monotonic() > give_up:
                raise LabError(
                    f"{self.host.name}: no login over SSH within {LOGIN_LIMIT:.0f} s:\n"
                    f"{self.console()}",
                    f"Whole console: {self._console}",
                )
            await asyncio.sleep(0.1)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._boot_event.wait(), BOOT_LIMIT)

    def wipe(self) -> None:
        """Empty the disk of a host that is off; its next boot is a fresh host's."""
        disk.wipe(self._lab, self.host)

    def console(self) -> str:
        """The last lines that the guest or systemd-nspawn printed."""
        with contextlib.suppress(OSError):
            lines = self._console.read_text(errors="replace").splitlines()[-6:]
            return "\n".join(lines) or "  (nothing on its console)"
        return "  (no console)"

    @property
    def _group(self) -> Path:
        return cgroup.make(self._lab, cgroup.host_group(self.host))

    @property
    def _console(self) -> Path:
        return self._lab.log / f"{self.host.name}.console.log"

    @property
    def _notify_path(self) -> Path:
        return self._lab.runtime / f"{self.host.name}.notify"

    async def _run(self) -> None:
        """Boot, and boot again each time the guest reboots, until it is off."""
        try:
            while self._is_wanted:
                self._boot_event.clear()
                self._fresh_sysctls()
                self.boots += 1
                self._process = await self._spawn()
                if await self._process.wait() != REBOOT:
                    break
                self.memory.reset()
        finally:
            self._unclean = True
            try:
                await self._clear()
            finally:
                self._watch = None

    async def _spawn(self) -> asyncio.subprocess.Process:
        name = cgroup.host_group(self.host)
        if self._cgroups == "v1":
            groups = [str(group) for group in cgroup.make_everywhere(self._lab, name)]
        else:
            groups = [str(cgroup.make(self._lab, name))]
        more = self._gpu_options() if self._has_gpu else []
        with self._console.open("ab") as console:
            return await asyncio.create_subprocess_exec(
                *("sh", "-c", _ENTER_GROUPS, "sh", *groups, "--"),
                *nspawn_command(self._lab, self.host, self._cgroups, more),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=console,
                stderr=console,
                env=os.environ
                | {
                    "SYSTEMD_NSPAWN_UNIFIED_HIERARCHY": str(int(self._cgroups == "v2")),
                    "SYSTEMD_NSPAWN_API_VFS_WRITABLE": "network",
                    "NOTIFY_SOCKET": str(self._notify_path),
                },
            )

    def _gpu_options(self) -> list[str]:
        """The words that pass a GPU in, with the CDI file for the host's containers."""
        words = gpu.options(self.host)
        if words:
            cdi = self._folder / "nvidia.yaml"
            cdi.write_text(gpu.cdi_file(words), encoding="ascii")
            words.append(f"--bind-ro={cdi}:/etc/cdi/nvidia.yaml")
            # Sources of mounts below /proc are looked up inside the guest.
            parameters = self._folder / "kept/nvidia-parameters"
            text = Path(gpu.PARAMETERS).read_text(encoding="ascii")
            parameters.write_text(gpu.host_parameters(text), encoding="ascii")
            words.append(f"--bind-ro={disk.SEEN_AS}/{parameters.name}:{gpu.PARAMETERS}")
        return words

    def _kill(self) -> None:
        # Killing systemd-nspawn itself would leave the guest alive.
        init = cgroup.guest_init(self._group)
        if init is not None:
            os.kill(init, signal.SIGKILL)
        elif self._process is not None and self._process.returncode is None:
            self._process.kill()

    async def _clear(self) -> None:
        """Wait for the last process of a guest that is off, then remove what is left of it."""
        group = cgroup.host_group(self.host)
        await asyncio.to_thread(cgroup.destroy, self._lab, group)
        self._remains()
        self._unclean = False

    def _remains(self) -> None:
        """Remove what a guest that is off left: stray processes, network stack, mount."""
        cgroup.destroy(self._lab, cgroup.host_group(self.host))
        network.disconnect(self._lab, self.host)
        disk.unmount(self._lab, self.host)
        disk.remove_export(_EXPORTS / f"{self._lab.name}-{self.host.name}")
        if self._notify is not None:
            self._notify.close()
            self._notify = None

    def _fresh_sysctls(self) -> None:
        """Copy sysctls that the guest may write, with this machine's values from its own start."""
        for name in _SYSCTLS:
            target = self._folder / "kept/sys" / name
            shutil.rmtree(target, ignore_errors=True)
            target.mkdir(parents=True)
            for source in sorted((Path("/proc/sys") / name).iterdir()):
                if source.stat().st_mode & stat.S_IRUSR:
                    with contextlib.suppress(OSError):
                        (target / source.name).write_bytes(source.read_bytes())
                else:
                    # Only ever written: drop_caches, which the ledger sees, and compact_memory.
                    (target / source.name).touch(0o200)
        printk = self._folder / "kept/sys" / _PRINTK
        printk.parent.mkdir(exist_ok=True)
        # Ubuntu sets this value.
        printk.write_text("4 4 1 7\n")

    async def _listen(self) -> None:
        """Hear the guest's systemd say that its boot is over."""
        self._notify_path.unlink(missing_ok=True)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        listener.setblocking(False)
        listener.bind(str(self._notify_path))
        loop = asyncio.get_running_loop()
        boot_event = self._boot_event

        class Listener(asyncio.DatagramProtocol):
            def datagram_received(self, data: bytes, _: object) -> None:
                if b"READY=1" in data.splitlines():
                    boot_event.set()

        self._notify, _ = await loop.create_datagram_endpoint(Listener, sock=listener)

    async def _login(self) -> bool:
        process = await asyncio.create_subprocess_exec(
            *login_command(self._lab, self.host),
            "true",
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
        return await process.wait() == 0


def login_command(lab: Lab, host: Host) -> list[str]:
    """An ``ssh`` command line to ``host``, without a remote command, for inside the namespace."""
    options = {"BatchMode": "yes", "ConnectTimeout": "1"}
    return [
        *connection.client(lab.key, lab.known_hosts, options),
        f"{connection.SSH_USER}@{host.address}",
    ]


def nspawn_command(lab: Lab, host: Host, cgroups: str, more: Sequence[str] = ()) -> list[str]:
    """The whole command line that boots ``host`` in its own time namespace.

    ``more`` are words that give it something of this machine.
    """
    folder = lab.host_folder(host)
    guest_folder = disk.SEEN_AS
    # Rounded down: no clock of the guest may start before zero.
    since_boot = int(time.clock_gettime(time.CLOCK_BOOTTIME))
    awake = int(time.clock_gettime(time.CLOCK_MONOTONIC))
    # Sources of mounts below /proc are looked up inside the guest: hence the folder first.
    binds = [f"{folder / 'kept'}:{guest_folder}", f"{folder / 'kept/held'}:/run/unified-memory"]
    binds += [f"{folder / name}:{inside}" for name, inside in disk.OUTSIDE.items()]
    binds += [f"{guest_folder}/meminfo:/proc/meminfo"]
    binds += [f"{guest_folder}/sys/{name}:/proc/sys/{name}" for name in (*_SYSCTLS, _PRINTK)]
    return [
        *("unshare", "--time", f"--monotonic=-{awake}", f"--boottime=-{since_boot}"),
        "systemd-nspawn",
        f"--directory={folder / 'root'}",
        f"--machine={lab.name}-{host.name}",
        f"--hostname={host.name}",
        f"--network-namespace-path={network.NAMESPACES / lab.host_namespace(host)}",
        *("--console=pipe", "--notify-ready=yes", "--kill-signal=SIGRTMIN+3"),
        *("--register=no", "--keep-unit", "--settings=no", "--quiet"),
        *("--resolv-conf=off", "--timezone=off", "--link-journal=no"),
        "--capability=all",
        f"--drop-capability={','.join(_DROPPED)}",
        "--system-call-filter=add_key keyctl bpf",
        *[f"--bind={bind}" for bind in binds],
        *(more or [_STAND_IN_NODE]),
        *(["--boot"] if cgroups == "v2" else ["/usr/lib/lockstep-lab/init-v1"]),
    ]


#: The node by which the stand-in for nvidia-smi knows whether its caller may see the GPU.
_STAND_IN_NODE = "--bind=/dev/null:/dev/nvidiactl"
#: Capabilities that would reach the machine underneath: its clock, its modules, its hardware.
_DROPPED = ("CAP_SYS_TIME", "CAP_SYS_MODULE", "CAP_SYS_RAWIO")
