"""Programs that a host runs from standard input: it needs nothing of Lockstep, and keeps nothing.

Standard library only, Python 3.11 or later. A module travels with all that it imports of Lockstep,
and with the question that it answers, as one document.
"""

from __future__ import annotations

import json
from pathlib import Path

from lockstep.files.managed_file import PYTHON
from lockstep.files.programs import imported

_TOP = Path(__file__).resolve().parents[2]

#: Runs on the host: modules of `sent["modules"]` can be imported from here on.
IMPORTER = """\
import importlib.abc, importlib.util
class Sent(importlib.abc.MetaPathFinder, importlib.abc.InspectLoader):
    def find_spec(self, name, path, target=None):
        if name in sent["modules"]:
            return importlib.util.spec_from_loader(name, self)
    def is_package(self, name):
        return any(other.startswith(name + ".") for other in sent["modules"])
    def get_source(self, name):
        return sent["modules"][name]
sys.meta_path.insert(0, Sent())
program = importlib.import_module(sent["program"])
"""
# Reads the last line of standard input.
_BOOT = f"""\
import json, sys
sent = json.loads(sys.stdin.read().strip().rpartition("\\n")[2])
{IMPORTER}
json.dump(program.take(sent["asked"]), sys.stdout)
"""

#: The command on the host. Isolated, so that nothing in a folder of the operator's is imported.
COMMAND = (PYTHON, "-I", "-c", _BOOT)


def document(program: str, asked: object, *more: str) -> str:
    """What the command reads, one line.

    Args:
        program: Module ("lockstep.probes.together") whose `take(asked)` answers with JSON.
        asked: The question.
        more: Modules that it imports by names which are not in its text.
    """
    modules = texts(program, *more)
    return json.dumps({"modules": modules, "program": program, "asked": asked})


def texts(*modules: str) -> dict[str, str]:
    """Modules with all that they import of Lockstep: name → text; a package has none of its own."""
    found: dict[str, str] = {}
    waiting = list(modules)
    while waiting:
        name = waiting.pop()
        path = _TOP / f"{name.replace('.', '/')}.py"
        if not name or name in found:
            continue
        if path.is_file():
            found[name] = path.read_text(encoding="utf-8")
        elif path.with_suffix("").is_dir():
            found[name] = ""
        else:
            # A name in a module.
            continue
        waiting += [*imported(found[name]), name.rpartition(".")[0]]
    return found
