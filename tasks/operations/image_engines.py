"""Engines inside images: their versions, and whether they accept their recipes."""

from __future__ import annotations

from dataclasses import asdict

from pyinfra import host
from pyinfra.api import operation

from lockstep.files.managed_file import ManagedFile, command
from lockstep.tasks import remote, run
from lockstep.tasks.facts import host as facts
from lockstep.tasks.remote import Commands

QUESTIONS = "/var/cache/lockstep/questions"


@operation()
def accepted() -> Commands:
    """Ask the engine of each image about its recipes, once for each answer.

    One container for a new image or a changed recipe, none otherwise.
    """
    this = run.current()
    found = facts.ask("environments")
    if not found:
        return
    images = this.engine_images
    todo = this.to_ask(found["images"])
    for digest in todo:
        path = f"{QUESTIONS}/{digest.replace(':', '-')}.json"
        question = asdict(ManagedFile(path, this.image_questions[digest]))
        yield remote.write({"folders": [], "files": [question], "remove": []})
        program = command("image-check", *images[digest])
        yield remote.job("image-check", program)
    if not todo:
        silent = sum(1 for record in found["images"].values() if record.get("unanswered"))
        told = f", {silent} of which could not be asked" if silent else ""
        host.noop(f"{len(images)} images hold an engine for their recipes{told}")
