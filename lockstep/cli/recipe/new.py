"""`lockstep recipe new`: a recipe for a repository of the hub, in a folder of the owner's."""

from __future__ import annotations

import datetime
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import click

from lockstep.authoring import binding, place
from lockstep.authoring.kin import kin
from lockstep.authoring.room import Room, room
from lockstep.authoring.text import (
    Draft,
    followed_words,
    guard_words,
    parsers_missing,
    recipe_text,
)
from lockstep.authoring.weights import Weights, read
from lockstep.cli.inventory_option import INVENTORY_IF_NEEDED, find_inventory
from lockstep.cli.shared import DONE, FINDINGS, has_errors, print_findings
from lockstep.core.errors import LockstepError, paragraph
from lockstep.core.terminal import indented
from lockstep.fit import catalogue as catalogues
from lockstep.fit.fit import Fit
from lockstep.fit.recipe_checks import check
from lockstep.inventory import inventory_file
from lockstep.inventory.host import HostPlan
from lockstep.lock.resolve.http import Network
from lockstep.lock.resolve.repository import usual_network
from lockstep.models.known_models import GIB, USUAL
from lockstep.onhost.core.need import rounded_up
from lockstep.onhost.engines import ENGINES
from lockstep.recipes.recipe_file import Recipe, parse


@dataclass(frozen=True)
class _Site:
    """The owner's Sparks, as far as they are known; empty without an inventory.

    Attributes:
        inventory: The file.
        plans: Its hosts.
        files: Key of the first host's data → the file that gives it.
        folders: Folders of recipes that it reads.
    """

    inventory: Path | None = None
    plans: Sequence[HostPlan] = ()
    files: Mapping[str, str] = field(default_factory=dict)
    folders: Collection[Path] = ()

    @property
    def machine(self) -> str:
        """The smallest kind of its machines."""
        hardware = catalogues.knowledge().hardware
        kinds = {catalogues.machine_of(plan.settings) for plan in self.plans} or {USUAL}
        return min(kinds, key=lambda kind: hardware[kind].gib("memory_total_gib"))

    def read(self, name: str, engine: str | None) -> Weights:
        """The weights that a name means, by the sources of this site."""
        if not self.plans:
            return read(name, engine, usual_network())
        settings = self.plans[0].settings
        network = Network(settings.sources, settings.proxy)
        return read(name, engine, network, given=settings.hub_token)


@click.command()
@click.argument("repository")
@click.option("--engine", type=click.Choice(sorted(ENGINES)), help="By the weights otherwise.")
@click.option("--name", help="Name of the recipe; the repository's otherwise.")
@click.option(
    "--folder",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("recipes"),
    show_default=True,
    help="Folder for the recipe; made where it is not there.",
)
@INVENTORY_IF_NEEDED
def new(
    repository: str, engine: str | None, name: str | None, folder: Path, inventory: Path | None
) -> int:
    """Write a recipe for REPOSITORY of the hub: ORGANISATION/NAME, for GGUF with :QUANT.

    The small files of the repository are read, its commit is pinned, and share, context and Sparks
    are computed. Parsers, image and freeze guard are those of the catalogue's recipes of the same
    family. Of an unknown family none is guessed. No host is contacted.

    Exit codes: 0 written; 1 it fits no number of Sparks, or has an error; 2 wrong use, or the hub
    does not show it. With 1 and 2 nothing is written.
    """
    site = _site(inventory)
    known = catalogues.load()
    accepted = {each for plan in site.plans for each in plan.settings.accept_licences}
    known = replace(known, accepted=known.accepted | accepted)
    weights = site.read(repository, engine)
    path = place.recipe_path(folder, place.recipe_name(name, weights.model), known, site.plans)
    port = place.free_port(folder, known, site.plans)
    today = datetime.date.today().isoformat()
    draft = Draft(weights, kin(weights, known), port, today, known.knowledge)
    fits = room(parse(recipe_text(draft), path), known, site.machine)
    if isinstance(fits, Fit):
        return _too_large(weights, fits)
    draft = replace(draft, room=fits)
    text = recipe_text(draft)
    written = parse(text, path)
    hosts = fits.hosts if fits.hosts > 1 else None
    findings = check(written, known, machine=site.machine, hosts=hosts)
    if has_errors(findings):
        print_findings(findings)
        click.echo(f"{path} was not written.")
        return FINDINGS
    _write(path, text)
    click.echo(f"{path}: {weights.at}, on {weights.engine.title}")
    _tell(draft, fits)
    print_findings(findings, with_subject=False)
    _bind(written, folder, site)
    return DONE


def _site(inventory: Path | None) -> _Site:
    """The inventory that is named, or the one that is here; a broken one only where it is named."""
    # The owner's own folder is read without being named.
    nobody = _Site(folders={Path("recipes").resolve()})
    try:
        path = find_inventory(inventory)
    except LockstepError:
        if inventory:
            raise
        return nobody
    try:
        plans = inventory_file.load(path)
    except LockstepError as fault:
        if inventory:
            raise
        click.echo(
            paragraph(f"{path} is wrong, so its Sparks do not count here: {fault}"), err=True
        )
        return nobody
    files = inventory_file.origins(path)[plans[0].name]
    folder = inventory_file.folder_of(path)
    read_here = (inventory_file.recipe_folders(plan.settings, folder) for plan in plans)
    return _Site(path, plans, files, {each for folders in read_here for each in folders})


