"""A slow cable: carries frames between a host's port and the bridge, each one later.

Run as a program by the supervisor inside the lab's namespace, because this kernel may have no
netem. The port leaves the bridge and is read as a packet socket; a tap takes its place there.
Killing the program unplugs the tap; the guest's own interface never changes.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import select
import socket
import struct
import sys
import time
from collections import deque
from collections.abc import Callable
from typing import Any

_TUNSETIFF = 0x400454CA
_IFF_TAP = 0x0002
_IFF_NO_PI = 0x1000
_ETH_P_ALL = 0x0003
_PACKET_IGNORE_OUTGOING = 23
_SOL_PACKET = 263
_SIOCETHTOOL = 0x8946
_ETHTOOL_STXCSUM = 0x17
_LONGEST_FRAME = 65_600
#: Frames on the way in one direction; more are dropped, as a full queue does.
MOST_FRAMES = 20_000


class Line:
    """One direction: frames come out in order, ``delay`` seconds after they went in."""

    def __init__(self, delay: float) -> None:
        self._delay = delay
        self._frames: deque[tuple[float, bytes]] = deque()

    def put(self, frame: bytes, now: float) -> None:
        """Take a frame, or drop it when the line is full."""
        if len(self._frames) < MOST_FRAMES:
            self._frames.append((now + self._delay, frame))

    def due(self, now: float) -> list[bytes]:
        """The frames whose delay is over."""
        ready = []
        while self._frames and self._frames[0][0] <= now:
            ready.append(self._frames.popleft()[1])
        return ready

    @property
    def next_due(self) -> float | None:
        """The time at which the first frame comes out; None for an empty line."""
        return self._frames[0][0] if self._frames else None


def open_port(name: str) -> socket.socket:
    """Open a socket that gets all frames arriving at interface ``name`` and sends by it."""
    port = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ETH_P_ALL))
    port.setsockopt(_SOL_PACKET, _PACKET_IGNORE_OUTGOING, 1)
    port.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
    port.bind((name, 0))
    port.setblocking(False)
    return port


def open_tap(name: str) -> int:
    """A new tap interface called ``name``, gone when the file is closed."""
    handle = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    fcntl.ioctl(handle, _TUNSETIFF, struct.pack("16sH", name.encode(), _IFF_TAP | _IFF_NO_PI))
    return handle


def transmit_whole_frames(interface: str) -> None:
    """Make ``interface`` send complete checksums and no oversized segments, as user space needs."""
    setting = ctypes.create_string_buffer(struct.pack("II", _ETHTOOL_STXCSUM, 0))
    request = struct.pack("16sP", interface.encode(), ctypes.addressof(setting))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, _SIOCETHTOOL, request.ljust(40, b"\0"))


def carry(port: socket.socket, tap: int, delay: float) -> None:
    """Forward for ever; ``delay`` is one way, in seconds."""
    inward, outward = Line(delay), Line(delay)

    def send(frame: bytes) -> None:
        port.send(frame)

    def write(frame: bytes) -> None:
        os.write(tap, frame)

    while True:
        now = time.monotonic()
        dues = [due for due in (inward.next_due, outward.next_due) if due is not None]
        wait = max(0.0, min(dues) - now) if dues else None
        sources: list[Any] = [port, tap]
        readable, _, _ = select.select(sources, [], [], wait)
        now = time.monotonic()
        if port in readable:
            _take(lambda: port.recv(_LONGEST_FRAME), outward, now)
        if tap in readable:
            _take(lambda: os.read(tap, _LONGEST_FRAME), inward, now)
        _deliver(inward.due(now), send)
        _deliver(outward.due(now), write)


def _take(read: Callable[[], bytes], line: Line, now: float) -> None:
    with contextlib.suppress(BlockingIOError):
        for _ in range(64):
            line.put(read(), now)


def _deliver(frames: list[bytes], send: Callable[[bytes], object]) -> None:
    for frame in frames:
        # An interface that is down or whose queue is full loses the frame, as a cable does.
        with contextlib.suppress(OSError):
            send(frame)


def main(arguments: list[str]) -> None:
    """``PORT TAP MILLISECONDS`` (the whole round trip), or ``--whole-frames INTERFACE``."""
    if arguments[0] == "--whole-frames":
        transmit_whole_frames(arguments[1])
        return
    port, tap, milliseconds = arguments
    handle = open_tap(tap)
    carry(open_port(port), handle, float(milliseconds) / 2000)


if __name__ == "__main__":
    main(sys.argv[1:])
