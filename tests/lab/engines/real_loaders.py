"""Asks an engine's own loader which weight files of a folder it takes; runs on the engine's Python.

usage: real_loaders.py vllm|sglang   standard input: [[folder, load format], ...]

Of each the names are printed as JSON, null where the loader finds none or lacks one.
"""

import ast
import contextlib
import fnmatch
import functools
import gc
import glob
import importlib.util
import json
import os
import sys
import typing
from pathlib import Path
from types import SimpleNamespace


def of_vllm(folder: str, form: str) -> list[str]:
    from vllm.config.load import LoadConfig
    from vllm.model_executor.model_loader.default_loader import DefaultModelLoader

    return DefaultModelLoader(LoadConfig(load_format=form))._prepare_weights(
        folder, None, None, True, None
    )[1]


class LoadFormat:
    """SGLang's names of formats."""

    AUTO, PT, SAFETENSORS, NPCACHE, DUMMY = "auto", "pt", "safetensors", "npcache", "dummy"
    MISTRAL, FASTSAFETENSORS, INSTANTTENSOR = "mistral", "fastsafetensors", "instanttensor"


@functools.cache
def sglangs() -> dict[str, typing.Any]:
    """SGLang's functions alone: the modules around them import packages for a GPU."""
    namespace: dict[str, typing.Any] = {
        **{name: getattr(typing, name) for name in ("Any", "List", "Optional", "Tuple")},
        **{"os": os, "glob": glob, "json": json, "fnmatch": fnmatch, "LoadFormat": LoadFormat},
        "SAFE_WEIGHTS_INDEX_NAME": "model.safetensors.index.json",
        "get_server_args": lambda: None,
        "resolving_view": lambda config: config,
        "envs": SimpleNamespace(SGLANG_SORT_WEIGHT_FILES=SimpleNamespace(get=lambda: -1)),
        "logger": SimpleNamespace(warning=print, info=print),
    }
    spec = importlib.util.find_spec("sglang")
    root = Path(spec.origin).parent if spec and spec.origin else Path()
    for file, names in (
        ("model_loader/weight_utils.py", ("filter_duplicate_safetensors_files",)),
        ("model_loader/weight_utils.py", ("filter_files_not_needed_for_inference",)),
        ("model_loader/loader.py", ("_prepare_weights",)),
        ("arg_groups/model_path_hook.py", ("is_mistral_native_format",)),
    ):
        tree = ast.parse((root / "srt" / file).read_text(encoding="utf-8"))
        functions = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))
        first = next(node for node in functions if node.name in names)
        exec(compile(ast.Module([first], []), file, "exec"), namespace)
    return namespace


def of_sglang(folder: str, form: str) -> list[str]:
    namespace = sglangs()
    if form == "auto" and namespace["is_mistral_native_format"](SimpleNamespace(model_path=folder)):
        form = "mistral"
    loader = SimpleNamespace(
        load_config=SimpleNamespace(load_format=form, ignore_patterns=None),
        _maybe_download_from_modelscope=lambda model, revision: model,
    )
    return namespace["_prepare_weights"](loader, folder, None, True)[1]


def main() -> None:
    # Imports of an engine leave no garbage, and looking for it takes a sixth of their time.
    gc.disable()
    ask = {"vllm": of_vllm, "sglang": of_sglang}[sys.argv[1]]
    answers = []
    for folder, form in json.load(sys.stdin):
        try:
            with contextlib.redirect_stdout(sys.stderr):
                files = ask(folder, form)
            answers.append(sorted(os.path.relpath(file, folder) for file in files))
        except (RuntimeError, FileNotFoundError):
            answers.append(None)
    print(json.dumps(answers))


if __name__ == "__main__":
    main()