def _too_large(weights: Weights, why: Fit) -> int:
    size = f"{weights.size / 1e9:.1f} GB ({weights.size / GIB:.1f} GiB) of weights"
    click.echo(paragraph(f"{weights.at}: {size} do not fit. Nothing was written."))
    for reason in why.reasons:
        indented(f"One Spark: {reason}.")
    more = f"{weights.engine.title} serves a model on one host alone."
    indented("Eight Sparks do not hold it either." if weights.engine.spans_hosts else more)
    indented("→ Choose a repository with fewer bits per weight.")
    return FINDINGS


def _write(path: Path, text: str) -> None:
    with LockstepError.instead("the recipe cannot be written", path):
        path.parent.mkdir(parents=True, exist_ok=True)
        # "x": a file that came meanwhile stays.
        with path.open("x", encoding="utf-8") as file:
            file.write(text)


def _tell(draft: Draft, found: Room) -> None:
    """Print the computed figures, from where each part comes, and what is not known."""
    weights, fit = draft.weights, found.fit
    stored = {"none": "not quantised", "": "stored in no way that is known here"}
    size = f"{weights.size / 1e9:.1f} GB, {stored.get(weights.scheme, weights.scheme)}"
    rows = [("weights", size), ("Sparks", f"{found.hosts}{_split(found)}")]
    if fit.host_use_gib:
        rows.append(("memory", f"{fit.host_use_gib:.1f} GiB in use on a Spark while it serves"))
    rows.append(("", f"{rounded_up(fit.needs_gib)} GiB must be available when it starts"))
    if found.context:
        rows.append(("context", f"{found.context} tokens, with room for {fit.sequences} such"))
    rows.append(("port", str(draft.port)))
    followed = draft.kin.followed
    if followed and weights.scheme != "gguf":
        said = [f"{key} {value}" for key, value in draft.kin.values.items()]
        rows.append(("family", f"as recipe {followed_words(draft.kin)}"))
        rows += [("", each) for each in said]
    if guard := guard_words(draft):
        rows.append(("guard", guard))
    for key, value in rows:
        click.echo(f"  {key:<9}{value}")
    for sentence in _unknown(draft, found):
        indented(f"unknown: {sentence}")


def _split(found: Room) -> str:
    if found.hosts == 1:
        return ""
    return ", tensor parallel" if found.tensor > 1 else ", pipeline parallel"


def _unknown(draft: Draft, found: Room) -> list[str]:
    """Sentences about unknown properties, each with its remedy."""
    kin, checkpoint = draft.kin, draft.weights.checkpoint
    said = []
    if parsers_missing(draft):
        types = ", ".join(checkpoint.types) or "not stated"
        other = ENGINES[kin.elsewhere[0]] if kin.elsewhere else None
        remedy = (
            f"The catalogue knows it on {other.title}: --engine {other.name}."
            if other
            else "Add tool_call_parser and reasoning_parser as its model card has them."
        )
        said.append(f"its family (model_type: {types}) on this engine. {remedy}")
    if found.context is None:
        said.append(
            f"the memory of a context ({checkpoint.architecture_unknown}). Set max_model_len, and "
            "watch its first start."
        )
    if checkpoint.template == "none" and draft.weights.scheme != "gguf":
        said.append(
            "how it is talked to: it has no chat template, as base models have none. Name one with "
            "chat_template, or choose the repository of its instruct model."
        )
    return said


def _bind(written: Recipe, folder: Path, site: _Site) -> None:
    """Bind it where somebody can be asked, says yes, and the file is plain; else say how."""
    lines = place.lines(written, folder, site.plans, site.files, site.folders)
    alone = len(lines) == 1 and written.min_nodes == 1
    if site.inventory and alone and _can_ask() and _bound(lines[0], site.inventory):
        click.echo("Bound. `lockstep plan` shows it; then deploy.")
        return
    for line in lines:
        click.echo(f"\nTo bind it, in {line.file}, at {line.key}:\n    {line.text}")
    if written.min_nodes > 1:
        click.echo(f"Its cluster has {written.min_nodes} Sparks: `lockstep help cluster`.")


def _bound(line: place.Line, inventory: Path) -> bool:
    """Whether the line stands in its file now."""
    path = _file_of(line, inventory)
    text = binding.with_target(path, line.text) if path else None
    if not path or not text:
        return False
    try:
        agreed = click.confirm(f"\nBind it in {path}, with this line?\n    {line.text}\n")
    except click.Abort:
        # The recipe is written, so the lines are of use.
        click.echo()
        agreed = False
    refusal = binding.bind(path, text, inventory) if agreed else ""
    if refusal:
        click.echo(paragraph(f"{path} is as it was, because with this line: {refusal}"))
    return agreed and not refusal


def _can_ask() -> bool:
    return sys.stdin.isatty()


def _file_of(line: place.Line, inventory: Path) -> Path | None:
    """The file that `place.lines` named, where it is the inventory or beside it: the owner's."""
    if line.file == inventory.name:
        return inventory
    beside = [folder / line.file for folder in inventory.absolute().parents[:2]]
    return next((path for path in beside if path.is_file()), None)
