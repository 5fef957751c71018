"""`lockstep engine describe`: write down what an installed engine knows, by asking it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import click

from lockstep import catalogue as catalogues
from lockstep.commands.shared import errors_as_sentences
from lockstep.described import parse
from lockstep.engine_names import ENGINES
from lockstep.errors import LockstepError
from lockstep.yamlwrite import replace_file

PROGRAMS = Path(__file__).resolve().parent.parent / "engines"
# Importing vLLM takes about 20 s on two cores; a cold disk ten times that.
TIMEOUT_S = 600


@click.group()
def engine() -> None:
    """Engines: what an installed version knows."""


@engine.command()
@click.option("--engine", "name", type=click.Choice(ENGINES), default="vllm", show_default=True)
@click.option(
    "--python",
    required=True,
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="The interpreter of an environment that has it; vLLM's CPU build will do.",
)
@click.option(
    "--into",
    type=click.Path(path_type=Path, file_okay=False),
    default=catalogues.FOLDER / "engines",
    help="Folder to write to; the catalogue's own by default.",
)
@errors_as_sentences
def describe(name: str, python: Path, into: Path) -> None:
    """Flags, values, variables and registries of an installed engine, into the catalogue.

    Needs no GPU and starts no engine.
    """
    click.echo("Asking the engine; importing it takes a while.", err=True)
    text = _ask(PROGRAMS / f"describe_{name}.py", python)
    said = parse(text, str(python))
    target = into / f"{said.engine}-{said.version}.json"
    replace_file(target, text)
    click.echo(f"Wrote {target.name}: {len(said.flags)} flags, {len(said.environment)} variables.")


def _ask(program: Path, python: Path) -> str:
    quiet = {"VLLM_LOGGING_LEVEL": "ERROR", "VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1"}
    try:
        answer = subprocess.run(
            [str(python), str(program)],
            env={**os.environ, **quiet, "PYTHONDONTWRITEBYTECODE": "1"},
            capture_output=True,
            text=True,
            check=False,
            timeout=TIMEOUT_S,
        )
    except (OSError, subprocess.TimeoutExpired) as fault:
        raise LockstepError(
            "the engine did not answer", where=str(python), found=type(fault).__name__
        ) from fault
    if answer.returncode != 0:
        last = (answer.stderr.strip().splitlines() or ["nothing"])[-1]
        raise LockstepError(
            "the engine could not be asked",
            where=str(python),
            found=last[:120],
            remedy="Name an interpreter whose environment has that engine.",
        )
    return answer.stdout
