"""Preparation of a deploy before pyinfra reads an inventory: `config.py` imports it.

An inventory that is not Python is refused before it is executed.
"""

from __future__ import annotations

import sys

from lockstep.deploy.checked import must_be_python

must_be_python(sys.argv[1:])

from lockstep.tasks.run import events_for_parent  # noqa: E402

events_for_parent.begin_sending()
