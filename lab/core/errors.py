"""The lab's error: one sentence with its remedy."""

from __future__ import annotations

import textwrap

WIDTH = 80


class LabError(Exception):
    """Expected trouble: ``message`` says what was found, ``remedy`` what to type or change."""

    exit_code = 2

    def __init__(self, message: str, remedy: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy

    def paragraph(self) -> str:
        """One paragraph for a terminal of 80 columns; lines of a log that it quotes stay lines.

        The remedy, often a command to copy, is on the message's line or begins one of its own.
        """
        first, *quoted_lines = self.message.splitlines() or [""]
        line = f"lockstep: {first}" + ("" if quoted_lines else ".")
        if not quoted_lines and len(f"{line} {self.remedy}") <= WIDTH:
            return f"{line} {self.remedy}".rstrip()
        return "\n".join([_wrapped_text(line), *quoted_lines, _wrapped_text(self.remedy)]).rstrip()

    def __str__(self) -> str:
        return f"{self.message}\n{self.remedy}" if self.remedy else self.message


def _wrapped_text(text: str) -> str:
    return textwrap.fill(text, WIDTH, break_long_words=False, break_on_hyphens=False)
