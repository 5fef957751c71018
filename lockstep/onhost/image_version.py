#!/usr/bin/python3
"""Ask an engine's image which version it holds, without a GPU and without starting the engine.

usage: image_version.py REPOSITORY@sha256:DIGEST vllm|sglang

Keeps {"engine", "version"} in /var/cache/lockstep/images/sha256-DIGEST.json.

exit codes: 0 known, 1 the image does not say, 2 wrong use
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lockstep.onhost import common
else:
    import common

RECORDS = Path("/var/cache/lockstep/images")
# Reading one file of an image; generous, because its first start unpacks nothing but may wait for
# a pull beside it.
TIMEOUT_S = 300.0


def ask(reference: str, engine: str) -> str:
    """The version of the distribution ``engine`` inside the image."""
    question = f"import importlib.metadata as m; print(m.version({engine!r}))"
    limits = ["--rm", "--pull", "never", "--network", "none", "--cap-drop", "ALL"]
    argv = ["docker", "run", *limits, "--entrypoint", "python3", reference, "-c", question]
    done = common.run(argv, timeout=TIMEOUT_S)
    version = done.stdout.strip().splitlines()[-1:]
    if done.returncode != 0 or not version:
        said = (done.stderr.strip().splitlines() or ["nothing"])[-1]
        raise common.Problem(f"{reference.partition('@')[0]} does not say its {engine}: {said}")
    return version[0]


def main(argv: list[str]) -> int:
    """Command line; see the module's docstring."""
    if len(argv) != 2 or "@sha256:" not in argv[0]:
        print((__doc__ or "").strip(), file=sys.stderr)
        return common.EXIT_USAGE
    reference, engine = argv
    record = {"engine": engine, "version": ask(reference, engine)}
    path = RECORDS / (reference.partition("@")[2].replace(":", "-") + ".json")
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".partial")
    temporary.write_text(json.dumps(record) + "\n", encoding="utf-8")
    temporary.replace(path)
    common.say(f"{engine} {record['version']} in {reference.partition('@')[0]}")
    return common.EXIT_DONE


if __name__ == "__main__":
    sys.exit(common.ended("image_version", lambda: main(sys.argv[1:])))
