"""Programs that a host runs from standard input: it needs nothing of Lockstep, and keeps nothing.

A module of the host's package travels with all that it imports, as an archive that Python imports
from, and with the question that it answers.
"""

from __future__ import annotations

import base64
import io
import json
import zipfile
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any

from lockstep.files.managed_file import PYTHON
from lockstep.files.programs import closure

#: A function of a module of `lockstep.onhost.facts` that reads a host's state.
Reader = Callable[[Any], Any]
FACTS = "lockstep.onhost.facts"

#: Runs on the host: modules of `sent["package"]` can be imported from here on. The archive is a
#: file in memory.
IMPORTER = """\
import base64, importlib, os
archive = os.memfd_create("lockstep")
os.write(archive, base64.b64decode(sent["package"]))
sys.path.insert(0, f"/proc/self/fd/{archive}")
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
        program: Module of the host's package ("facts") whose `take(asked)` answers with JSON.
        asked: The question.
        more: Modules that it imports by names which are not in its text.
    """
    archive = _archived(program, *more)
    return json.dumps({"package": archive, "program": f"lockstep.onhost.{program}", "asked": asked})


def questions(asked: Mapping[str, object]) -> str:
    """What the command reads to ask readers at once; it answers as `facts.take` does.

    Args:
        asked: Name of a reader → question.
    """
    return document("facts", dict(asked), *(f"facts.{name.partition('.')[0]}" for name in asked))


def named(reader: Reader) -> str:
    """The name of a reader: "packages", "packages.every"."""
    module = reader.__module__.removeprefix(f"{FACTS}.")
    return module if reader.__name__ == "read" else f"{module}.{reader.__name__}"


@cache
def _archived(*modules: str) -> str:
    return base64.b64encode(packed(closure(*modules).items())).decode()


def packed(files: Iterable[tuple[str, str]]) -> bytes:
    """An archive of files: (path, text)."""
    with io.BytesIO() as archive:
        with zipfile.ZipFile(archive, "w") as out:
            for path, text in files:
                # Without a date, so that the same files are the same archive.
                out.writestr(zipfile.ZipInfo(path), text, zipfile.ZIP_DEFLATED)
        return archive.getvalue()
