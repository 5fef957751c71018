"""Filter of pyinfra's lines: operations that change nothing are left out, unless with -v.

`lockstep deploy` keeps all lines in its log.
"""

from __future__ import annotations

import logging
import re
from typing import Any

from pyinfra import logger

from lockstep.tasks.run import events_for_parent

_STYLE = re.compile(r"\x1b\[[0-9;]*m")
# Text of pyinfra 3.10. If the text changes, its lines show again, and no other lines are lost.
_OPERATION = "--> Starting operation:"
_CHANGES, _RESULTS = "--> Detected changes:", "--> Results:"
_NO_CHANGES = re.compile(r"\[[^\]]+\] +No changes$")
# Table → a row without content: no changes and no conditional ones; no success and no error.
_ROWS = {
    _CHANGES: re.compile(r".* - +- *$"),
    _RESULTS: re.compile(r"(?!Grand total).* \d+ +- +- +\d+ *$"),
}
_filters: list[_Filter] = []


def leave_out_unchanged_operations(state: Any) -> None:
    """Leave out empty lines, unless a person or program wants every line."""
    everything_wanted = state.print_noop_info or logger.isEnabledFor(logging.DEBUG)
    if not (_filters or everything_wanted or events_for_parent.has_listener()):
        _filters.append(_Filter(state))
        logger.addFilter(_filters[0])


def is_filter_on() -> bool:
    """Tell whether lines are left out."""
    return bool(_filters)


def print_pending_operation() -> None:
    """Print the operation that is about to change something, if it was not printed."""
    for log_filter in _filters:
        log_filter.print_pending_operation()


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
            if not events_for_parent.planned_changes(self._state):
                record.msg = "None."
        elif _NO_CHANGES.match(text) or (row and row.match(text)):
            return False
        self.print_pending_operation()
        return True

    def print_pending_operation(self) -> None:
        record, self._operation = self._operation, None
        for handler in logger.handlers if record else ():
            handler.handle(record)
