"""`lockstep deploy` on a terminal of 80×24 and of 120×40, while the hub is slow.

LOCKSTEP_TEST_PICTURES=FOLDER keeps the screens of both as SVG, for the docs.
"""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import termios
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyte
import pytest
from rich.console import Console
from stack import BIN, INVENTORY, REPOSITORY, Stack

FOLDER = "/data/models/huggingface/hub/models--rdtand--Qwen3.6-35B-A3B-PrismaQuant-4.75bit-vllm"
#: Two shards of 24 MB at once: 48 s.
SLOW = {"match": r"PrismaQuant.*\.safetensors", "rate": 500_000}
SMALL, LARGE = (24, 80), (40, 120)
#: Only bounds a hang, seconds.
LIMIT_S = 900.0
_AMOUNT = re.compile(
    # A bar that is there whole: the terminal may be read while a picture is being drawn.
    r"(?=[█░]{24}\s)(?P<bar>█*)░*\s+(?P<have>[\d.]+) of (?P<total>[\d.]+) MB"
    r"(?:, (?P<speed>[\d.]+) MB/s)?(?:, about (?P<left>\d+) (?P<unit>s|min) left)?"
)


@dataclass(frozen=True)
class Picture:
    """A screen with a download on it, and the time at which it was drawn."""

    at: float
    bar: int
    have: float
    total: float
    speed: float | None
    left_s: float | None


@pytest.fixture(autouse=True)
def mended(stack: Stack, first: object) -> Iterator[None]:
    yield
    stack.plant("hub")


def test_bar_rate_and_time_left_are_those_of_the_download(deployed: Stack) -> None:
    deployed.one.root(f"rm -rf {FOLDER}")
    deployed.plant("hub", SLOW)
    pictures, last, ended_at = watched(deployed)
    assert last[0].startswith("Lockstep · ") and "✓ weights" in " ".join(last)
    moving = [each for each in pictures if each.speed is not None]
    assert moving, pictures
    assert moving[0].bar < moving[-1].bar
    assert [each.bar for each in pictures] == sorted(each.bar for each in pictures)
    # What really came, over the time that it took.
    whole_s = ended_at - pictures[0].at
    real = (pictures[0].total - pictures[0].have) / whole_s
    for each in moving:
        assert each.speed == pytest.approx(real, rel=0.2), (real, moving)
        if each.left_s is not None:
            # Less than a minute and a half is shown in steps of ten seconds.
            real_left = ended_at - each.at
            assert each.left_s == pytest.approx(real_left, rel=0.2, abs=11), (real_left, each)


def watched(stack: Stack) -> tuple[list[Picture], list[str], float]:
    """The pictures of a download in a deploy, the last screen, and when the download had ended."""
    screen = pyte.Screen(SMALL[1], SMALL[0])
    stream = pyte.ByteStream(screen)
    ours, theirs = pty.openpty()
    resize(theirs, SMALL)
    words = ["deploy", "-i", str(INVENTORY), "--limit", "spark1", "--yes"]
    environment = {**os.environ, **stack.environment, "TERM": "xterm-256color"}
    for name in ("COLUMNS", "LINES", "NO_COLOR"):
        environment.pop(name, None)
    process = subprocess.Popen(
        [str(BIN / "lockstep"), *words],
        cwd=REPOSITORY,
        env=environment,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    pictures: list[Picture] = []
    ended_at, size, began = 0.0, SMALL, time.monotonic()
    try:
        while data := read(ours):
            assert time.monotonic() - began < LIMIT_S, why_it_hangs(stack, screen)
            stream.feed(data)
            text = " ".join(line.rstrip() for line in screen.display)
            if found := _AMOUNT.search(text):
                pictures.append(picture(found))
                if pictures[-1].speed is not None:
                    keep(screen, size)
                    if size == SMALL and pictures[-1].have > pictures[-1].total * 0.4:
                        size = LARGE
                        resize(ours, LARGE)
                        screen.resize(*LARGE)
            elif pictures and not ended_at and "✓ weights" in text:
                ended_at = time.monotonic()
        assert process.wait(60) == 0, screen.display
    finally:
        process.kill()
        process.wait()
        os.close(ours)
    assert size == LARGE, "the download was over before the terminal grew"
    return pictures, [line.rstrip() for line in screen.display if line.strip()], ended_at


def why_it_hangs(stack: Stack, screen: pyte.Screen) -> str:
    """The screen, the end of the log that it names, and what runs on the host and here."""
    shown = "\n".join(line.rstrip() for line in screen.display)
    logs = sorted((Path.home() / ".local/state/lockstep/deploys").glob("*.log"))
    log = "\n".join(logs[-1].read_text(encoding="utf-8").splitlines()[-40:]) if logs else ""
    processes = "ps -eo pid,ppid,stat,etimes,wchan:20,args | cut -c1-200"
    here = subprocess.run(["sh", "-c", processes], capture_output=True, text=True, check=False)
    return "\n".join((shown, log, stack.one.look(processes).text, here.stdout))


def read(terminal: int) -> bytes:
    """What was drawn; b"" where nobody will draw any more."""
    try:
        return os.read(terminal, 65536)
    except OSError:
        return b""


def resize(terminal: int, size: tuple[int, int]) -> None:
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", *size, 0, 0))


def picture(found: re.Match[str]) -> Picture:
    left = found["left"] and float(found["left"]) * (60 if found["unit"] == "min" else 1)
    return Picture(
        time.monotonic(),
        len(found["bar"]),
        float(found["have"]),
        float(found["total"]),
        float(found["speed"]) if found["speed"] else None,
        left or None,
    )


def keep(screen: pyte.Screen, size: tuple[int, int]) -> None:
    """Write the screen as a picture, where somebody wants it."""
    folder = os.environ.get("LOCKSTEP_TEST_PICTURES")
    if not folder:
        return
    console = Console(record=True, width=size[1], height=size[0], file=open(os.devnull, "w"))  # noqa: PTH123, SIM115
    for line in screen.display:
        console.print(line.rstrip(), markup=False, highlight=False)
    Path(folder, f"deploy-{size[1]}x{size[0]}.svg").write_text(
        console.export_svg(title="lockstep deploy"), encoding="utf-8"
    )
