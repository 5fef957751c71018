"""The time that an engine needs to load its weights, beside the time that the disk needs.

usage: python -m benchmarks.load --python PYTHON-OF-VLLM [--llama-server PROGRAM] [--out FOLDER]

Disks with set figures (475 MB/s with 0.6 ms as a USB SSD, an NVMe, 10 GbE) hold a checkpoint with
weights of no meaning. The real engine loads it with nothing cached: once as the kernel reads ahead
(128 KiB), once as Lockstep sets it. The plain read of the same bytes (`dd`, direct, 16 MiB) stands
beside both in the same round; the figure is the ratio. First the disk itself is checked: its
sequential rate and its latency must be those that were set.

Needs root, /dev/fuse, a loop device, mkfs.ext4, and in memory twice the checkpoint beside the
engine. Mounts and processes lie in namespaces of their own, and end with it, whatever ends it.
Writes OUT/load.json after each load, and OUT/load.md.

exit codes: 0 every ratio with Lockstep is within 1.25, 1 one is not, or a load failed, 2 wrong use
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.load import device, page
from benchmarks.load.device import DISKS, KERNEL_READ_AHEAD_KB, Disk
from benchmarks.load.engines import Engine, LoadError
from benchmarks.load.ways import CACHED, KERNEL, LOCKSTEP, Way, parse_way

#: Variable that names the folder to work in, inside the namespaces.
_FOLDER = "LOCKSTEP_LOAD_FOLDER"


def main() -> int:
    """Command line; see the module's docstring."""
    options = _options()
    if options.build:
        device.build_program(options.build)
        return 0
    if fault := _fault(options):
        print(f"load: {fault}", file=sys.stderr)
        return 2
    if not os.environ.get(_FOLDER):
        return _in_namespaces()
    options.out.mkdir(parents=True, exist_ok=True)
    results: dict[str, Any] = {"about": _about(options), "disks": [], "loads": [], "failures": []}
    for kind, row in measure(options):
        print(json.dumps(row), flush=True)
        results[kind].append(row)
        (options.out / "load.json").write_text(json.dumps(results, indent=1) + "\n")
        (options.out / "load.md").write_text(page.text(results))
    print(page.text(results))
    return 1 if results["failures"] or not page.is_within_bound(results["loads"]) else 0


