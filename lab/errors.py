"""What goes wrong in the lab, said in one sentence with its remedy."""

from __future__ import annotations


class LabError(Exception):
    """Expected trouble: ``message`` says what was found, ``remedy`` what to type or change."""

    exit_code = 2

    def __init__(self, message: str, remedy: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.message}\n{self.remedy}" if self.remedy else self.message
