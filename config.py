"""pyinfra reads this first: an inventory that is not Python is refused before it is executed."""

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