def measure(options: argparse.Namespace) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each check of a disk and each load, in the order in which they are made."""
    programs = {"vllm": options.python, "llama": options.llama_server}
    engines = [
        Engine(name, program, dict(options.variable), options.end_command)
        for name, program in programs.items()
        if program
    ]
    disks = dict(options.disk or DISKS.items())
    size = int(options.gib * 2**30)
    folder = os.environ[_FOLDER]
    # A tmpfs of our own ends with the namespace, and its memory with it.
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=0", "load", folder], check=True)
    yield from _measure(options, engines, disks, size, Path(folder))


def _measure(
    options: argparse.Namespace,
    engines: list[Engine],
    disks: dict[str, Disk],
    size: int,
    folder: Path,
) -> Iterator[tuple[str, dict[str, Any]]]:
    program = options.disk_program or device.build_program(folder / "disk")
    image, place, log = folder / "image", folder / "mount", options.out.resolve() / "engine.log"
    for engine in engines:
        device.make_image(image, int(size * 1.03) + 64 * 2**20, partial(engine.write, size=size))
        for name, disk in disks.items():
            with device.slow_disk(program, image, disk) as loop:
                ways = [KERNEL, LOCKSTEP, *options.way, *([CACHED] if options.cached else [])]
                ways = [way for way in ways if way.engine in ("", engine.name)]
                with device.mount(loop, place, KERNEL_READ_AHEAD_KB) as mount_point:
                    files = engine.weights(mount_point)
                    total = sum(path.stat().st_size for path in files)
                yield "disks", {"disk": name, **asdict(disk), **_check(files, loop, place)}
                for number in range(options.rounds):
                    with device.mount(loop, place, KERNEL_READ_AHEAD_KB):
                        plain_s = device.plain_read(files)
                    # The way that begins changes, so that a machine that drifts favours none.
                    for way in turn_ways(ways, number):
                        row: dict[str, Any] = {"engine": engine.name, "disk": name}
                        row["way"] = way.name
                        try:
                            with device.mount(loop, place, way.read_ahead_kb) as mount_point:
                                if way.is_cached:
                                    device.cache(files)
                                found = engine.load(mount_point, way.words, log, options.limit)
                        except LoadError as problem:
                            yield "failures", {**row, "log": str(problem)}
                            continue
                        row |= {"round": number, "bytes": total, "plain_s": plain_s}
                        yield "loads", {**row, **asdict(found)}
        image.unlink()


def turn_ways(ways: Sequence[Way], number: int) -> list[Way]:
    """The ways, beginning with another one in each round."""
    first = number % len(ways)
    return [*ways[first:], *ways[:first]]


def _check(files: Sequence[Path], loop: Path, place: Path) -> dict[str, float]:
    """Measure the disk itself: what arithmetic with its figures must give."""
    with device.mount(loop, place, KERNEL_READ_AHEAD_KB):
        seconds = device.plain_read(files[:1])
        found = {
            "plain_rate": files[0].stat().st_size / seconds,
            "random_s": device.random_read(files[0]),
        }
    for way in (KERNEL, LOCKSTEP):
        with device.mount(loop, place, way.read_ahead_kb):
            found[f"mapped_rate_{way.name}"] = device.mapped_read(files[0])
    return found


def _fault(options: argparse.Namespace) -> str:
    """Say why this machine cannot run it; empty if it can."""
    if os.geteuid() != 0:
        return "only root has loop devices and mounts; run it with sudo"
    programs = ["unshare", "setpriv", "mkfs.ext4", "dd", *([] if options.disk_program else ["cc"])]
    if absent := [name for name in programs if not shutil.which(name)]:
        return f"{', '.join(absent)} not found; install it first"
    if absent := [path for path in ("/dev/fuse", "/dev/loop-control") if not Path(path).exists()]:
        return f"no {', '.join(absent)}; load the kernel's modules fuse and loop"
    meminfo = Path("/proc/meminfo").read_text()
    free_gib = int(meminfo.split("MemAvailable:")[1].split()[0]) / 2**20
    if not os.environ.get(_FOLDER) and free_gib < (needs := 2 * options.gib + 2):
        return f"{free_gib:.1f} GiB of memory are free, {needs:.1f} are needed; lower --gib"
    return ""


def _in_namespaces() -> int:
    """Run this program again in namespaces that end with it, whatever ends it."""
    end_with_parent = ["setpriv", "--pdeathsig", "KILL"]
    apart = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
    again = [sys.executable, "-m", "benchmarks.load", *sys.argv[1:]]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with device.loop_settings_put_back(), tempfile.TemporaryDirectory() as folder:
        environ = {**os.environ, _FOLDER: folder}
        process = subprocess.Popen([*end_with_parent, *apart, *again], env=environ)
        try:
            return process.wait()
        finally:
            # The program inside ends with this one, and takes everything with it.
            process.kill()
            process.wait()


def _parse_disk(text: str) -> tuple[str, Disk]:
    name, _, slower = text.partition("/")
    try:
        disk, factor = DISKS[name], float(slower or 1)
    except (KeyError, ValueError):
        known_names = ", ".join(DISKS)
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a disk ({known_names}) or DISK/N"
        ) from None
    return text, replace(disk, rate=disk.rate / factor, latency=disk.latency * factor)


def _about(options: argparse.Namespace) -> dict[str, Any]:
    return {
        "machine": f"{os.cpu_count()} processors, {platform.machine()}, Linux {platform.release()}",
        "command": f"python -m benchmarks.load {shlex.join(sys.argv[1:])}",
    }


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.load",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--python", help="Python of an environment with vLLM")
    parser.add_argument("--llama-server", help="the program llama-server")
    parser.add_argument("--out", type=Path, default=Path("load"), help="folder (load)")
    parser.add_argument("--gib", type=float, default=2.0, help="size of the checkpoint (2)")
    parser.add_argument("--rounds", type=int, default=3, help="loads of each way (3)")
    parser.add_argument(
        "--disk",
        action="append",
        type=_parse_disk,
        metavar="DISK[/N]",
        help=f"one of {', '.join(DISKS)}; N times slower, for a machine whose processors are too "
        "slow for it: a rate N times lower and a latency N times longer (all three)",
    )
    parser.add_argument(
        "--way",
        action="append",
        type=parse_way,
        default=[],
        metavar="[ENGINE:]NAME=KIB[,WORD...]",
        help="a further way: the device's read-ahead, and words for the engine vllm or llama",
    )
    parser.add_argument(
        "--cached",
        action="store_true",
        help="also with the whole checkpoint in the page cache: what the engine needs by itself",
    )
    parser.add_argument(
        "--variable",
        action="append",
        type=lambda text: text.split("=", 1),
        default=[],
        metavar="NAME=VALUE",
        help="of the engines' environment",
    )
    parser.add_argument(
        "--end-command",
        default="",
        metavar="COMMAND",
        help="ends what outlives a killed engine, as a container does (run by sh after each load)",
    )
    parser.add_argument("--limit", type=float, default=300.0, help="seconds of one load (300)")
    parser.add_argument("--disk-program", type=Path, help="disk.c as compiled elsewhere")
    parser.add_argument("--build", type=Path, metavar="FILE", help="only compile disk.c into FILE")
    options = parser.parse_args()
    if not (options.python or options.llama_server or options.build):
        parser.error("name --python, --llama-server, or both")
    return options


if __name__ == "__main__":
    sys.exit(main())
