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


def test_bar_rate_and_time_left_are_those_of_the_download(deployed_stack: Stack) -> None:
    deployed_stack.spark1.root(f"rm -rf {FOLDER}")
    deployed_stack.plant("hub", SLOW)
    pictures, last, ended_at = watch_deploy(deployed_stack)
    assert last[0].startswith("Lockstep · ") and "✓ weights" in " ".join(last)
    moving = [picture for picture in pictures if picture.speed is not None]
    assert moving, pictures
    assert moving[0].bar < moving[-1].bar
    assert [picture.bar for picture in pictures] == sorted(picture.bar for picture in pictures)
    # What really came, over the time that it took.
    whole_s = ended_at - pictures[0].at
    real = (pictures[0].total - pictures[0].have) / whole_s
    for picture in moving:
        assert picture.speed == pytest.approx(real, rel=0.2), (real, moving)
        if picture.left_s is not None:
            # Less than a minute and a half is shown in steps of ten seconds.
            real_left = ended_at - picture.at
            assert picture.left_s == pytest.approx(real_left, rel=0.2, abs=11), (real_left, picture)


def watch_deploy(stack: Stack) -> tuple[list[Picture], list[str], float]:
    """The pictures of a download in a deploy, the last screen, and when the download had ended."""
    screen = pyte.Screen(SMALL[1], SMALL[0])
    stream = pyte.ByteStream(screen)
    own_end, program_end = pty.openpty()
    resize(program_end, SMALL)
    words = ["deploy", "-i", str(INVENTORY), "--limit", "spark1", "--yes"]
    environment = {**os.environ, **stack.environment, "TERM": "xterm-256color"}
    for name in ("COLUMNS", "LINES", "NO_COLOR"):
        environment.pop(name, None)
    process = subprocess.Popen(
        [str(BIN / "lockstep"), *words],
        cwd=REPOSITORY,
        env=environment,
        stdin=program_end,
        stdout=program_end,
        stderr=program_end,
        start_new_session=True,
    )
    os.close(program_end)
    pictures: list[Picture] = []
    ended_at, size, began = 0.0, SMALL, time.monotonic()
    try:
        while data := read(own_end):
            assert time.monotonic() - began < LIMIT_S, screen.display
            stream.feed(data)
            text = " ".join(line.rstrip() for line in screen.display)
            if match := _AMOUNT.search(text):
                pictures.append(picture(match))
                if pictures[-1].speed is not None:
                    keep(screen, size)
                    if size == SMALL and pictures[-1].have > pictures[-1].total * 0.4:
                        size = LARGE
                        resize(own_end, LARGE)
                        screen.resize(*LARGE)
            elif pictures and not ended_at and "✓ weights" in text:
                ended_at = time.monotonic()
        assert process.wait(60) == 0, screen.display
    finally:
        process.kill()
        process.wait()
        os.close(own_end)
    assert size == LARGE, "the download was over before the terminal grew"
    return pictures, [line.rstrip() for line in screen.display if line.strip()], ended_at


def read(terminal: int) -> bytes:
    """Read the drawn bytes; b"" when nothing will be drawn any more."""
    try:
        return os.read(terminal, 65536)
    except OSError:
        return b""


def resize(terminal: int, size: tuple[int, int]) -> None:
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", *size, 0, 0))


def picture(match: re.Match[str]) -> Picture:
    left_s = match["left"] and float(match["left"]) * (60 if match["unit"] == "min" else 1)
    return Picture(
        time.monotonic(),
        len(match["bar"]),
        float(match["have"]),
        float(match["total"]),
        float(match["speed"]) if match["speed"] else None,
        left_s or None,
    )


def keep(screen: pyte.Screen, size: tuple[int, int]) -> None:
    """Write the screen as a picture, if LOCKSTEP_TEST_PICTURES asks for it."""
    folder = os.environ.get("LOCKSTEP_TEST_PICTURES")
    if not folder:
        return
    console = Console(record=True, width=size[1], height=size[0], file=open(os.devnull, "w"))  # noqa: PTH123, SIM115
    for line in screen.display:
        console.print(line.rstrip(), markup=False, highlight=False)
    Path(folder, f"deploy-{size[1]}x{size[0]}.svg").write_text(
        console.export_svg(title="lockstep deploy"), encoding="utf-8"
    )
