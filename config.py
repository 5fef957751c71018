"""pyinfra reads this first: an inventory that is not Python is refused before it is executed."""

import atexit
import gc
import sys
from pathlib import Path
from types import ModuleType

from lockstep.deploy.checked import must_be_python

must_be_python(sys.argv[1:])

# For each operation pyinfra looks up the modules of the files that called it. A file that is the
# file of no module has every module searched, many times: a fifth of a deploy that changes nothing.
for deploy in (word for word in sys.argv[1:] if word.endswith("deploy.py")):
    module = sys.modules["deploy"] = ModuleType("deploy")
    module.__file__ = str(Path(deploy).resolve())

# The interpreter looks through every object that there is, at each collection and as it ends. That
# took a fifth of the processor's time of a deploy that changes nothing; nothing is to be found.
gc.set_threshold(100_000)
atexit.register(gc.freeze)
