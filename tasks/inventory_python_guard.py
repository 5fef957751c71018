"""Preparation of a deploy before pyinfra reads an inventory: `config.py` imports it.

An inventory that is not Python is refused before it is executed. The rest makes a deploy faster:
bytecode, modules for the files of the command line, less work for the garbage collector.
"""

from __future__ import annotations

import gc
import sys

# pyinfra turns the writing of bytecode off. Then each deploy would compile every module of ours, a
# fifth of a no-op's processor time (lab, 2026-11-30).
sys.dont_write_bytecode = bool(sys.flags.dont_write_bytecode)

from lockstep.deploy.checked import must_be_python, name_modules_of_files  # noqa: E402

must_be_python(sys.argv[1:])
name_modules_of_files(sys.argv[1:])

from lockstep.tasks.run import events_for_parent  # noqa: E402

events_for_parent.begin_sending()
# Modules live as long as this process. The garbage collector skips them from now on, also in its
# last run at exit: a tenth of a no-op's time (lab, 2026-11-30).
gc.freeze()
