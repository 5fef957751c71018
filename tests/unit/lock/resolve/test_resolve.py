"""A whole resolve: only what is missing, all at once, every failure at the end."""

import datetime
import hashlib
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from a_repository import fork, git
from local_server import LocalServer, Reply, SeenRequest, as_json, serving

from lockstep.core.errors import ResolveError
from lockstep.inventory.settings import Sources
from lockstep.lock import resolve as package
from lockstep.lock.moving import CheckpointItem, GitItem, ImageItem, PythonItem
from lockstep.lock.pins import CheckpointPin, GitPin, ImagePin, Pins, PythonPin, WheelPin
from lockstep.lock.resolve import Network, ResolveErrors, program, resolve
from tests.unit.lock.resolve.test_hub import BLOB, COMMIT, FILES, MAIN, info
from tests.unit.lock.resolve.test_python import PLAIN, wheel
from tests.unit.lock.resolve.test_registry import ANSWERS, DIGEST, ENTRY

STRICT = "{% for m in messages if m.role == 'developer' %}{{ raise_exception('x') }}{% endfor %}"
PUBLIC = "https://github.com/someone/engine.git"
IMAGE = "registry.example/org/engine:nightly"
WANTED = (
    PythonItem("tools", ("mistral_common",), "aarch64", "3.12"),
    GitItem(PUBLIC, "fix/parsing"),
    ImageItem(IMAGE, "aarch64"),
    CheckpointItem("org/name", "main"),
)
pytestmark = pytest.mark.usefixtures("own_uv")


def mirrors(host: str, folder: Path) -> Sources:
    return Sources(
        python_index=f"http://{host}/simple/",
        hub=f"http://{host}",
        git={"https://github.com/someone/": f"{folder}/"},
        registries={"registry.example": host},
        plain_registries=(host,),
    )


def test_everything_missing_is_resolved_announced_and_dated(tmp_path: Path) -> None:
    repository = fork(tmp_path / "engine.git")
    head = git(repository, "rev-parse", "fix/parsing")
    lines: list[str] = []
    with serving({**PLAIN, **ANSWERS, MAIN: info()}) as server:
        network = Network(mirrors(server.host, repository.parent))
        pins = resolve(WANTED, Pins(), network=network, report=lines.append)
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    wheels = (locked_wheel("mistral-common", "1.8.5", ["needed"]), locked_wheel("needed", "2.0"))
    assert pins == Pins(
        python={"tools": replace(tools_pin(*wheels), resolved=today)},
        git={PUBLIC: GitPin("fix/parsing", head, today)},
        images={IMAGE: ImagePin(DIGEST, "aarch64", 1234, today, "13.4.1", ENTRY)},
        checkpoints={"org/name": CheckpointPin("main", COMMIT, FILES, resolved=today)},
    )
    assert sorted(lines) == [
        f"engine is at fix/parsing {head[:12]}",
        "environment tools has 2 packages",
        "mistral_common is at 1.8.5",
        "org/name is at main 0123456789ab, 3 files, 1012 B",
        f"registry.example/org/engine:nightly is at {DIGEST[7:19]}, 1.2 KiB",
    ]


def locked_wheel(name: str, version: str, needs: list[str] | None = None) -> WheelPin:
    file, content = wheel(name, version, needs=needs or ())
    return WheelPin(name, version, file, hashlib.sha256(content).hexdigest())


def tools_pin(*wheels: WheelPin) -> PythonPin:
    return PythonPin(("mistral_common",), "aarch64", "3.12", wheels)


KNOWN = Pins(
    python={"tools": tools_pin(locked_wheel("mistral-common", "1.7.0"))},
    git={PUBLIC: GitPin("fix/parsing", "ab" * 20)},
    images={IMAGE: ImagePin(DIGEST, "aarch64", 1)},
    checkpoints={"org/name": CheckpointPin("main", COMMIT, FILES)},
)


@pytest.mark.parametrize("wanted_items", [WANTED, ()], ids=["held", "wanted by nobody today"])
def test_what_the_record_holds_stays_and_is_not_asked_for_again(wanted_items: Any) -> None:
    nowhere = Sources(hub="http://nowhere.invalid")
    assert resolve(wanted_items, KNOWN, network=Network(nowhere), report=print) == KNOWN


