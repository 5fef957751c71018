"""Preparation of a deploy before pyinfra reads an inventory: `config.py` imports it.

An inventory that is not Python is refused before it is executed.
"""

from __future__ import annotations

import atexit
import gc
import inspect
import sys
from functools import cache, partial

from pyinfra.api import arguments, util

# The interpreter looks through all objects at each collection and at its end. That took a fifth of
# the processor's time of a deploy that changes nothing, and nothing is found.
gc.set_threshold(100_000)
atexit.register(gc.freeze)

from lockstep.deploy.checked import must_be_python  # noqa: E402

must_be_python(sys.argv[1:])

from lockstep.tasks import run_events  # noqa: E402

run_events.begin_sending()

# For each operation pyinfra looks up the files and lines that called it, and the types of its own
# arguments. It has no use for the text of these files, and the types never change. That took a
# tenth of the processor's time of a deploy that changes nothing.
util.stack = partial(inspect.stack, context=0)
util.getframeinfo = partial(inspect.getframeinfo, context=0)
arguments.all_global_arguments = cache(arguments.all_global_arguments)
