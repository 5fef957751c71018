"""A screenshot with known words and shapes, as PNG. No model has seen it before."""

from __future__ import annotations

import base64
import secrets
import struct
import zlib
from dataclasses import dataclass

WIDTH, HEIGHT = 640, 360
# Large enough for any vision tower: a letter is 20 by 28 pixels.
SCALE = 4
Colour = tuple[int, int, int]
WHITE, DARK, GREY = (255, 255, 255), (30, 34, 42), (235, 237, 240)
RED, BLUE, GREEN = (214, 40, 40), (30, 90, 220), (20, 140, 70)

# The 5 by 7 dot matrix of character displays: seven rows of five bits each.
_GLYPHS = """
    0 0E11131519110E  1 040C040404040E  2 0E11010204081F  3 1F02040201110E  4 02060A121F0202
    5 1F101E0101110E  6 0608101E11110E  7 1F010204080808  8 0E11110E11110E  9 0E11110F01020C
    A 0E11111F111111  C 0E11101010110E  D 1C12111111121C  E 1F10101E10101F  G 0E11101711110F
    K 11121418141211  L 1010101010101F  O 0E11111111110E  P 1E11111E101010  R 1E11111E141211
    S 0F10100E01011E  T 1F040404040404  Y 1111110A040404
"""
_FONT = dict(zip(_GLYPHS.split()[::2], _GLYPHS.split()[1::2], strict=True))


@dataclass(frozen=True)
class Picture:
    """A screenshot as a file, with every line of text and every shape in it (colour first)."""

    png: bytes
    texts: tuple[str, ...]
    shapes: tuple[str, ...]

    @property
    def url(self) -> str:
        """The picture as a data URL, the form of an image in a request."""
        return "data:image/png;base64," + base64.b64encode(self.png).decode()


def draw() -> Picture:
    """Draw a window with a title, two lines with random numbers, a button and two shapes."""
    numbers = [str(1000 + secrets.randbelow(9000)) for _ in range(2)]
    lines = (f"TARGET {numbers[0]}", f"PORT {numbers[1]}")
    canvas = _Canvas()
    canvas.box(0, 0, WIDTH, 60, DARK)
    canvas.text(24, 16, "LOCKSTEP", WHITE)
    for row, line in enumerate(lines):
        canvas.text(24, 90 + 60 * row, line, DARK)
    canvas.box(24, 240, 200, 70, GREEN)
    canvas.text(54, 260, "READY", WHITE)
    canvas.disc(420, 270, 50, RED)
    canvas.box(510, 220, 100, 100, BLUE)
    shapes = ("red circle", "blue square")
    return Picture(canvas.png(), ("LOCKSTEP", *lines, "READY"), shapes)


class _Canvas:
    def __init__(self) -> None:
        self._rows = [bytearray(bytes(GREY) * WIDTH) for _ in range(HEIGHT)]

    def box(self, x: int, top: int, width: int, height: int, colour: Colour) -> None:
        for row in self._rows[top : top + height]:
            row[3 * x : 3 * (x + width)] = bytes(colour) * width

    def disc(self, x: int, y: int, radius: int, colour: Colour) -> None:
        for row in range(-radius, radius + 1):
            half = int((radius * radius - row * row) ** 0.5)
            self.box(x - half, y + row, 2 * half + 1, 1, colour)

    def text(self, left_edge: int, top: int, text: str, colour: Colour) -> None:
        for column, letter in enumerate(text):
            for row, bits in enumerate(bytes.fromhex(_FONT.get(letter, ""))):
                for bit in range(5):
                    if bits >> (4 - bit) & 1:
                        x = left_edge + SCALE * (6 * column + bit)
                        self.box(x, top + SCALE * row, SCALE, SCALE, colour)

    def png(self) -> bytes:
        raw = b"".join(b"\0" + row for row in self._rows)
        head = struct.pack(">IIBBBBB", WIDTH, HEIGHT, 8, 2, 0, 0, 0)
        parts = ((b"IHDR", head), (b"IDAT", zlib.compress(raw, 9)), (b"IEND", b""))
        return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(kind, data) for kind, data in parts)


def _chunk(kind: bytes, data: bytes) -> bytes:
    checksum = zlib.crc32(kind + data)
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", checksum)
