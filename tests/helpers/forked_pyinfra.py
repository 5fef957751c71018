"""pyinfra many times from one process that has imported it and the deploy (`forks`).

Importing them takes more processor time than a deploy to Sparks in memory.
"""

import importlib
import inspect
import os
import secrets
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from secrets import token_hex

from forks import Forks, Run, forks, serve

_REPOSITORY = Path(__file__).parents[2]
#: PYTHONPATH of the modules, if they do not come from a copy of the repository.
PATH = os.pathsep.join(map(str, (_REPOSITORY, Path(__file__).parent)))


def pyinfra(
    *argv: str,
    folder: Path,
    environment: Mapping[str, str] | None = None,
    path: str = PATH,
) -> subprocess.CompletedProcess[str]:
    """Run `pyinfra ARGV` in a folder, as a user types it, with exactly this environment."""
    run = of(path).run
    return run(["pyinfra", *argv], environment or os.environ, folder, limit_s=300)


def start(argv: Sequence[str], folder: Path, environment: Mapping[str, str], output_fd: int) -> Run:
    """Begin `pyinfra ARGV`; both its output streams go to a descriptor."""
    with Path(os.devnull).open() as null_device:
        standard = [null_device.fileno(), output_fd, output_fd]
        return of(PATH).start(["pyinfra", *argv], environment, folder, standard)


def of(path: str) -> Forks:
    """The process that runs pyinfra with modules of this PYTHONPATH."""
    return forks(__file__, path)


#: Random value that a module drew at its import → its size in bytes.
_drawn_values: dict[str, int] = {}


def _draw(size: int) -> str:
    value = token_hex(size)
    _drawn_values[value] = size
    return value


def _draw_anew() -> None:
    """Give this run names and keys of its own, as each process that imports the deploy has.

    A module that has imported such a value from another module gets the same new one.
    """
    anew = {value: token_hex(size) for value, size in _drawn_values.items()}
    for module in list(sys.modules.values()):
        names = vars(module)
        for name, value in list(names.items()):
            if type(value) is str and value in anew:
                names[name] = anew[value]


def _import() -> None:
    """Import all that a deploy imports, in pyinfra's order."""
    secrets.token_hex = _draw
    import pyinfra_cli.main

    pyinfra_cli.main.pyinfra.is_cli = True
    for name in ("pyinfra.connectors.ssh", "lab.host.connection", "fake_spark"):
        importlib.import_module(name)
    importlib.import_module("lockstep.tasks.deploy_stages")
    # pyinfra asks where each operation stands, and reads no source of that place.
    places = importlib.import_module("pyinfra.api.util")
    for name in ("stack", "getframeinfo"):
        setattr(places, name, partial(getattr(inspect, name), context=0))
    # Compile the templates once, not in each run.
    templates = importlib.import_module("lockstep.files.templating").environment()
    for name in templates.list_templates():
        templates.get_template(name)
    # Read the catalogue and our programs once, too.
    importlib.import_module("lockstep.fit.catalogue").load()
    importlib.import_module("lockstep.files.programs").package_texts()
    secrets.token_hex = token_hex


if __name__ == "__main__":
    serve(_import)
    _draw_anew()
    from pyinfra_cli.main import main

    sys.exit(main())
