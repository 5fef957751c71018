"""Small programs that read a host's state, one round trip each.

Each is sent to the host as it is (`python3 -c SOURCE JSON`) and prints one JSON document. Standard
library only, Python 3.11 or later, no imports from Lockstep: the host may be wiped. What one shares
with the programs on the host (`_SHARED`) is sent with it.
"""

from __future__ import annotations

from importlib import resources

from lockstep.files.programs import package

#: Probe → the module of lockstep/onhost that it imports.
_SHARED = {"intruders": "records/ours.py", "write_files": "records/ours.py"}

_BOTH = """\
import sys, types
for package in {packages!r}:
    sys.modules[package] = types.ModuleType(package)
shared = sys.modules[{name!r}] = types.ModuleType({name!r})
setattr(sys.modules[{packages!r}[-1]], {name!r}.rpartition(".")[2], shared)
exec(compile({shared!r}, {name!r}, "exec"), vars(shared))
exec(compile({probe!r}, "probe", "exec"))
"""


def source(name: str) -> str:
    """The text of one probe ("preflight")."""
    probe = (resources.files(__name__) / f"{name}.py").read_text(encoding="utf-8")
    if name not in _SHARED:
        return probe
    path = f"lockstep/onhost/{_SHARED[name]}"
    module = path.removesuffix(".py").replace("/", ".")
    parts = module.split(".")
    packages = [".".join(parts[:length]) for length in range(1, len(parts))]
    return _BOTH.format(name=module, packages=packages, shared=package()[path], probe=probe)
