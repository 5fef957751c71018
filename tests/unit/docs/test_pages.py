"""Pages have what the code has: state, monitoring, recipes, rolling, and the tools of lint."""

import os
import re
from dataclasses import fields
from fnmatch import fnmatchcase
from importlib import metadata
from pathlib import Path

from lockstep.deploy.closing import STAYING_BY_OPERATION
from lockstep.deploy.course import REREAD
from lockstep.inventory.monitoring import Monitoring
from lockstep.inventory.settings import HostPaths
from lockstep.onhost.core import layout
from lockstep.onhost.monitoring.metric_table import METRICS
from lockstep.onhost.records import ownership
from lockstep.onhost.records.rollback_journal import STAYING
from lockstep.recipes import recipe_file
from lockstep.recipes.block import LockstepBlock
from lockstep.recipes.command import serve_command
from lockstep.resources.files import EVER_OURS

ROOT = Path(__file__).parents[3]
STATE = (ROOT / "docs/state.md").read_text(encoding="utf-8")
SOURCE = "".join(
    path.read_text(encoding="utf-8")
    for folder in ("lockstep", "tasks", "lockstep/templates")
    for path in sorted((ROOT / folder).rglob("*.[pj]*"))
    if path.suffix in (".py", ".j2")
)
HERE = layout.Paths()
PLACES = {name for name, place in vars(layout.Paths).items() if hasattr(place, "_path")}
BELOW = re.compile(r'paths\.(\w+)((?: / f?"[^"]+")+)')


def code_paths() -> set[str]:
    """The paths that the code writes: places, names below them, managed files, folders of units."""
    written_paths = {str(getattr(HERE, name)) for name in PLACES}
    for place, names in BELOW.findall(SOURCE):
        below = "/".join(re.findall(r'"([^"]+)"', names))
        written_paths.add(str(getattr(HERE, place) / re.sub(r"{[^}]*}", "*", below)))
    written_paths |= {*EVER_OURS, *ownership.HOMES, *ownership.MADE_FOR_UNITS}
    written_paths |= {ownership.ADOPTED_FOLDER}
    golden = ROOT / "tests/render/golden"
    files = {
        "/" + str(file.relative_to(host))
        for host in golden.iterdir()
        for file in host.rglob("*")
        if file.is_file()
    }
    folders = {HostPaths().hub_cache, HostPaths().engines, ownership.UV}
    # What systemd keeps as private has a link without that word; modules and remains of a
    # write that was cut off have no names here.
    own_paths = {path for path in written_paths if "lockstep" in path}
    own_paths = {path for path in own_paths if not re.search(r"private/|\*\*", path)}
    return {path.rstrip("/") for path in own_paths | files | folders}


def is_named(path: str, known_paths: set[str]) -> bool:
    """Tell whether another path is the same one, by its pattern or as a file in that folder."""
    return any(
        fnmatchcase(path, known_path)
        or fnmatchcase(known_path, path)
        or known_path.startswith(f"{path}/")
        for known_path in known_paths
    )


def test_the_page_of_state_has_every_path_of_the_code_and_no_other() -> None:
    named_paths = re.findall(r"`(/[^`]+)`", STATE)
    # A name in capitals stands for any.
    on_page = {re.sub(r"\b[A-Z]{2,}\b", "*", path.rstrip("/")) for path in named_paths}
    in_code = code_paths()
    assert sorted(path for path in in_code if not is_named(path, on_page)) == []
    unknown_paths = [path for path in on_page if not is_named(path, in_code | {"/dev/null"})]
    names = {path: f'{path.rpartition("/")[2]}"' for path in unknown_paths}
    assert [path for path, name in names.items() if name not in SOURCE] == []


def test_every_module_on_the_page_of_state_is_there() -> None:
    modules = re.findall(r"`(?!lockstep/)([a-z]+/[a-z_]+)`", STATE)
    rooms = (ROOT / "lockstep/onhost", ROOT / "lockstep")
    missing = set(modules)
    for room in rooms:
        missing -= {name for name in modules if (room / f"{name}.py").is_file()}
    assert len(modules) > 60 and missing == set()


