"""Known faults of a recipe, before any contact to a host."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from packaging.version import Version

from lockstep.checkpoints.architecture import KV_ELEMENT_BYTES
from lockstep.checkpoints.known_checkpoints import USUAL
from lockstep.checkpoints.licences import judge
from lockstep.core.errors import RecipeError
from lockstep.core.findings import Finding, in_order
from lockstep.fit.advice import advice
from lockstep.fit.catalogue import Catalogue
from lockstep.fit.cluster_findings import cluster_findings
from lockstep.fit.command_checks import CommandCase, command_findings
from lockstep.fit.fit import UNSAID, Fit, Minimums, fit, unknown_types
from lockstep.recipes.draft import draft_of
from lockstep.recipes.recipe_file import Recipe, with_related_facts
from lockstep.recipes.spelling import nearest_key

# The newest sparkrun whose recipe format was read (core/recipe.py, core/env_templates.py, 2026-11).
_SPARKRUN = (0, 4)


def check(
    recipe: Recipe,
    catalogue: Catalogue,
    *,
    overrides: Mapping[str, object] | None = None,
    machine: str = USUAL,
    minimums: Minimums = UNSAID,
    engine_version: str | None = None,
    silent_reason: str = "",
    entrypoint: Sequence[str] | None = None,
    hosts: int | None = None,
) -> list[Finding]:
    """Return every finding about one recipe, errors first.

    Args:
        overrides: Values that the inventory sets (bind address, port, share …).
        machine: The kind of host, by its name in ``hardware.yaml``.
        minimums: Least MemAvailable while it loads and while it is hot, from the inventory.
        engine_version: The engine that will run it, None where it is not known.
        silent_reason: Why the engine of its image could not be asked at the deploy, or "".
        entrypoint: Words that its image starts before a command, by the lock; None if not known.
        hosts: Sparks of its cluster, 1 without one; None where it is bound to no host yet.
    """
    recipe = with_related_facts(recipe, catalogue.recipes.values())
    case = CommandCase(
        recipe,
        catalogue.knowledge,
        overrides or {},
        engine_version,
        hosts or 1,
        machine=machine,
        minimums=minimums,
        entrypoint=entrypoint,
    )
    findings = [
        *_statement_findings(case, silent_reason),
        *_slips(case, catalogue.recipes.values()),
        *_licences(case, catalogue.accepted_licences),
    ]
    try:
        if not (recipe.in_container or case.engine.in_venv):
            raise RecipeError(
                f"{case.engine.title} runs from an image here, and the recipe names none",
                remedy="Add `container`.",
            )
        findings += [*command_findings(case), *(cluster_findings(case) if hosts else ())]
    except RecipeError as fault:
        message = f"{fault.summary}; found {fault.found}" if fault.found else fault.summary
        message += f"; allowed: {fault.allowed}" if fault.allowed else ""
        findings.append(case.error("cannot-run", message, fault.remedy))
    return in_order([*findings, *_fit(case, catalogue.recipes)])


def _statement_findings(case: CommandCase, silent_reason: str) -> Iterator[Finding]:
    """Yield findings about what the recipe's file says, and what could not be asked."""
    recipe = case.recipe
    if silent_reason:
        yield case.warning(
            "engine-not-asked",
            f"the engine inside {recipe.container.partition('@')[0]} could not be asked whether it "
            f"takes the recipe: {silent_reason}",
            "Its start will tell: make it hot once, or bind an image whose engine can be asked.",
        )
    if recipe.lockstep.known_bad:
        remedy = f"Choose another recipe of {recipe.model}: `lockstep recipe list`."
        yield case.error("known-bad", recipe.lockstep.known_bad, remedy)
    oldest = Version(recipe.min_sparkrun_version or "0")
    if oldest.release[:2] > _SPARKRUN:
        yield case.error(
            "sparkrun-newer",
            f"it is for sparkrun {oldest} or newer, and Lockstep reads the format as "
            f"{'.'.join(map(str, _SPARKRUN))} has it: something may be left out without a word",
            "Compare the command and the environment of `lockstep recipe show` with what is meant, "
            "and lower min_sparkrun_version.",
        )
    policy = recipe.executor_config.get("restart_policy")
    if policy and policy != "no":
        yield case.warning(
            "restart-policy",
            f"executor_config.restart_policy {policy!r}: restart loops of Docker leaked "
            "memory until sshd died, and once made 385 restarts",
            "Remove it: here systemd restarts engines, at a bounded rate.",
        )
    for key, near in recipe.misspelt.items():
        yield case.warning(
            "key-unknown", f"nothing reads the key {key!r} of the recipe", f"Did you mean {near!r}?"
        )
    for key in recipe.conditional:
        yield case.warning(
            "key-unknown",
            f"nothing here reads {key!r}, by which sparkrun changes `defaults`, `env` or "
            "`container` where a condition holds",
            "Write what it gives on this host into these keys, and remove it.",
        )
    if recipe.hooks:
        yield case.error(
            "hooks-not-run",
            f"the recipe relies on {', '.join(sorted(recipe.hooks))}, which Lockstep does not run",
            "Use an image that holds the change already, and remove the key.",
        )


