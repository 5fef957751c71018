"""One repository of the hub as a recipe would serve it; unservable repositories are refused."""

from __future__ import annotations

import re
from dataclasses import dataclass

from lockstep.checkpoints import gguf
from lockstep.checkpoints.checkpoint import Checkpoint
from lockstep.checkpoints.quantisation import scheme_of
from lockstep.core.errors import RecipeError
from lockstep.inventory.secret import SecretSource
from lockstep.lock.resolve.http import Network
from lockstep.lock.resolve.repository import of_hub
from lockstep.onhost.engines import ENGINES, Engine

_NAME = re.compile(r"([\w.-]+/[\w.-]+)(?::([\w.-]+))?(?:@([\w./-]+))?", re.ASCII)
_OF_GGUF = next(name for name, engine in ENGINES.items() if engine.weights == "file")
_USUAL = next(name for name, engine in ENGINES.items() if engine.usual)


@dataclass(frozen=True)
class Weights:
    """The weights of one repository and the engine to serve them.

    Attributes:
        model: The repository as a recipe names it, for GGUF with ":QUANT".
        checkpoint: The files and facts of the repository at its commit.
        size: Bytes of the weights that the engine loads.
        engine: The engine.
    """

    model: str
    checkpoint: Checkpoint
    size: int
    engine: Engine

    @property
    def scheme(self) -> str:
        """The storage: nvfp4, mxfp4, fp8, int4, gguf, "none" if not quantised, or "" if unknown."""
        quantisation = self.checkpoint.quantisation or ""
        return "gguf" if gguf.MARK in self.model else scheme_of(quantisation)

    @property
    def at(self) -> str:
        """The repository with the first seven digits of its commit, for people."""
        return f"{self.checkpoint.model} at {(self.checkpoint.revision or '')[:7]}"


def read(
    name: str, engine: str | None, network: Network, *, source: SecretSource | None = None
) -> Weights:
    """Read the weights that `REPOSITORY[:QUANT][@REVISION]` means; `source` gives the hub's token.

    Raises:
        RecipeError: the name is malformed, or no weights that the engine can read are there.
        LockstepError: the hub does not show the repository, or cannot be asked.
    """
    # People paste the address of the repository's web page.
    parts = _NAME.fullmatch(re.sub(r"^https?://[^/]+/|/$", "", name))
    if parts is None or ".." in name:
        raise RecipeError(
            "this is no repository of the hub",
            found=name[:80],
            allowed="ORGANISATION/NAME, for GGUF ORGANISATION/NAME:QUANT; @REVISION may follow",
        )
    repository, quant, revision = parts.groups()
    checkpoint = of_hub(repository, revision or "main", network, token_source=source)
    quants = gguf.quantisations(checkpoint.files)
    has_other_weights = any(name.endswith((".safetensors", ".bin")) for name in checkpoint.files)
    engine_chosen = ENGINES[
        engine or (_OF_GGUF if quant or (quants and not has_other_weights) else _USUAL)
    ]
    if engine_chosen.name == _OF_GGUF:
        return _gguf(checkpoint, quants, quant)
    if quant or (quants and not has_other_weights):
        raise _fault(
            checkpoint,
            f"{engine_chosen.title} serves no GGUF files here",
            remedy=f"Leave --engine out, or say --engine {_OF_GGUF}.",
        )
    if not checkpoint.weight_bytes:
        raise _fault(
            checkpoint,
            "the repository holds no weights",
            found=f"{len(checkpoint.files)} files, none of safetensors, GGUF or PyTorch",
            remedy="Name the repository of the model itself.",
        )
    if not {"config.json", "params.json"} & set(checkpoint.files):
        adapter = "adapter_config.json" in checkpoint.files
        raise _fault(
            checkpoint,
            "the repository is an adapter" if adapter else "no engine can load these weights",
            found="no config.json and no params.json",
            remedy="Name the repository of the model itself, or write the recipe by hand "
            "(`lockstep help recipes`).",
        )
    return Weights(repository, checkpoint, checkpoint.weight_bytes, engine_chosen)


def _gguf(checkpoint: Checkpoint, quants: dict[str, tuple[str, ...]], quant: str | None) -> Weights:
    engine = ENGINES[_OF_GGUF]
    sizes = {name: sum(checkpoint.files[file] for file in quants[name]) for name in quants}
    if not sizes:
        raise _fault(
            checkpoint,
            f"the repository holds no GGUF files, which {engine.title} needs",
            remedy="Leave --engine and the quantisation out, or name a repository with GGUF files.",
        )
    wanted_quant = quant or (next(iter(sizes)) if len(sizes) == 1 else "")
    quant_name = next((name for name in sizes if name.lower() == wanted_quant.lower()), None)
    if quant_name is None:
        quants_by_size = sorted(sizes.items(), key=lambda item: item[1])
        example = f"{checkpoint.model}:{quants_by_size[len(quants_by_size) // 2][0]}"
        raise _fault(
            checkpoint,
            "the repository has no such quantisation" if quant else "one quantisation is needed",
            found=quant or f"{len(sizes)} of them",
            allowed=", ".join(f"{name} ({size / 1e9:.1f} GB)" for name, size in quants_by_size),
            remedy=f"Choose one, such as {example}.",
        )
    if missing := gguf.missing_parts(quants[quant_name]):
        raise _fault(
            checkpoint,
            f"a part of {quant_name} is not in the repository",
            found=f"no {', '.join(missing)}",
            remedy="Name another quantisation, or a revision that has all parts.",
        )
    # The engine also loads the file of the vision tower.
    sees = gguf.mmproj(checkpoint.files, quants[quant_name][0])
    size = sizes[quant_name] + (checkpoint.files[sees] if sees else 0)
    return Weights(f"{checkpoint.model}:{quant_name}", checkpoint, size, engine)


def _fault(checkpoint: Checkpoint, summary: str, **more: str) -> RecipeError:
    return RecipeError(summary, where=checkpoint.model, **more)
