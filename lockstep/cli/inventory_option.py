"""The inventory of a command: given with -i, named by a variable, or found."""

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
# Inside a checkout, the default is the inventory of the checkout.
_CHECKOUT = Path(__file__).resolve().parents[2]
_OURS = _CHECKOUT / _FOLDER / "spark.py"
_SAY = f"Name it with -i FILE, or set {VARIABLE}."


class _Inventory(click.Option):
    """An option that explains itself if somebody gives an inventory as the first word."""

    def handle_parse_result(
        self, context: click.Context, options: Mapping[str, Any], remaining_words: list[str]
    ) -> tuple[Any, list[str]]:
        words = [*_positional(context.command, options), *remaining_words]
        if inventory_word := next((word for word in words if word.endswith(".py")), None):
            words.remove(inventory_word)
            suggestion = shlex.join([*context.command_path.split(), "-i", inventory_word, *words])
            raise InventoryError("the inventory is an option now", remedy=f"Type `{suggestion}`.")
        return super().handle_parse_result(context, options, remaining_words)


def _positional(command: click.Command, options: Mapping[str, Any]) -> Iterator[str]:
    for parameter in command.params:
        value = options.get(parameter.name or "") if isinstance(parameter, click.Argument) else None
        yield from (word for word in (value, *_many(value)) if isinstance(word, str))


def _many(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else ()


def _check_inventory(context: click.Context, _: click.Parameter, path: Path | None) -> Path | None:
    return path if context.resilient_parsing else find_inventory(path)


def find_inventory(wanted_path: Path | None = None) -> Path:
    """Return the given inventory, or the only one that there is.

    Raises:
        InventoryError: the path is no file, or there is no inventory, or more than one.
    """
    if wanted_path is not None:
        if not wanted_path.is_file():
            fault = (
                "a folder is no inventory" if wanted_path.is_dir() else "there is no such inventory"
            )
            raise InventoryError(fault, where=str(wanted_path), remedy=_SAY)
        return wanted_path
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
    search_note = f"looked for {_ALONE} and {_FOLDER}/*.py in {Path.cwd()}"
    raise InventoryError(f"no inventory is found: {search_note}", remedy=_SAY)


def command_text(*words: str) -> str:
    """Return a `lockstep` command to type, with the inventory option of the present command."""
    context = click.get_current_context(silent=True)
    if context and context.get_parameter_source("inventory") is ParameterSource.COMMANDLINE:
        words = (*words, "-i", str(context.params["inventory"]))
    return shlex.join(("lockstep", *words))


def _option(callback: Callable[..., Path | None] | None) -> Callable[[Any], Any]:
    return click.option(
        "-i",
        "--inventory",
        cls=_Inventory,
        # The option is judged before the arguments, one of which may be an inventory.
        is_eager=True,
        type=click.Path(path_type=Path),
        envvar=VARIABLE,
        show_envvar=True,
        callback=callback,
        help="The file of the hosts; the only one here needs no naming.",
    )


INVENTORY = _option(_check_inventory)
#: For a command that may need no inventory: it calls `find_inventory` itself if it needs one.
INVENTORY_IF_NEEDED = _option(None)
