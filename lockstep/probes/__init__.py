"""Small programs that read a host's state, one round trip each.

Each is sent to the host as it is (`python3 -c SOURCE JSON`) and prints one JSON document. Standard
library only, Python 3.11 or later, no imports from Lockstep: the host may be wiped. What one shares
with the programs on the host (`_SHARED`) is sent with it.
"""

from __future__ import annotations

from importlib import resources

#: Probe → the module of lockstep/onhost that it imports.
_SHARED = {"intruders": "ours", "write_files": "ours"}

_BOTH = """\
import sys, types
shared = sys.modules[{name!r}] = types.ModuleType({name!r})
exec(compile({shared!r}, {name!r}, "exec"), vars(shared))
exec(compile({probe!r}, "probe", "exec"))
"""


def source(name: str) -> str:
    """The text of one probe ("preflight")."""
    probe = (resources.files(__name__) / f"{name}.py").read_text(encoding="utf-8")
    if name not in _SHARED:
        return probe
    shared = resources.files("lockstep.onhost") / f"{_SHARED[name]}.py"
    text = shared.read_text(encoding="utf-8")
    return _BOTH.format(name=_SHARED[name], shared=text, probe=probe)
