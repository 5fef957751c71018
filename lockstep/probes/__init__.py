"""Small programs that read a host's state: a deploy asks as many of them at once as it likes.

Each is a module with `main(question)`, which answers with a JSON document. Standard library only,
Python 3.11 or later, of Lockstep nothing but what is sent with it: the host may be wiped.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import resources

from lockstep.files import sent
from lockstep.files.programs import package

#: Probe that is sent as one argument → the module of lockstep/onhost that it imports.
_SHARED = {"write_files": "records/ours.py"}

_BOTH = """\
import sys, types
for package in {packages!r}:
    sys.modules[package] = types.ModuleType(package)
shared = sys.modules[{name!r}] = types.ModuleType({name!r})
setattr(sys.modules[{packages!r}[-1]], {name!r}.rpartition(".")[2], shared)
exec(compile({shared!r}, {name!r}, "exec"), vars(shared))
exec(compile({probe!r}, "probe", "exec"))
"""


def document(questions: Mapping[str, object]) -> str:
    """What `sent.COMMAND` reads to ask probes at once; it answers as `together.take` does.

    Args:
        questions: Probe → question.
    """
    probes = (f"lockstep.probes.{name}" for name in questions)
    return sent.document("lockstep.probes.together", dict(questions), *probes)


def source(name: str) -> str:
    """The text of one probe ("write_files"), to be sent as one argument."""
    probe = (resources.files(__name__) / f"{name}.py").read_text(encoding="utf-8")
    if name not in _SHARED:
        return probe
    path = f"lockstep/onhost/{_SHARED[name]}"
    module = path.removesuffix(".py").replace("/", ".")
    parts = module.split(".")
    packages = [".".join(parts[:length]) for length in range(1, len(parts))]
    return _BOTH.format(name=module, packages=packages, shared=package()[path], probe=probe)
