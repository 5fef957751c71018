"""Images are asked for their engine's version first, then about recipes, and once for each."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from typing import Any

import pytest
from a_host import Host, run
from a_spark import pins_for, spark

from lockstep.intended import Intended
from tasks import run as tasks_run

PLAN = spark()
_PINS = pins_for(PLAN)
# Each image has a digest of its own.
PINS = replace(
    _PINS,
    images={
        name: replace(pin, digest=f"sha256:{at:064x}")
        for at, (name, pin) in enumerate(_PINS.images.items())
    },
)
RUN = Intended(PLAN, PINS)
VERSIONS = {"vllm": "0.32.0", "sglang": "0.5.23"}
NEW: dict[str, Any] = {"check": {"version": "0.19.2"}, "images": dict.fromkeys(RUN.engine_images)}
JOB = "/usr/bin/python3 /usr/local/lib/lockstep/job.py run"
PROGRAMS = "/usr/bin/python3 /usr/local/lib/lockstep"


def answered(**changes: Any) -> dict[str, Any]:
    """What the host keeps when every image took its recipes."""
    images = {
        digest: {"engine": engine, "version": VERSIONS[engine]}
        for digest, (_, engine) in RUN.engine_images.items()
    }
    found = {**NEW, "images": images}
    for digest, text in RUN.image_questions(found).items():
        asked = hashlib.sha256(text.encode()).hexdigest()
        images[digest] |= {"asked": asked, "faults": [], "unanswered": None, **changes}
    return found


class Asked(Host):
    """A host whose images know their version once they were asked."""

    def get_fact(self, fact: type, **arguments: Any) -> Any:
        found = super().get_fact(fact, **arguments)
        return found[min(len(self.asked), len(found)) - 1]


@pytest.fixture(autouse=True)
def _this_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(tasks_run._runs, "spark1", RUN)


def accepted(*found: Any) -> tuple[Host, list[Any]]:
    host = Asked({"Engines": found})
    return host, run("image_engines.accepted", host)


def checks() -> list[tuple[str, str]]:
    """Digest and command of each question."""
    return [
        (digest, f"{JOB} image-check -- {PROGRAMS}/image_check.py {reference} {engine}")
        for digest, (reference, engine) in RUN.engine_images.items()
    ]


def test_images_that_took_their_recipes_are_asked_nothing() -> None:
    host, commands = accepted(answered())
    assert commands == []
    assert host.nooped == [f"{len(RUN.engine_images)} images hold an engine for their recipes"]
    assert len(host.asked) == 1


def test_what_could_not_be_asked_is_not_called_accepted() -> None:
    host, commands = accepted(answered(unanswered="no libcuda.so.1"))
    assert commands == []
    number = len(RUN.engine_images)
    assert host.nooped == [
        f"{number} images hold an engine for their recipes, {number} of which could not be asked"
    ]


def test_a_new_image_is_asked_for_its_version_first() -> None:
    known = answered()
    versions_only = {
        **known,
        "images": {
            digest: {key: record[key] for key in ("engine", "version")}
            for digest, record in known["images"].items()
        },
    }
    _, commands = accepted(NEW, versions_only)
    number = len(RUN.engine_images)
    assert commands[:number] == [
        f"{JOB} image-version -- {PROGRAMS}/image_version.py {reference} {engine}"
        for reference, engine in RUN.engine_images.values()
    ]
    assert [command for command in commands[number:] if isinstance(command, str)] == [
        command for _, command in checks()
    ]


@pytest.mark.parametrize("change", [{"asked": "another question"}, {"faults": ["refused"]}])
def test_a_changed_recipe_or_a_refused_one_is_asked_about_again(change: dict[str, Any]) -> None:
    known = answered(**change)
    _, commands = accepted(known)
    questions = RUN.image_questions(known)
    expected: list[Any] = []
    for digest, command in checks():
        path = f"/var/cache/lockstep/questions/{digest.replace(':', '-')}.json"
        expected += [(path, questions[digest]), command]
    shown = [
        command
        if isinstance(command, str)
        else (command["files"][0]["path"], command["files"][0]["text"])
        for command in commands
    ]
    assert shown == expected


def test_the_question_is_what_the_unit_will_run() -> None:
    questions = RUN.image_questions(answered())
    [qwen] = [
        json.loads(text)
        for digest, text in questions.items()
        if RUN.engine_images[digest][1] == "vllm"
    ]
    [unit] = [
        file.text
        for file in RUN.files("services", RUN.versions(answered()))
        if file.path.endswith("/qwen36-launch.sh") or file.path.endswith("vllm-qwen36.service")
        if qwen[0]["argv"][2] in file.text
    ]
    assert qwen[0]["argv"][:2] == ["vllm", "serve"]
    assert "--moe-backend" in qwen[0]["argv"] and "--moe-backend" in unit
    assert "VLLM_FLASHINFER_MOE_BACKEND" not in qwen[0]["environment"]
