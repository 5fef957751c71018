"""The parts of the real engines that answer without a start: parsers that know some flags.

The image has modules of the real names that provide them: `vllm.entrypoints.cli.serve`,
`vllm.envs`, `vllm.utils.argparse_utils` and `sglang.srt.server_args`.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.metadata import version
from typing import Any

if os.environ.get("STANDIN_NEEDS_GPU"):
    # Fail like an engine whose import loads the driver's library, in a container without a GPU.
    raise ImportError("libcuda.so.1: cannot open shared object file: No such file or directory")

from .arguments import UsageError, parse

#: Variables that vLLM 0.32.0 no longer has (run against its own registry, 2026-11); 0.15 had them.
REMOVED_VARIABLES = frozenset(
    {
        "VLLM_ATTENTION_BACKEND",
        "VLLM_FLASHINFER_MOE_BACKEND",
        "VLLM_NVFP4_GEMM_BACKEND",
        "VLLM_USE_FLASHINFER_MOE_FP4",
        "VLLM_USE_FLASHINFER_MOE_MXFP4_MXFP8",
    }
)


class Parser(argparse.ArgumentParser):
    """`argparse` in front of the stand-in's own reading of a command line."""

    engine = "vllm"

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Refuse what the real parser refuses; every other flag is taken."""
        words: Sequence[str] = sys.argv[1:] if args is None else list(args)
        try:
            serving = parse(
                self.engine,
                words[1:] if words[:1] == ["serve"] else words,
                version(self.engine),
            )
        except UsageError as error:
            print(f"usage: {self.prog} ...\n{error}", file=sys.stderr)
            raise SystemExit(2) from None
        return argparse.Namespace(model=serving.model, chat_template=None), []


class Serve:
    """vLLM's `serve`."""

    def subparser_init(self, commands: Any) -> argparse.ArgumentParser:
        """Return the parser unchanged; vLLM adds flags here that the stand-in does not need."""
        parser: argparse.ArgumentParser = commands.add_parser("serve")
        return parser

    def validate(self, options: argparse.Namespace) -> None:
        """Accept all flags; the stand-in knows no further rule."""


def cmd_init() -> list[Serve]:
    """Return the command as vLLM's `cmd_init` does."""
    return [Serve()]


class Variables(Mapping[str, Callable[[], "str | None"]]):
    """The variables that the stand-in knows: all but removed ones."""

    def __contains__(self, name: object) -> bool:
        return name not in REMOVED_VARIABLES or version("vllm").startswith("0.15.")

    def __getitem__(self, name: str) -> Callable[[], str | None]:
        if name not in self:
            raise KeyError(name)
        return lambda: os.environ.get(name)

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0


class ServerArgs:
    """SGLang's arguments."""

    @staticmethod
    def add_cli_args(parser: argparse.ArgumentParser) -> None:
        """Make a plain parser refuse the flags that were removed."""
        parser.__class__ = type("SGLangParser", (Parser,), {"engine": "sglang"})
