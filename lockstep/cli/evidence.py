"""`lockstep evidence`: facts of real Sparks, in files without secrets for sending on."""

from __future__ import annotations

import json
import time
from pathlib import Path

import click

from lockstep.cli.common import LIMIT
from lockstep.cli.inventory_option import INVENTORY
from lockstep.core.errors import InventoryError
from lockstep.core.terminal import print_indented
from lockstep.evidence import page, report


@click.command()
@INVENTORY
@click.option(
    "--output",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("evidence"),
    show_default=True,
    metavar="FOLDER",
    help="Folder of the two files; created where it is missing.",
)
@LIMIT
@click.option("--ask-sudo-password", is_flag=True, help="Ask once for sudo's password.")
def evidence(inventory: Path, output: Path, limit: tuple[str, ...], ask_sudo_password: bool) -> int:
    """Describe the Sparks in files for sending in.

    It runs one command on each host, on all at once. It only reads, and needs neither a deploy nor
    a lock. FOLDER gets a page and the same as JSON; no run replaces the files of another.
    Passwords, tokens, keys, serial numbers, addresses, and names of hosts and people are left out.
    `lockstep help evidence` describes the files.

    Exit codes: 0 done; 1 a host or a part of one is missing; 2 wrong use or no host answered.
    """
    password = click.prompt("sudo password", hide_input=True) if ask_sudo_password else None
    host_evidence = report.gather(inventory, limit=limit, password=password)
    for host, why in host_evidence.missing:
        click.echo(f"{host}: missing", err=True)
        print_indented(why)
    if host_evidence.answer_count:
        paths = _write_files(output, host_evidence)
        click.echo("\n".join(map(str, paths)))
        print_indented(
            "Look through the page before you send it: it holds what programs on the hosts have "
            "said. Send in both files.",
            by=0,
        )
    return host_evidence.code


def _write_files(folder: Path, host_evidence: report.Evidence) -> list[Path]:
    """Write both files, under one name that no earlier run used."""
    stem = time.strftime("evidence-%Y%m%d-%H%M%S", time.gmtime())
    texts = {
        "html": page.render(host_evidence.document),
        "json": json.dumps(host_evidence.document, indent=1, ensure_ascii=False) + "\n",
    }
    paths = []
    remedy = "Give a folder that can be written to with --output."
    with InventoryError.instead("the evidence cannot be written", folder, remedy):
        folder.mkdir(parents=True, exist_ok=True)
        for ending, text in texts.items():
            path = folder / f"{stem}.{ending}"
            with path.open("x", encoding="utf-8") as file:
                file.write(text)
            paths.append(path)
    return paths
