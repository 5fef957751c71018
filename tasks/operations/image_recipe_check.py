"""Engines inside images: their versions, and whether they accept their recipes."""

from __future__ import annotations

from dataclasses import asdict

from pyinfra import host
from pyinfra.api import operation

from lockstep.files.managed_file import ManagedFile, command
from lockstep.tasks.run import reader_answers as facts
from lockstep.tasks.run import remote_commands, run_state
from lockstep.tasks.run.remote_commands import Commands

QUESTIONS = "/var/cache/lockstep/questions"


@operation()
def check_recipes() -> Commands:
    """Ask the engine of each image about its recipes, and keep the answer.

    A new image or a changed recipe takes one container, otherwise none runs.
    """
    desired_state = run_state.current_desired_state()
    environments = facts.reader_answer("environments")
    if not environments:
        return
    images = desired_state.engine_images
    todo = desired_state.unchecked_digests(environments["images"])
    for digest in todo:
        path = f"{QUESTIONS}/{digest.replace(':', '-')}.json"
        question = asdict(ManagedFile(path, desired_state.image_questions[digest]))
        yield remote_commands.write_files_command(
            {"folders": [], "files": [question], "remove": []}
        )
        program = command("image-check", *images[digest])
        yield remote_commands.transient_job_command("image-check", program)
    if not todo:
        silent = sum(1 for record in environments["images"].values() if record.get("unanswered"))
        note = f", {silent} of which could not be asked" if silent else ""
        host.noop(f"{len(images)} images hold an engine for their recipes{note}")