#: After a change that is meant: UPDATE_GOLDEN=1 .venv/bin/pytest THIS_FILE
MONITORING = ROOT / "docs/monitoring.md"
HEAD = "| metric | unit | labels | meaning | from | each |\n|---|---|---|---|---|---|\n"


def metric_table() -> str:
    """The rows of the page's table."""
    return "".join(
        f"| `{name}` | {metric.unit} | {', '.join(metric.labels)} | {metric.help} | "
        f"{metric.source} | {metric.every_s} s |\n"
        for name, metric in METRICS.items()
    )


def test_the_page_of_monitoring_has_every_metric_and_every_key() -> None:
    page_head, _, body = MONITORING.read_text(encoding="utf-8").partition(HEAD)
    shown_table, page_tail = body.split("\n\n", 1)
    if os.environ.get("UPDATE_GOLDEN"):
        MONITORING.write_text(
            f"{page_head}{HEAD}{metric_table()}\n{page_tail.lstrip()}", encoding="utf-8"
        )
    assert f"{shown_table}\n" == metric_table()
    text = MONITORING.read_text(encoding="utf-8")
    assert [item.name for item in fields(Monitoring) if f"`{item.name}`" not in text] == []


RECIPES = (ROOT / "docs" / "recipes.md").read_text()
EXAMPLE = RECIPES.split("```yaml\n", 1)[1].split("```", 1)[0]


def test_the_example_of_recipes_is_valid_and_shows_every_lockstep_key_but_the_last() -> None:
    recipe = recipe_file.parse(EXAMPLE, Path("example.yaml"))
    assert serve_command(recipe)[-2:] == ("--moe-backend", "marlin")
    block = recipe.lockstep
    unset = {item.name for item in fields(LockstepBlock) if not getattr(block, item.name)}
    assert unset == {"known_bad", "vision"}  # vision is shown as false


def test_every_key_of_a_recipe_is_documented() -> None:
    documented_keys = set(re.findall(r"`(\w+)`", RECIPES))
    internal_keys = {"hooks", "conditional", "misspelt", "path"}
    assert {item.name for item in fields(recipe_file.Recipe)} - documented_keys == internal_keys
    assert {item.name for item in fields(LockstepBlock)} - documented_keys == set()


def test_every_finding_is_documented_and_no_other() -> None:
    files = ("recipe_checks.py", "command_checks.py", "cluster_findings.py")
    sources = "".join((ROOT / "lockstep/fit" / name).read_text() for name in files)
    codes = set(re.findall(r'(?:finding|warning|error)\(\s*f?"([a-z{}.-]+)"', sources))
    families = {
        "{code}": ("licence", "draft-licence"),
        "{method}": ("eagle",),
        "{item.kind}": ("flag", "value", "variable"),
    }
    expanded_codes = {
        code.replace(mark, word)
        for code in codes
        for mark, words in families.items()
        for word in words
        if mark in code or not code.count("{")
    }
    table = RECIPES.split("## Findings", 1)[1]
    documented_codes = set(
        re.findall(r"`([a-z0-9-]+)`", " ".join(re.findall(r"^\| (`.*?) \|", table, re.M)))
    )
    assert documented_codes == expanded_codes


def test_what_does_not_return_is_what_the_journal_says() -> None:
    page = (ROOT / "docs/rolling.md").read_text(encoding="utf-8")
    table = page.partition("| does not return | |\n|---|---|\n")[2].partition("\n\n")[0]
    assert table.splitlines() == [f"| {kind} | {then} |" for kind, then in STAYING.items()]


def test_operations_whose_changes_stay_are_those_of_the_deploy() -> None:
    tasks = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "tasks").glob("*.py"))
    names = {*re.findall(r'name=f?"([^":]+)', tasks), REREAD}
    assert set(STAYING_BY_OPERATION) - names == set()
    assert set(STAYING_BY_OPERATION.values()) == set(STAYING), "--dry names every kind"


def test_the_newest_version_of_the_changes_is_this_one() -> None:
    versions = re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert versions[0] == metadata.version("lockstep")