def resolve_model(server: LocalServer, pins: Pins | None = None, **more: Any) -> Pins:
    """Resolve the one model at a hub."""
    items, network = (CheckpointItem("org/name", "main"),), Network(Sources(hub=server.url))
    return resolve(items, pins or Pins(), network=network, **{"report": print, **more})


def test_more_files_of_a_pinned_model_do_not_move_its_commit() -> None:
    borrowed_pin = CheckpointPin("main", COMMIT, FILES[:1], partial=True)
    with serving({f"/api/models/org/name/revision/{COMMIT}": info()}) as server:
        pins = resolve_model(server, Pins(checkpoints={"org/name": borrowed_pin}))
    pin = pins.checkpoints["org/name"]
    assert (pin.files, pin.commit) == (FILES, COMMIT)


@pytest.mark.parametrize(
    ("file", "reply", "expected_shapes"),
    [
        ("tokenizer_config.json", as_json({"chat_template": STRICT}), ("developer",)),
        ("tokenizer_config.json", as_json([]), None),
        ("chat_template.jinja", Reply(status=404), None),
    ],
)
def test_the_lock_has_the_shapes_that_a_chat_template_refuses(file: str, reply, expected_shapes):
    siblings = [{"rfilename": file, "size": 9, "blobId": BLOB}]
    answers = {MAIN: info(siblings=siblings), f"/org/name/resolve/{COMMIT}/{file}": reply}
    with serving(answers) as server:
        pins = resolve_model(server)
    assert pins.checkpoints["org/name"].refused_shapes == expected_shapes


def test_all_failures_are_collected_and_named_in_order(tmp_path: Path) -> None:
    lines: list[str] = []
    with serving({MAIN: info()}) as server, pytest.raises(ResolveErrors) as error:
        network = Network(mirrors(server.host, tmp_path))
        resolve(WANTED, Pins(), network=network, report=lines.append)
    assert [failure.where.partition(" ")[0] for failure in error.value.failures] == [
        "environment",
        f"{tmp_path}/engine.git",
        IMAGE,
    ]
    assert str(error.value).startswith("3 of 4 could not be resolved:\n- ")
    assert f"{IMAGE} is not resolved" in lines


def test_nonsense_from_a_source_never_enters_the_record() -> None:
    nonsense = {"rfilename": "a.safetensors", "size": 1, "lfs": {"sha256": "no hash", "size": 1}}
    with serving({MAIN: info(siblings=[nonsense])}) as server, pytest.raises(ResolveError) as error:
        resolve_model(server)
    message = "the source's answer cannot be used: files['a.safetensors'].sha256 is not a hash"
    assert message in str(error.value) and not isinstance(error.value, ResolveErrors)


def test_what_takes_long_is_named_while_it_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(package, "PATIENCE_S", 0.05)
    lines: list[str] = []
    go = threading.Event()

    def report(line: str) -> None:
        lines.append(line)
        go.set()

    with serving({MAIN: lambda request: info() if go.wait(30) else Reply()}) as server:
        resolve_model(server, report=report)
    assert lines[0] == "still asking for org/name"


def test_an_interruption_ends_the_programs_that_still_run(tmp_path: Path) -> None:
    question, release = threading.Event(), threading.Event()

    def silent(request: SeenRequest) -> Reply:
        question.set()
        release.wait()
        return Reply()

    def once_git_waits(request: SeenRequest) -> Reply:
        question.wait()
        return info()

    def interrupt(line: str) -> None:
        assert program._running
        raise KeyboardInterrupt

    wanted_items = (
        GitItem("https://github.com/someone/x.git", "main"),
        CheckpointItem("org/name", "main"),
    )
    with serving({"/git/x.git/info/refs": silent, MAIN: once_git_waits}) as server:
        sources = Sources(hub=server.url, git={"https://github.com/someone/": f"{server.url}/git/"})
        with pytest.raises(KeyboardInterrupt):
            resolve(wanted_items, Pins(), network=Network(sources), report=interrupt)
        assert all(process.poll() is not None for process in list(program._running))
        release.set()
