"""`lockstep init`: a folder of the owner's own, and a first look at its hosts."""

from __future__ import annotations

import getpass
import json
import os
import shlex
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import click

from lockstep.cli.common import DONE, FINDINGS, has_errors
from lockstep.core import product
from lockstep.core.errors import InventoryError
from lockstep.core.terminal import print_indented
from lockstep.deploy import first_look, plan
from lockstep.files.templating import render_template
from lockstep.fleet.hosts import at_once, choose
from lockstep.inventory import inventory_file

_INVENTORY = "inventory.py"
_NEXT = (
    ("lockstep plan", "the models of each Spark, and whether they fit"),
    ("lockstep deploy --dry", "what a deploy would change"),
    ("lockstep deploy", "from DGX OS to serving"),
)


@click.command()
@click.argument("hosts", nargs=-1, required=True, metavar="HOST...")
@click.option(
    "--user", help="The account on the Sparks.  [default: as ssh has it; your own name here]"
)
@click.option(
    "--folder",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path(),
    help="Where your files are written.  [default: the present folder]",
)
def init(hosts: tuple[str, ...], user: str | None, folder: Path) -> int:
    """Begin a folder of your own, and look at each Spark.

    HOST is an address, a name of ~/.ssh/config, or @local for this machine. The folder gets an
    inventory, deploy.py, config.py, recipes/ and .gitignore; no existing file is replaced. The same
    command again only looks. The look changes nothing on a host, and no host key is accepted for
    you.

    Exit codes: 0 done; 1 something is missing on a host, and the files are written; 2 wrong use.
    """
    host_data = {name: _data(name, user) for name in hosts}
    if len(host_data) < len(hosts):
        raise InventoryError("a host is named twice", found=" ".join(hosts))
    home = inventory_file.folder_of(folder / _INVENTORY)
    common_data = inventory_file.group_data(folder / _INVENTORY)
    for name, data in host_data.items():
        inventory_file.plan(name, {**common_data, **data}, folder=home)
    files = _files(host_data)
    if all(_text(folder / name) == text for name, text in files.items()):
        click.echo(f"{folder}/ has these files already; only the Sparks are looked at.\n")
    else:
        _write(folder, files)
        click.echo(f"Written to {folder}/: {', '.join(files)}\n")
    good = _look(folder / _INVENTORY)
    click.echo("\nNext:")
    if folder != Path():
        click.echo(f"  cd {shlex.quote(str(folder))}")
    for command, explanation in _NEXT:
        click.echo(f"  {command:<22} # {explanation}")
    return DONE if good else FINDINGS


def _data(name: str, user: str | None) -> dict[str, Any]:
    operators = {"operators": (user or getpass.getuser(),)}
    return {"ssh_user": user, **operators} if user and name != "@local" else operators


def _files(hosts: dict[str, dict[str, Any]]) -> dict[str, str]:
    """Return the text of each file by its path in the owner's folder."""
    literal_hosts = [(_literal(name), _literal(data)) for name, data in hosts.items()]
    copies = {
        name: product.OWNER.joinpath(name.removeprefix(".")).read_text(encoding="utf-8")
        for name in ("deploy.py", "config.py", "recipes/README.md", ".gitignore")
    }
    return {_INVENTORY: render_template(f"owner/{_INVENTORY}.j2", hosts=literal_hosts), **copies}


def _literal(value: Any) -> str:
    """Return a value as Python code, with the quotes that people use."""
    if isinstance(value, dict):
        inner = (f"{_literal(key)}: {_literal(item)}" for key, item in value.items())
        return f"{{{', '.join(inner)}}}"
    return f"({_literal(value[0])},)" if isinstance(value, tuple) else json.dumps(value)


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None


def _write(folder: Path, files: dict[str, str]) -> None:
    # An existing folder of recipes belongs to the owner too.
    tops = dict.fromkeys(name.partition("/")[0] for name in files)
    if obstacles := [name for name in tops if os.path.lexists(folder / name)]:
        raise InventoryError(
            "nothing was written: some of it is there already",
            where=str(folder.absolute()),
            found=", ".join(obstacles),
            remedy="Another Spark is one more entry of the inventory there. Else move these "
            "away, or choose another folder with --folder.",
        )
    written_paths: list[Path] = []
    try:
        for name, text in files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            written_paths.append(path)
            path.write_text(text, encoding="utf-8")
    except OSError as fault:
        for path in written_paths:
            with suppress(OSError):
                path.unlink()
        raise InventoryError(
            "the files cannot be written",
            where=str(folder.absolute()),
            found=fault.strerror or str(fault),
            remedy="Choose another folder with --folder.",
        ) from fault


def _look(inventory: Path) -> bool:
    """Print the look at each host; tell whether nothing is missing."""
    every, _ = choose(inventory)
    downloads = plan.make(inventory).hosts[0].downloads
    pins = first_look.expected_pins(every, downloads)
    weights = sum(item.size or 0 for item in downloads) / 1e9
    good = True
    for readiness in at_once(partial(first_look.look, pins=pins), every):
        missing = has_errors(readiness.findings)
        good = good and not missing
        state = "something is missing" if missing else f"ready for {weights:.1f} GB of weights"
        click.echo(
            f"{readiness.host}: {state}"
            + (f" ({readiness.description})" if readiness.description else "")
        )
        _print(readiness)
    return good


def _print(readiness: first_look.Readiness) -> None:
    for item in readiness.findings:
        mark = "missing" if item.severity == "error" else "warning"
        print_indented(f"{mark}: {item.message}")
        print_indented(f"→ {item.remedy}", 4)
