"""A gateway before two stand-in engines with the refusals of their models' chat templates."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fork import Fork
from gateway_process import MODELS, SERVED, Spark, running
from lab_servers import CONTENT, ask, until

from lab.content.standin import engine
from lockstep.onhost.core.request_kinds_and_refused_shapes import SHAPES, Shape

#: The way a model of `gateway_process` is served: engine, chat template, and the `evens` that come
#: from its recipe and engine.
KINDS: dict[str, tuple[str, str, tuple[Shape, ...]]] = {
    "qwen": ("vllm", "qwen3.6.jinja", ("late_system", "developer", "empty_tools")),
    "mistral": ("sglang", "mistral.jinja", SHAPES),
}
_KNOBS = {"NEED_MODEL": 0, "NEED_MEMORY": 0, "LOAD_SECONDS": 0, "DECODE_RATE": 5000}


@contextlib.contextmanager
def templated_spark(folder: Path, *, log: int | None = None) -> Iterator[Any]:
    """The host with qwen hot, and each engine's address; `log` is the descriptor for their logs."""
    models = {name: {**SERVED[name], "evens": evens} for name, (_, _, evens) in KINDS.items()}
    with contextlib.ExitStack() as stack:
        spark, urls = stack.enter_context(running(folder, models=models)), {}
        for name in KINDS:
            url = urls[name] = stack.enter_context(_serve_engine(folder, spark, name, log))
            until(lambda url=url: ask(f"{url}/health").status == 200, "the engine is ready")
        yield spark, urls


@contextlib.contextmanager
def _serve_engine(folder: Path, spark: Spark, name: str, log: int | None) -> Iterator[str]:
    (kind, template_name, _), model = KINDS[name], folder / name
    model.mkdir()
    template = (CONTENT / "models" / template_name).read_text(encoding="utf-8")
    (model / "chat_template.jinja").write_text(template, encoding="utf-8")
    port = spark.engines[name].getsockname()[1]
    spark.engines[name].close()
    words = ["--model", str(model), "--served-model-name", MODELS[name], "auto"]
    words += ["--host", "127.0.0.1", "--port", str(port)]
    places = {"RECORD": folder / f"{name}.json", "KNOBS_FOLDER": folder}
    knobs = {f"STANDIN_{key}": str(value) for key, value in {**_KNOBS, **places}.items()}
    with Fork(
        lambda: engine.serve(kind, "9.9", [kind, *words], words),
        env={"PATH": os.environ["PATH"], "HF_HOME": str(folder), **knobs},
        stdout=log,
    ) as process:
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            process.kill()
