"""Known faults of a recipe on its number of Sparks."""

from __future__ import annotations

from collections.abc import Iterator

from packaging.version import Version

from lockstep.checkpoints.architecture import Architecture
from lockstep.core.findings import Finding
from lockstep.fit.command_checks import CommandCase
from lockstep.recipes import flags

_DOCS = "`lockstep help cluster` tells how."


def cluster_findings(case: CommandCase) -> Iterator[Finding]:
    """Yield every finding about the hosts that a recipe is to run on."""
    needed_hosts = max(case.serving.hosts, case.recipe.min_nodes)
    if case.hosts == 1 and needed_hosts > 1:
        yield case.error(
            "needs-cluster",
            f"it runs on {needed_hosts} Sparks together, and its model is bound to this one alone",
            f"Name {needed_hosts} hosts in `clusters`, and the cluster in the model. {_DOCS}",
        )
    if case.hosts == 1:
        return
    yield from _size(case)
    yield from _engine(case)
    yield from _shares(case)


def _size(case: CommandCase) -> Iterator[Finding]:
    least, most = case.recipe.min_nodes, case.recipe.max_nodes
    if case.hosts < least or (most is not None and case.hosts > most):
        span = f"{least}" if most == least else f"{least} to {most or 'any number of'}"
        yield case.error(
            "cluster-size",
            f"it is made for {span} Spark(s), and its cluster has {case.hosts}",
            "Choose a recipe for that number, or another cluster.",
        )
    if case.serving.hosts != case.hosts:
        serving = case.serving
        yield case.error(
            "cluster-degree",
            f"tensor {serving.tensor_parallel} x pipeline {serving.pipeline_parallel} x data "
            f"{serving.data_parallel} parallel is {serving.hosts} Sparks, and its cluster has "
            f"{case.hosts}",
            f"Set overrides of the model (tensor_parallel: {case.hosts}), or change the "
            "hosts of the cluster.",
        )


def _engine(case: CommandCase) -> Iterator[Finding]:
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
    copies = case.serving.data_parallel
    if copies > 1 and (not engine.spans_copies or case.serving.shares > 1):
        yield case.error(
            "cluster-copies",
            f"{copies} copies of the model, each "
            + ("over several Sparks" if engine.spans_copies else f"on {engine.title}")
            + ", cannot be served as one",
            "Use tensor or pipeline parallelism alone"
            + (", or data parallelism alone." if engine.spans_copies else "."),
        )


def _shares(case: CommandCase) -> Iterator[Finding]:
    shapes = case.model.architecture
    if shapes is None:
        return
    yield from _heads(case, shapes)
    layers = sum(group.count for group in shapes.layers)
    if case.serving.pipeline_parallel > layers:
        yield case.error(
            "cluster-layers",
            f"{layers} layers cannot be split over {case.serving.pipeline_parallel} Sparks",
            "Lower pipeline_parallel.",
        )


def _heads(case: CommandCase, shapes: Architecture) -> Iterator[Finding]:
    """Yield findings where attention heads cannot be split evenly.

    KV heads are split evenly too, or each is kept on several Sparks.
    """
    degree = case.serving.tensor_parallel
    remedy = "Set tensor_parallel to a divisor of both, or split the layers: pipeline_parallel."
    if shapes.heads is not None and shapes.heads % degree:
        yield case.error(
            "cluster-heads",
            f"{shapes.heads} attention heads cannot be split evenly over {degree} Sparks",
            remedy,
        )
    head_counts = sorted({group.kv_heads for group in shapes.layers if group.kv_heads})
    odd = [heads for heads in head_counts if heads % degree and degree % heads]
    if odd:
        yield case.error(
            "cluster-heads",
            f"{odd[0]} KV heads cannot be split evenly over {degree} Sparks, nor each be kept "
            "on several of them",
            remedy,
        )
