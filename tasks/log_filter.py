"""pyinfra's lines without those of operations that change nothing; with -v it says them all.

`lockstep deploy` keeps all of them in its log.
"""

from __future__ import annotations

import logging
import re
from typing import Any

from pyinfra import logger

from lockstep.tasks import events

_STYLE = re.compile(r"\x1b\[[0-9;]*m")
# As pyinfra 3.10 says it. In other words its lines are there again, and none of another kind goes.
_OPERATION = "--> Starting operation:"
_CHANGES, _RESULTS = "--> Detected changes:", "--> Results:"
_UNCHANGED = re.compile(r"\[[^\]]+\] +No changes$")
# Table → a row of nothing: no changes and no conditional ones; no success and no error.
_ROWS = {
    _CHANGES: re.compile(r".* - +- *$"),
    _RESULTS: re.compile(r"(?!Grand total).* \d+ +- +- +\d+ *$"),
}
_filters: list[_Filter] = []


def quieten_log(state: Any) -> None:
    """Leave out what says nothing, unless somebody asks for every line or reads them all."""
    asked = state.print_noop_info or logger.isEnabledFor(logging.DEBUG)
    if not (_filters or asked or events.heard()):
        _filters.append(_Filter(state))
        logger.addFilter(_filters[0])


def is_on() -> bool:
    """Whether lines are left out."""
    return bool(_filters)


def say_operation() -> None:
    """Say which operation is under way, if that was not said: it is about to change something."""
    for each in _filters:
        each.say_operation()


class _Filter(logging.Filter):
    def __init__(self, state: Any) -> None:
        super().__init__()
        self._state = state
        self._heading = ""
        self._operation: logging.LogRecord | None = None

    def filter(self, record: logging.LogRecord) -> bool:
        text = _STYLE.sub("", record.getMessage())
        if text.startswith("-->"):
            self._heading = text
            self._operation = record if text.startswith(_OPERATION) else None
            return self._operation is None
        row = _ROWS.get(self._heading)
        if self._heading == _CHANGES and text.startswith("Operation "):
            if not events.would(self._state):
                record.msg = "None."
        elif _UNCHANGED.match(text) or (row and row.match(text)):
            return False
        self.say_operation()
        return True

    def say_operation(self) -> None:
        record, self._operation = self._operation, None
        for handler in logger.handlers if record else ():
            handler.handle(record)
