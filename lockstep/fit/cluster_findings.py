"""Known faults of a recipe on its number of Sparks."""

from __future__ import annotations

from collections.abc import Iterator

from packaging.version import Version

from lockstep.core.findings import Finding
from lockstep.fit.command_checks import Case
from lockstep.models.architecture import Architecture
from lockstep.recipes import flags

_DOCS = "`lockstep help cluster` tells how."


def cluster_findings(case: Case) -> Iterator[Finding]:
    """Every finding about the hosts that a recipe is to run on."""
    needed = max(case.asked.hosts, case.recipe.min_nodes)
    if case.hosts == 1 and needed > 1:
        yield case.error(
            "needs-cluster",
            f"it runs on {needed} Sparks together, and its target is bound to this one alone",
            f"Name {needed} hosts in `clusters`, and the cluster in the target. {_DOCS}",
        )
    if case.hosts == 1:
        return
    yield from _size(case)
    yield from _engine(case)
    yield from _shares(case)


def _size(case: Case) -> Iterator[Finding]:
    least, most = case.recipe.min_nodes, case.recipe.max_nodes
    if case.hosts < least or (most is not None and case.hosts > most):
        span = f"{least}" if most == least else f"{least} to {most or 'any number of'}"
        yield case.error(
            "cluster-size",
            f"it is made for {span} Spark(s), and its cluster has {case.hosts}",
            "Choose a recipe for that number, or another cluster.",
        )
    if case.asked.hosts != case.hosts:
        asked = case.asked
        yield case.error(
            "cluster-degree",
            f"tensor {asked.tensor_parallel} x pipeline {asked.pipeline_parallel} x data "
            f"{asked.data_parallel} parallel is {asked.hosts} Sparks, and its cluster has "
            f"{case.hosts}",
            f"Set overrides of the target (tensor_parallel: {case.hosts}), or change the "
            "hosts of the cluster.",
        )


def _engine(case: Case) -> Iterator[Finding]:
    engine = case.engine
    since = engine.spans_hosts
    if since is None:
        yield case.error(
            "cluster-engine",
            f"{engine.title} serves a model on one host alone",
            "Choose a recipe of the same model for another engine.",
        )
        return
    if case.release is not None and case.release < Version(since):
        yield case.error(
            "cluster-engine",
            f"{engine.title} {case.known_version} runs over several hosts with Ray only",
            f"Pin {engine.title} {since} or later.",
        )
    backend = flags.value_of(case.argv, engine.spellings("distributed_executor_backend"))
    if case.recipe.runtime.endswith("-ray") or backend not in (None, engine.executor):
        yield case.error(
            "cluster-ray",
            f"it asks for {'Ray' if backend in (None, 'ray') else backend}, which Lockstep "
            "does not run",
            f"Remove `--distributed-executor-backend` and the runtime {engine.name}-ray: "
            f"{engine.title}'s own multi-node mode needs neither.",
        )
    copies = case.asked.data_parallel
    if copies > 1 and (not engine.spans_copies or case.asked.shares > 1):
        yield case.error(
            "cluster-copies",
            f"{copies} copies of the model, each "
            + ("over several Sparks" if engine.spans_copies else f"on {engine.title}")
            + ", cannot be served as one",
            "Use tensor or pipeline parallelism alone"
            + (", or data parallelism alone." if engine.spans_copies else "."),
        )


def _shares(case: Case) -> Iterator[Finding]:
    shapes = case.model.architecture
    if shapes is None:
        return
    yield from _heads(case, shapes)
    layers = sum(group.count for group in shapes.layers)
    if case.asked.pipeline_parallel > layers:
        yield case.error(
            "cluster-layers",
            f"{layers} layers cannot be split over {case.asked.pipeline_parallel} Sparks",
            "Lower pipeline_parallel.",
        )


def _heads(case: Case, shapes: Architecture) -> Iterator[Finding]:
    """Attention heads are split evenly; KV heads too, or each is on several."""
    degree = case.asked.tensor_parallel
    remedy = "Set tensor_parallel to a divisor of both, or split the layers: pipeline_parallel."
    if shapes.heads is not None and shapes.heads % degree:
        yield case.error(
            "cluster-heads",
            f"{shapes.heads} attention heads cannot be split evenly over {degree} Sparks",
            remedy,
        )
    kept = sorted({group.kv_heads for group in shapes.layers if group.kv_heads})
    odd = [heads for heads in kept if heads % degree and degree % heads]
    if odd:
        yield case.error(
            "cluster-heads",
            f"{odd[0]} KV heads cannot be split evenly over {degree} Sparks, nor each be kept "
            "on several of them",
            remedy,
        )
