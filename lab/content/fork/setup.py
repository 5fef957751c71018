"""Builds only with precompiled binaries, as nobody wants to compile CUDA kernels by accident."""

import json
import os
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py


class PrecompiledOnly(build_py):
    """Notes the build's switches in build/switches.json, which git ignores."""

    def run(self):
        switches = {key: value for key, value in os.environ.items() if key.startswith("VLLM_")}
        if switches.get("VLLM_USE_PRECOMPILED") != "1":
            raise SystemExit("this fork has no sources to compile: set VLLM_USE_PRECOMPILED=1")
        record = Path(__file__).parent / "build" / "switches.json"
        record.parent.mkdir(exist_ok=True)
        record.write_text(json.dumps(switches, sort_keys=True))
        super().run()


setup(cmdclass={"build_py": PrecompiledOnly})
