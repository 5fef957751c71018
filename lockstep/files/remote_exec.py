"""Programs that a host runs from standard input. The host needs nothing of Lockstep beforehand.

A module of the host's package travels with all its imports, as an archive from which Python can
import, and with its question. Nothing stays on the host. A host that has the same files installed
imports those, because they are compiled there (`checked_file_writes`): a third of the time less.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import zipfile
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from lockstep.files.managed_file import PROGRAMS, PYTHON
from lockstep.files.programs import modules_with_imports

#: A function of a module of `lockstep.onhost.facts` that reads a host's state.
Reader = Callable[[Any], Any]
FACTS = "lockstep.onhost.facts"

#: Runs on the host. From here on it can import modules of `sent["package"]`: the installed ones if
#: they are the same, else those of the archive, a file in memory.
IMPORTER = f"""\
import base64, hashlib, importlib, os
sys.dont_write_bytecode = True
def digest(path):
    with open("{PROGRAMS}/" + path, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()
try:
    installed = all(digest(path) == wanted for path, wanted in sent["files"].items())
except OSError:
    installed = False
if installed:
    sys.path.insert(0, "{PROGRAMS}")
else:
    archive = os.memfd_create("lockstep")
    os.write(archive, base64.b64decode(sent["package"]))
    sys.path.insert(0, f"/proc/self/fd/{{archive}}")
program = importlib.import_module(sent["program"])
"""
_BOOT = f"""\
import json, sys
sent = json.loads(%s)
{IMPORTER}
sys.stdout.write(json.dumps(program.answer_request(sent["asked"])))
"""

#: The command on the host. Isolated, so that it imports nothing from a folder of the operator's. It
#: reads the last line of standard input.
COMMAND = (PYTHON, "-I", "-c", _BOOT % r'sys.stdin.read().strip().rpartition("\n")[2]')
#: The same for a program that goes on reading: the first line is the document.
LISTENING = (PYTHON, "-I", "-c", _BOOT % "sys.stdin.readline()")


def program_input(program: str, question: object, *more: str) -> str:
    """Return the command's input, one line.

    Args:
        program: Module of the host's package ("facts"), whose `answer_request(asked)` answers with
            JSON.
        question: The question.
        more: Modules that it imports by names which are not in its text.
    """
    package = _package_document(program, *more)
    return json.dumps({**package, "program": f"lockstep.onhost.{program}", "asked": question})


def readers_input(named_questions: Mapping[str, object]) -> str:
    """Return the command's input for several readers by name.

    The answer is as of `facts.answer_request`.
    """
    return program_input(
        "facts",
        dict(named_questions),
        *(f"facts.{name.partition('.')[0]}" for name in named_questions),
    )


def reader_name(reader: Reader) -> str:
    """Return the name of a reader: "packages", "packages.brought_packages"."""
    module = reader.__module__.removeprefix(f"{FACTS}.")
    return module if reader.__name__ == "read" else f"{module}.{reader.__name__}"


@cache
def _package_document(*modules: str) -> dict[str, Any]:
    return pack_files(modules_with_imports(*modules))


def pack_files(files: Mapping[str, str]) -> dict[str, Any]:
    """Return the "package", an archive of files in base64, and the SHA-256 of each of "files"."""
    with io.BytesIO() as archive:
        with zipfile.ZipFile(archive, "w") as out:
            for path, text in files.items():
                # Without a date, so that the same files make the same archive.
                out.writestr(zipfile.ZipInfo(path), text, zipfile.ZIP_DEFLATED)
        package = base64.b64encode(archive.getvalue()).decode()
    digests = {path: hashlib.sha256(text.encode()).hexdigest() for path, text in files.items()}
    return {"package": package, "files": digests}
