"""Known faults of a recipe on its number of Sparks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from packaging.version import Version

from lockstep.core.errors import RecipeError
from lockstep.core.findings import Finding
from lockstep.fit import engine_version
from lockstep.models.architecture import Architecture
from lockstep.models.known_models import Knowledge
from lockstep.recipes import flags
from lockstep.recipes.command import serve_command
from lockstep.recipes.placeholders import engine_of
from lockstep.recipes.recipe_file import Recipe
from lockstep.recipes.sizing import Serving, serving
from lockstep.recipes.stated import stated_architecture

_DOCS = "docs/cluster.md tells how."


def cluster_findings(
    recipe: Recipe,
    knowledge: Knowledge,
    *,
    hosts: int,
    overrides: dict[str, object],
    engine_version: str | None = None,
) -> list[Finding]:
    """Every finding about the hosts that a recipe is to run on.

    Args:
        recipe: The recipe.
        knowledge: Models of the catalogue.
        hosts: Sparks of its cluster; 1 without one.
        overrides: What the inventory sets.
        engine_version: The engine that will run it, None where it is not known.
    """
    if recipe.engine is None:
        return []
    # As the recipe asks for it: a cluster replaces the executor.
    asked = {
        key: value for key, value in overrides.items() if key != "distributed_executor_backend"
    }
    try:
        argv = serve_command(recipe, overrides=asked)
        case = _Case(recipe, knowledge, hosts, serving(recipe, asked), argv, engine_version)
    except RecipeError:
        return []  # `check` says it
    return list(case.findings())


@dataclass(frozen=True)
class _Case:
    """One recipe with what the inventory sets, on a number of hosts."""

    recipe: Recipe
    knowledge: Knowledge
    hosts: int
    asked: Serving
    argv: tuple[str, ...]
    version: str | None

    def findings(self) -> Iterator[Finding]:
        needed = max(self.asked.hosts, self.recipe.min_nodes)
        if self.hosts == 1 and needed > 1:
            yield self.error(
                "needs-cluster",
                f"it runs on {needed} Sparks together, and its target is bound to this one alone",
                f"Name {needed} hosts in `clusters`, and the cluster in the target. {_DOCS}",
            )
        if self.hosts == 1:
            return
        yield from self.size()
        yield from self.engine()
        yield from self.shares()

    def error(self, code: str, message: str, remedy: str) -> Finding:
        return Finding(code, "error", self.recipe.name, message, remedy)

    def size(self) -> Iterator[Finding]:
        least, most = self.recipe.min_nodes, self.recipe.max_nodes
        if self.hosts < least or (most is not None and self.hosts > most):
            span = f"{least}" if most == least else f"{least} to {most or 'any number of'}"
            yield self.error(
                "cluster-size",
                f"it is made for {span} Spark(s), and its cluster has {self.hosts}",
                "Choose a recipe for that number, or another cluster.",
            )
        if self.asked.hosts != self.hosts:
            tensor, pipeline, data = (
                self.asked.tensor_parallel,
                self.asked.pipeline_parallel,
                self.asked.data_parallel,
            )
            yield self.error(
                "cluster-degree",
                f"tensor {tensor} x pipeline {pipeline} x data {data} parallel is "
                f"{self.asked.hosts} Sparks, and its cluster has {self.hosts}",
                f"Set overrides of the target (tensor_parallel: {self.hosts}), or change the "
                "hosts of the cluster.",
            )

    def engine(self) -> Iterator[Finding]:
        engine, release = engine_of(self.recipe), engine_version.release(self.version)
        since = engine.spans_hosts
        if since is None:
            yield self.error(
                "cluster-engine",
                f"{engine.title} serves a model on one host alone",
                "Choose a recipe of the same model for another engine.",
            )
            return
        if release is not None and release < Version(since):
            yield self.error(
                "cluster-engine",
                f"{engine.title} {self.version} runs over several hosts with Ray only",
                f"Pin {engine.title} {since} or later.",
            )
        backend = flags.value_of(self.argv, engine.spellings("distributed_executor_backend"))
        if self.recipe.runtime.endswith("-ray") or backend not in (None, engine.executor):
            yield self.error(
                "cluster-ray",
                f"it asks for {'Ray' if backend in (None, 'ray') else backend}, which Lockstep "
                "does not run",
                f"Remove `--distributed-executor-backend` and the runtime {engine.name}-ray: "
                f"{engine.title}'s own multi-node mode needs neither.",
            )
        copies = self.asked.data_parallel
        if copies > 1 and (not engine.spans_copies or self.asked.shares > 1):
            yield self.error(
                "cluster-copies",
                f"{copies} copies of the model, each "
                + ("over several Sparks" if engine.spans_copies else f"on {engine.title}")
                + ", cannot be served as one",
                "Use tensor or pipeline parallelism alone"
                + (", or data parallelism alone." if engine.spans_copies else "."),
            )

    def shares(self) -> Iterator[Finding]:
        shapes = self.knowledge.model(self.recipe.model).architecture
        shapes = shapes or stated_architecture(self.recipe)
        if shapes is None:
            return
        yield from self.heads(shapes)
        layers = sum(group.count for group in shapes.layers)
        if self.asked.pipeline_parallel > layers:
            yield self.error(
                "cluster-layers",
                f"{layers} layers cannot be split over {self.asked.pipeline_parallel} Sparks",
                "Lower pipeline_parallel.",
            )

    def heads(self, shapes: Architecture) -> Iterator[Finding]:
        """Attention heads are split evenly; KV heads too, or each is on several."""
        degree = self.asked.tensor_parallel
        remedy = "Set tensor_parallel to a divisor of both, or split the layers: pipeline_parallel."
        if shapes.heads is not None and shapes.heads % degree:
            yield self.error(
                "cluster-heads",
                f"{shapes.heads} attention heads cannot be split evenly over {degree} Sparks",
                remedy,
            )
        kept = sorted({group.kv_heads for group in shapes.layers if group.kv_heads})
        odd = [heads for heads in kept if heads % degree and degree % heads]
        if odd:
            yield self.error(
                "cluster-heads",
                f"{odd[0]} KV heads cannot be split evenly over {degree} Sparks, nor each be kept "
                "on several of them",
                remedy,
            )
