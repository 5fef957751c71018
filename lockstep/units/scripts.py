"""Scripts of operators and units: switch.sh, its aliases, launchers, programs."""

from __future__ import annotations

from collections.abc import Sequence

from lockstep.files.managed_file import OPERATORS_GROUP, ManagedFile, Stage, command
from lockstep.files.templating import render_template
from lockstep.inventory.settings import Settings
from lockstep.units.model_variants import Variant

SUDOERS = "/etc/sudoers.d/lockstep"


def switch_path(settings: Settings) -> str:
    """Return the path of switch.sh."""
    return f"{settings.paths.scripts}/llm/switch.sh"


def scripts(settings: Settings, variants: Sequence[Variant]) -> tuple[ManagedFile, ...]:
    """Return switch.sh, one launcher per variant that has one, and the models' alias scripts."""
    switch = switch_path(settings)
    files_found = [
        _script(
            switch,
            render_template(
                "scripts/switch.sh.j2",
                names=[variant.name for variant in variants],
                program=command("switch"),
            ),
        )
    ]
    for variant in variants:
        if variant.launcher:
            text = render_template("scripts/launch.sh.j2", variant=variant, switch=switch)
            files_found.append(_script(variant.launcher, text, "services"))
    for name, model in settings.models.items():
        text = render_template("scripts/alias.sh.j2", name=name, switch=switch)
        files_found += [_script(path, text) for path in model.scripts]
    return tuple(files_found)


def _script(path: str, text: str, stage: Stage = "switch") -> ManagedFile:
    return ManagedFile(path, text, mode="0755", check="shell", stage=stage)


def sudoers(variants: Sequence[Variant]) -> ManagedFile:
    """Return the operators' right to switch: whole argument lists and nothing else."""
    choices = [[variant.name] for variant in variants] + [["none"]]
    allowed_commands = [
        [*choice, *flag]
        for choice in choices
        for flag in ([], ["--wait"], ["--instead"], ["--dry"])
    ]
    allowed_commands += [["cancel"], ["status"], ["status", "--json"], ["status", "--follow"]]
    allowed_commands += [
        ["log", variant.name, *flag] for variant in variants for flag in ([], ["-f"])
    ]
    text = render_template(
        "system/sudoers.j2",
        group=OPERATORS_GROUP,
        commands=[" ".join(command("switch", *words)) for words in allowed_commands],
    )
    return ManagedFile(SUDOERS, text, mode="0440", check="sudoers", stage="switch")
