"""Known faults of a recipe, before any contact to a host."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from lockstep.core.errors import RecipeError
from lockstep.core.findings import Finding, ordered
from lockstep.fit.advice import advice
from lockstep.fit.catalogue import Catalogue
from lockstep.fit.cluster_findings import cluster_findings
from lockstep.fit.command_checks import case_of, command_findings
from lockstep.fit.fit import Fit, fit
from lockstep.models.licences import judge
from lockstep.recipes.placeholders import engine_of
from lockstep.recipes.recipe_file import Recipe
from lockstep.recipes.sizing import serving


def check(
    recipe: Recipe,
    catalogue: Catalogue,
    *,
    overrides: Mapping[str, object] | None = None,
    engine_version: str | None = None,
    unanswered: str = "",
    hosts: int | None = None,
) -> list[Finding]:
    """Every finding about one recipe, errors first.

    Args:
        recipe: The recipe.
        catalogue: What is known.
        overrides: What the inventory sets (bind address, port, share …).
        engine_version: The engine that will run it, None where it is not known.
        unanswered: Why the engine of its image could not be asked when it was deployed, or "".
        hosts: Sparks of its cluster, 1 without one; None where it is bound to no host yet.
    """
    findings = [
        *_unanswered(recipe, unanswered),
        *_licences(recipe, catalogue.accepted),
        *_known_bad(recipe),
        *_hooks(recipe),
    ]
    try:
        engine = engine_of(recipe)
        if not (recipe.in_container or engine.in_venv):
            raise RecipeError(
                f"{engine.title} runs from an image here, and the recipe names none",
                remedy="Add `container`.",
            )
        known = catalogue.knowledge
        case = case_of(recipe, known, overrides or {}, engine_version, hosts or 1)
        findings += [*command_findings(case), *(cluster_findings(case) if hosts else ())]
    except RecipeError as fault:
        message = f"{fault.what}; found {fault.found}" if fault.found else fault.what
        findings.append(Finding("cannot-run", "error", recipe.name, message, fault.remedy))
    return ordered([*findings, *_fit(recipe, catalogue, overrides or {}, engine_version)])


def _licences(recipe: Recipe, accepted: frozenset[str]) -> Iterator[Finding]:
    draft = recipe.lockstep.draft
    weights = [(recipe.model, recipe.lockstep.licence, "licence")]
    if draft:
        weights.append((draft.model, draft.licence, "draft-licence"))
    for model, licence, code in weights:
        judgement = judge(licence, accepted)
        if judgement == "refused":
            yield Finding(
                f"{code}-refused",
                "error",
                recipe.name,
                f"{model} is under {licence}, which the policy does not accept",
                f"Read it, then add {licence!r} to `accept_licences` of the host or in group data.",
            )
        elif judgement == "unknown":
            found = f"its licence is given as {licence!r}" if licence else "nobody stated it"
            yield Finding(
                f"{code}-unknown",
                "warning",
                recipe.name,
                f"the licence of {model} is not known: {found}",
                "Read the model card and put the SPDX id into the recipe, or "
                f"'{code}-unknown' into `waive` of this host or in group data.",
            )


def _known_bad(recipe: Recipe) -> Iterator[Finding]:
    if recipe.lockstep.known_bad:
        remedy = f"Choose another recipe of {recipe.model}: `lockstep recipe list`."
        yield Finding("known-bad", "error", recipe.name, recipe.lockstep.known_bad, remedy)
    policy = recipe.executor_config.get("restart_policy")
    if policy and policy != "no":
        yield Finding(
            "restart-policy",
            "warning",
            recipe.name,
            f"executor_config.restart_policy {policy!r}: restart loops of Docker leaked "
            "memory until sshd died, and once made 385 restarts",
            "Remove it: here systemd restarts engines, at a bounded rate.",
        )


def _unanswered(recipe: Recipe, reason: str) -> Iterator[Finding]:
    if reason:
        yield Finding(
            "engine-not-asked",
            "warning",
            recipe.name,
            f"the engine inside {recipe.container.partition('@')[0]} could not be asked whether it "
            f"takes the recipe: {reason}",
            "Its start will tell: make it hot once, or bind an image whose engine can be asked.",
        )


def _hooks(recipe: Recipe) -> Iterator[Finding]:
    if recipe.hooks:
        yield Finding(
            "hooks-not-run",
            "error",
            recipe.name,
            f"the recipe relies on {', '.join(sorted(recipe.hooks))}, which Lockstep does not run",
            "Use an image that holds the change already, and remove the key.",
        )


def _fit(
    recipe: Recipe,
    catalogue: Catalogue,
    overrides: Mapping[str, object],
    version: str | None,
) -> Iterator[Finding]:
    try:
        answer = fit(recipe, catalogue.knowledge, asked=serving(recipe, overrides, version))
        yield from _states(recipe, answer)
        if answer.verdict == "fits":
            return
        reasons = "; ".join(answer.reasons)
        if answer.verdict == "unknown":
            remedy = "Put its size and shapes into the catalogue: `lockstep model inspect`."
            yield Finding("fit-unknown", "warning", recipe.name, reasons, remedy)
            return
        remedy = " ".join(advice(recipe, catalogue.recipes, catalogue.knowledge))
    except RecipeError:
        return  # cannot-run says it
    if answer.verdict == "tight":
        yield Finding("fit-tight", "warning", recipe.name, reasons, remedy)
    else:
        message = f"does not fit {answer.hosts} Spark(s): {reasons}"
        yield Finding("fit-none", "error", recipe.name, message, remedy)


def _states(recipe: Recipe, answer: Fit) -> Iterator[Finding]:
    """More sequences at a time than there is room for states: vLLM ends at its start."""
    if answer.verdict == "does not fit" or answer.states is None or not answer.asked_sequences:
        return
    worse, better = answer.states
    if answer.asked_sequences <= worse:
        return
    least = f"{worse} to {better}" if worse != better else f"{better}"
    message = (
        f"{answer.asked_sequences} sequences at a time, and the KV cache has room for the "
        f"states of {least}: vLLM refuses to start with more (max_num_seqs exceeds available "
        "Mamba cache blocks)"
    )
    most = worse or better
    yield Finding(
        "too-many-states",
        "error" if answer.asked_sequences > better else "warning",
        recipe.name,
        message,
        f"Set max_num_seqs to {most} or less, or give more gpu_memory_utilization.",
    )
