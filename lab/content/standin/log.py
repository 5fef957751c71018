"""Log lines that look like those of the real engines, as far as anybody reads them."""

from __future__ import annotations

import time

from .arguments import Serving


class Log:
    """Prints to standard output, one line at a time."""

    def __init__(self, engine: str, version: str) -> None:
        self.engine = engine
        self.version = version

    def line(self, level: str, text: str) -> None:
        """One line with the engine's usual head."""
        now = time.localtime()
        if self.engine == "vllm":
            stamp = time.strftime("%m-%d %H:%M:%S", now)
            print(f"(APIServer pid=1) {level} {stamp} [stand-in] {text}", flush=True)
        else:
            print(time.strftime("[%Y-%m-%d %H:%M:%S] ", now) + text, flush=True)

    def loading(self, serving: Serving) -> None:
        """The first lines: version and model."""
        self.line("INFO", f"{self.engine} API server version {self.version} (Lockstep stand-in)")
        self.line("INFO", f"Starting to load model {serving.model}...")

    def shard(self, loaded_shards: int, total: int, elapsed_s: float) -> None:
        """Progress of loading."""
        percent = 100 * loaded_shards // total
        title = "Loading safetensors checkpoint shards"
        if self.engine == "sglang":
            title = "Multi-thread loading shards"
        print(
            f"{title}: {percent:3d}% Completed | {loaded_shards}/{total} [{elapsed_s:.0f}s]",
            flush=True,
        )

    def ready(self, serving: Serving) -> None:
        """The line after which requests are answered."""
        if self.engine == "vllm":
            self.line("INFO", f"Starting vLLM server on http://{serving.host}:{serving.port}")
            print("INFO:     Application startup complete.", flush=True)
        else:
            self.line("INFO", "The server is fired up and ready to roll!")
