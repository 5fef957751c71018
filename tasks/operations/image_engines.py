"""Engines inside images: their versions, and whether they take the recipes bound to them."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import asdict

from pyinfra import host
from pyinfra.api import FunctionCommand, StringCommand, operation

from lockstep.image_questions import unasked
from lockstep.managed import ManagedFile
from tasks import engine_state, remote, run

QUESTIONS = "/var/cache/lockstep/questions"


@operation()
def accepted() -> Generator[StringCommand | FunctionCommand, None, None]:
    """Ask each engine image for its version, then about its recipes; once for each answer.

    Two containers for a new image, one for a changed recipe, none otherwise: the command line of a
    recipe depends on the version of its engine.
    """
    this = run.current()
    found = engine_state.ask()
    if not found:
        return
    images = this.engine_images
    unknown = [digest for digest in images if not found["images"].get(digest)]
    for digest in unknown:
        yield _job("version", *images[digest])
    if unknown:
        found = engine_state.ask()
    questions = this.image_questions(found)
    todo = unasked(questions, found["images"])
    for digest in todo:
        path = f"{QUESTIONS}/{digest.replace(':', '-')}.json"
        question = asdict(ManagedFile(path, questions[digest]))
        yield remote.write({"folders": [], "files": [question], "remove": []})
        yield _job("check", *images[digest])
    if not unknown and not todo:
        silent = sum(1 for record in found["images"].values() if record.get("unanswered"))
        told = f", {silent} of which could not be asked" if silent else ""
        host.noop(f"{len(images)} images hold an engine for their recipes{told}")


def _job(what: str, reference: str, engine: str) -> StringCommand:
    program = [remote.PYTHON, f"{remote.PROGRAMS}/image_{what}.py", reference, engine]
    return engine_state.job(f"image-{what}", program)
