"""The error that a request gets in place of an answer."""

from __future__ import annotations


class StandinRefusal(Exception):
    """The request gets an HTTP error of this status."""

    def __init__(self, status: int, message: str, kind: str = "BadRequestError") -> None:
        super().__init__(message)
        self.status = status
        self.kind = kind
