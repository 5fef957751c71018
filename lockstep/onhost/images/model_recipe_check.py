"""Ask the engine inside an image, without a GPU and without starting it, about its recipes.

usage: image-check REPOSITORY@sha256:DIGEST ENGINE

The question is /var/cache/lockstep/questions/sha256-DIGEST.json (see `recipe_check_in_image`).
Writes {"engine", "version", "asked", "faults", "unanswered", "taken"} to
/var/cache/lockstep/images/sha256-DIGEST.json, where "asked" is the question's SHA-256, and "taken"
those of earlier accepted questions.

exit codes: 0 every recipe is accepted, or the engine could not be asked; 1 a recipe is refused, or
            the container did not run; 2 wrong use
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lockstep.onhost import engines
from lockstep.onhost.core import (
    atomic_files,
    errors,
    event_lines,
    passed_engine_checks,
    program_command_lines,
    runner,
)

FOLDER = Path("/var/cache/lockstep")
TIMEOUT_S = 300.0
# No network, no rights, nothing to write on but memory: an engine's import can do no harm.
LIMITS = (
    *("--rm", "--init", "--pull", "never", "--network", "none", "--cap-drop", "ALL"),
    *("--security-opt", "no-new-privileges", "--log-driver", "none", "--read-only"),
    *("--tmpfs", "/tmp:exec", "--env", "HOME=/tmp", "--env", "PYTHONDONTWRITEBYTECODE=1"),
    *("--env", "HF_HUB_OFFLINE=1"),
)


def ask_engine_in_image(reference: str, engine: str, question: Path) -> dict[str, Any]:
    """Return the answer of `recipe_check_in_image` inside the image."""
    engine_module = engines.ENGINES[engine]

    def run(
        words: Sequence[str], environment: Mapping[str, str], *options: str
    ) -> subprocess.CompletedProcess[str]:
        container_variables = {**engine_module.environment, **environment}.items()
        variables = [word for pair in container_variables for word in ("--env", "=".join(pair))]
        program = ("--entrypoint", words[0], reference, *words[1:])
        argv = ["docker", "run", *LIMITS, *variables, *options, *program]
        return runner.run(argv, timeout=TIMEOUT_S)

    if not engine_module.on_python:
        return engine_module.recipe_faults_in_image(
            json.loads(question.read_text(encoding="utf-8")), run
        )
    result = run(
        ("python3", "/lockstep", "image-answer", engine, "/question.json"),
        {},
        *(
            "--mount",
            f"type=bind,source={program_command_lines.PROGRAMS},target=/lockstep,readonly",
        ),
        *("--mount", f"type=bind,source={question},target=/question.json,readonly"),
    )
    try:
        answer: dict[str, Any] = json.loads(result.stdout.strip().splitlines()[-1])
    except (ValueError, IndexError):
        reason = (result.stderr.strip().splitlines() or [f"nothing (exit {result.returncode})"])[-1]
        raise errors.Problem(
            f"{reference.partition('@')[0]} does not say whether its {engine} takes its recipes: "
            f"{reason}"
        ) from None
    return answer


def unanswered_reason(folder: Path, image: str | None) -> str | None:
    """Return why the engine of an image could not be asked; None if it answered or never was.

    `folder` has the records, and `image` is REPOSITORY@sha256:DIGEST.
    """
    record = atomic_files.read_json(folder / _record_file_name(image)) if image else None
    return (record or {}).get("unanswered") or None


def _record_file_name(reference: str) -> str:
    return reference.partition("@")[2].replace(":", "-") + ".json"


def main(argv: list[str]) -> int:
    """Run the command line; see the module's docstring."""
    if len(argv) != 2 or "@sha256:" not in argv[0]:
        return program_command_lines.print_usage(__doc__)
    reference, engine = argv
    name = _record_file_name(reference)
    question = FOLDER / "questions" / name
    text = question.read_text(encoding="utf-8")
    answer = ask_engine_in_image(reference, engine, question)
    record = {"engine": engine, **answer, "asked": passed_engine_checks.question_hash(text)}
    passed_engine_checks.write(FOLDER / "images" / name, record)
    subject = f"{engine} {answer['version']} in {reference.partition('@')[0]}"
    if answer["unanswered"]:
        event_lines.say(
            f"warning: {subject} could not be asked about its recipes; its start will tell"
        )
        event_lines.say(f"warning: {answer['unanswered']}")
    elif not answer["faults"]:
        event_lines.say(f"{subject} takes {len(json.loads(text))} recipe(s)")
    for fault in answer["faults"]:
        event_lines.say(f"image check: {fault}")
    if answer["faults"]:
        event_lines.say("Change the recipe, or bind it to an image whose engine takes it.")
    return errors.EXIT_FAILED if answer["faults"] else errors.EXIT_DONE
