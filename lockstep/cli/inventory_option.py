"""The inventory that a command works on: given with -i, named by a variable, or found."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from lockstep.core.errors import InventoryError

VARIABLE = "LOCKSTEP_INVENTORY"
_ALONE, _FOLDER = Path("inventory.py"), Path("inventories")
# Where somebody works in a checkout, its own inventory is meant.
_CHECKOUT = Path(__file__).resolve().parents[2]
_OURS = _CHECKOUT / _FOLDER / "spark.py"
_SAY = f"Name it with -i FILE, or set {VARIABLE}."


class _Inventory(click.Option):
    """Says how an inventory is named where somebody gives one as the first word."""

    def handle_parse_result(
        self, context: click.Context, options: Mapping[str, Any], rest: list[str]
    ) -> tuple[Any, list[str]]:
        words = [*_positional(context.command, options), *rest]
        if given := next((word for word in words if word.endswith(".py")), None):
            words.remove(given)
            meant = shlex.join([*context.command_path.split(), "-i", given, *words])
            raise InventoryError("the inventory is an option now", remedy=f"Type `{meant}`.")
        return super().handle_parse_result(context, options, rest)


def _positional(command: click.Command, options: Mapping[str, Any]) -> Iterator[str]:
    for each in command.params:
        value = options.get(each.name or "") if isinstance(each, click.Argument) else None
        yield from (word for word in (value, *_many(value)) if isinstance(word, str))


def _many(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else ()


def _checked(context: click.Context, _: click.Parameter, given: Path | None) -> Path | None:
    return given if context.resilient_parsing else find_inventory(given)


def find_inventory(given: Path | None = None) -> Path:
    """The inventory that is given, or else the one that there is.

    Raises:
        InventoryError: it is no file, or there is none, or more than one.
    """
    if given is not None:
        if not given.is_file():
            what = "a folder is no inventory" if given.is_dir() else "there is no such inventory"
            raise InventoryError(what, where=str(given), remedy=_SAY)
        return given
    if _ALONE.is_file():
        return _ALONE
    several = sorted(path for path in _FOLDER.glob("*.py") if not path.stem.startswith("lab"))
    if len(several) == 1:
        return several[0]
    if Path.cwd().is_relative_to(_CHECKOUT) and _OURS.is_file():
        return _OURS.relative_to(Path.cwd()) if Path.cwd() == _CHECKOUT else _OURS
    if several:
        names = ", ".join(map(str, several))
        raise InventoryError("more than one inventory is here", found=names, remedy=_SAY)
    looked = f"looked for {_ALONE} and {_FOLDER}/*.py in {Path.cwd()}"
    raise InventoryError(f"no inventory is found: {looked}", remedy=_SAY)


def typed(*words: str) -> str:
    """A command of `lockstep` to type, with the inventory that the present one was given."""
    context = click.get_current_context(silent=True)
    if context and context.get_parameter_source("inventory") is ParameterSource.COMMANDLINE:
        words = (*words, "-i", str(context.params["inventory"]))
    return shlex.join(("lockstep", *words))


def _option(callback: Callable[..., Path | None] | None) -> Callable[[Any], Any]:
    return click.option(
        "-i",
        "--inventory",
        cls=_Inventory,
        # Before arguments are judged, one of which may be an inventory.
        is_eager=True,
        type=click.Path(path_type=Path),
        envvar=VARIABLE,
        show_envvar=True,
        callback=callback,
        help="The file of the hosts; the only one here needs no naming.",
    )


INVENTORY = _option(_checked)
#: Of a command that may do without: it asks `find_inventory` where it cannot.
INVENTORY_IF_NEEDED = _option(None)
