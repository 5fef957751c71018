"""Every example of an inventory or of group data in README and docs loads, and means what it says.

One is a block of Python whose first line names the file that it stands for, or `KEY = VALUE` of
group data between backquotes.
"""

from __future__ import annotations

import re
import shutil
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest

from lockstep.deploy.plan import plan_hosts
from lockstep.fit import catalogue
from lockstep.inventory import inventory_file
from lockstep.inventory.host import HostPlan
from lockstep.inventory.settings import ModelData, Settings
from lockstep.lock.pins import Pins

ROOT = Path(__file__).parents[3]
DOCUMENTS = (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
FILE = re.compile(r"# ((?:inventories|group_data)/\w+\.py)\b")
BLOCK = re.compile(r"^( *)```python\n(.*?)^ *```", re.DOTALL | re.MULTILINE)
KEYS = "|".join(item.name for item in fields(Settings) if item.name != "name")
INLINE = re.compile(rf"`((?:{KEYS}) = [^`]+)`")
# What looks like a part of an inventory: an example that nobody can load.
INSIDE = "|".join(item.name for item in fields(ModelData))
FRAGMENT = re.compile(
    rf"^\s+\(?(?:(?:{KEYS}) = |.*\"(?:{KEYS}|{INSIDE})\": [\[({{\"])", re.MULTILINE
)


CODE = "\n".join(
    span
    for document in DOCUMENTS
    for span in re.findall(r"`[^`\n]+`|^    .*$", document.read_text(), re.MULTILINE)
)


def keys(data: Any, place: str = "") -> Iterator[str]:
    """Every key below a type of inventory data, with its place."""
    for item in fields(data) if is_dataclass(data) else ():
        if item.name != "name" or place:
            yield place + item.name
        yield from keys(get_type_hints(data)[item.name], f"{place}{item.name}.")
    for part in get_args(data):
        yield from keys(part, place)


@pytest.mark.parametrize("key", sorted(set(keys(Settings))))
def test_a_page_names_every_key(key: str) -> None:
    assert re.search(rf"\b{key.rpartition('.')[2]}\b", CODE)


@dataclass(frozen=True)
class Example:
    """One example: its place, the file that it stands for, and its text."""

    document: str
    file: str
    text: str


def examples() -> Iterator[Example]:
    """Every example, in order."""
    for document in DOCUMENTS:
        text = document.read_text()
        for _, block in BLOCK.findall(text):
            plain = textwrap.dedent(block)
            if file := FILE.match(plain):
                yield Example(document.name, file[1], plain)
        for inline in INLINE.findall(text):
            yield Example(document.name, "group_data/spark.py", inline.replace("\n", " ") + "\n")


EXAMPLES = tuple(examples())
PLAIN = """\
from lockstep.deploy.checked import checked
spark = checked(__file__, [("spark-1.local", {"operators": ("you",)})])
"""


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """An owner's folder with this checkout's group data."""
    (tmp_path / "inventories").mkdir()
    (tmp_path / "inventories/spark.py").write_text(PLAIN)
    shutil.copytree(ROOT / "group_data", tmp_path / "group_data")
    return tmp_path


def example_plans(example: Example, repository: Path) -> tuple[HostPlan, ...]:
    """The hosts that an example describes."""
    # The inventory here is that of a checkout, whose hosts are the group `spark`.
    file = example.file.replace("group_data/inventory.py", "group_data/spark.py")
    (repository / file).write_text(example.text)
    return inventory_file.load(repository / "inventories/spark.py")


def hosts(document: str, word: str, repository: Path) -> dict[str, HostPlan]:
    """The hosts by name of the one example of a document that has a word."""
    (example,) = (item for item in EXAMPLES if item.document == document and word in item.text)
    return {plan.name: plan for plan in example_plans(example, repository)}


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_every_example_loads(number: int, repository: Path) -> None:
    assert example_plans(EXAMPLES[number], repository)


def test_no_other_example_is_left_that_nobody_can_load() -> None:
    def is_example(block: str) -> bool:
        return bool(FILE.match(textwrap.dedent(block)))

    for document in DOCUMENTS:
        text = document.read_text()
        remainder = BLOCK.sub(lambda match: "" if is_example(match[2]) else match[2], text)
        assert FRAGMENT.findall(remainder) == [], document.name


def models(plan: HostPlan) -> list[str]:
    """The names that `switch.sh` accepts on a host."""
    return [model.name for model in plan.models]


DEFAULT = ["qwen", "mistral", "mistral-vllm"]


def test_two_sparks_serve_one_model_besides_their_own(repository: Path) -> None:
    plans = hosts("cluster.md", "_deepseek", repository)
    assert list(plans) == ["spark-1.local", "spark-2.local"]
    assert {plan.settings.operators for plan in plans.values()} == {("you",)}
    assert [models(plan) for plan in plans.values()] == [[*DEFAULT, "deepseek"]] * 2
    assert [plan.groups[0].rank for plan in plans.values()] == [0, 1]
    assert [plan.settings.fabric_address for plan in plans.values()] == ["10.77.0.11", "10.77.0.12"]


def test_a_firewall_and_an_open_engine_are_those_of_the_page(repository: Path) -> None:
    (plan,) = hosts("security.md", "tcp/3389", repository).values()
    assert plan.settings.firewall.enabled
    assert plan.settings.firewall.peers == ("10.10.0.0/24",)
    (plan,) = hosts("security.md", "_open", repository).values()
    assert [model.open for model in plan.models] == [True, False, False]
    assert plan.models[0].data.launcher


def test_the_minimum_is_the_only_change(repository: Path) -> None:
    (plan,) = hosts("measuring.md", "_minimum", repository).values()
    assert models(plan) == DEFAULT
    first, second, _ = (model.data.minimum for model in plan.models)
    assert first is None and second and second.share == 0.9


def test_one_spark_differs_on_purpose(repository: Path) -> None:
    plans = hosts("drift.md", "_differs", repository)
    assert [len(plan.settings.differs) for plan in plans.values()] == [0, 2]


def test_a_released_vllm_is_one_value(repository: Path) -> None:
    (plan,) = hosts("operating.md", "release", repository).values()
    engine = plan.settings.engine
    assert (engine.git, engine.transformers, engine.exclude_newer) == (None, None, None)
    assert (engine.release, engine.torch) == ("vllm==0.20.2", "torch")


def test_sparks_with_other_models(repository: Path) -> None:
    plans = hosts("operating.md", "_gemma", repository)
    assert [models(plan) for plan in plans.values()] == [["qwen"], [*DEFAULT, "gemma"]]
    # The default reads images, what stands in for it does not.
    for plan in plans.values():
        assert [recipe.lockstep.vision for recipe in plan.models[0].recipes] == [True, False]


def test_the_readme_says_what_plan_says_about_the_models_as_they_are(repository: Path) -> None:
    whole_plan = plan_hosts(
        inventory_file.load(repository / "inventories/spark.py"), Pins(), catalogue.load()
    )
    sizes = [item.size for item in whole_plan.hosts[0].downloads]
    text = " ".join((ROOT / "README.md").read_text().split())
    weights = sum(size for size in sizes if size) / 1e9
    assert f"{weights:.1f} GB of weights for the default models" in text
    assert sizes.count(None) == 2 and "two images, Open WebUI" in text
    assert whole_plan.findings == () and "it finds nothing" in text
    # What is fetched by a tag is named by its release or its day, and moves with the lock alone.
    plan = inventory_file.load(repository / "inventories/spark.py")[0]
    images = [recipe.container for model in plan.models for recipe in model.recipes]
    images = [image for image in images if image]
    assert all(re.search(r":v?\d[\w.-]*$", image) for image in images), images