def _slips(case: CommandCase, recipes: Iterable[Recipe]) -> Iterator[Finding]:
    """Yield each key of `defaults` that is a slip of a known one: no flag gets its value."""
    recipe, engine = case.recipe, case.recipe.engine
    # Its own keys are judged here, so they are not among the known ones.
    known_recipes = [replace(recipe, defaults={})]
    known_recipes += [known_recipe for known_recipe in recipes if known_recipe.name != recipe.name]
    # sparkrun's other ways to use a value: `env`, and a default inside another.
    values = " ".join(map(str, (*recipe.env.values(), *recipe.defaults.values())))
    for key in recipe.defaults:
        is_used = f"{{config.{key}}}" in values + recipe.command or f"{{{key}}}" in values
        if engine and not is_used and (near := nearest_key(key, engine, known_recipes)):
            yield case.error(
                "key-unknown",
                f"defaults.{key} is no flag of {engine.title} that is known here, and nothing else "
                "takes its value",
                f"Did you mean {near!r}?",
            )


def _licences(case: CommandCase, accepted_licences: Collection[str]) -> Iterator[Finding]:
    recipe, draft = case.recipe, draft_of(case.recipe)
    weights = [(recipe.model, recipe.lockstep.licence, "licence")]
    if draft:
        weights.append((draft.model, draft.licence, "draft-licence"))
    for model, licence, code in weights:
        judgement = judge(licence, accepted_licences)
        if judgement == "refused":
            yield case.error(
                f"{code}-refused",
                f"{model} is under {licence}, which the policy does not accept",
                f"Read it, then add {licence!r} to `accept_licences` of the host or in group data.",
            )
        elif judgement == "unknown":
            licence_text = f"its licence is given as {licence!r}" if licence else "nobody stated it"
            yield case.warning(
                f"{code}-unknown",
                f"the licence of {model} is not known: {licence_text}",
                "Read the model card and put the SPDX id into the recipe, or "
                f"'{code}-unknown' into `waive` of this host or in group data.",
            )


def _fit(case: CommandCase, recipes: Mapping[str, Recipe]) -> Iterator[Finding]:
    try:
        answer = fit(
            case.recipe,
            case.knowledge,
            machine=case.machine,
            asked=case.serving,
            minimums=case.minimums,
        )
    except RecipeError:
        return  # the finding cannot-run says it
    yield from _states(case, answer)
    reasons = "; ".join(answer.reasons)
    if answer.verdict == "unknown":
        remedy = "Put its size and shapes into the catalogue: `lockstep model inspect`."
        keys = unknown_types(case.serving)
        if keys and case.model.weights_gb and case.model.architecture:
            types = ", ".join(KV_ELEMENT_BYTES)
            remedy = f"Set {' and '.join(keys)} to a type of known size: {types}."
        yield case.warning("fit-unknown", reasons, remedy)
    elif answer.verdict != "fits":
        sentences = advice(
            case.recipe, recipes, case.knowledge, case.machine, case.serving, case.minimums
        )
        remedy = " ".join(sentences)
        if answer.verdict == "tight":
            yield case.warning("fit-tight", reasons, remedy)
        else:
            message = f"does not fit {answer.hosts} Spark(s): {reasons}"
            yield case.error("fit-none", message, remedy)


def _states(case: CommandCase, answer: Fit) -> Iterator[Finding]:
    """Yield a finding where more sequences are asked for than have room for states.

    vLLM ends at its start then.
    """
    if answer.verdict == "does not fit" or answer.states is None or not answer.asked_sequences:
        return
    worse, better = answer.states
    if answer.asked_sequences <= worse:
        return
    least = f"{worse} to {better}" if worse != better else f"{better}"
    finding = case.error if answer.asked_sequences > better else case.warning
    yield finding(
        "too-many-states",
        f"{answer.asked_sequences} sequences at a time, and the KV cache has room for the "
        f"states of {least}: vLLM refuses to start with more (max_num_seqs exceeds available "
        "Mamba cache blocks)",
        f"Set max_num_seqs to {worse or better} or less, or give more gpu_memory_utilization.",
    )
