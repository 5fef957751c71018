"""Every example of an inventory or of group data in README and docs loads.

One is a block of Python whose first line names the file that it stands for, or `KEY = VALUE` of
group data between backquotes.
"""

import re
import shutil
import textwrap
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import get_args, get_type_hints

import pytest

from lockstep.deploy.plan import plan_hosts
from lockstep.fit import catalogue
from lockstep.inventory import inventory_file
from lockstep.inventory.settings import Settings
from lockstep.lock.pins import Pins

ROOT = Path(__file__).parents[3]
TEXTS = [path.read_text() for path in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md"))]
FILE = re.compile(r"# ((?:inventories|group_data)/\w+\.py)\b")
BLOCK = re.compile(r"^( *)```python\n(.*?)^ *```", re.DOTALL | re.MULTILINE)
KEYS = "|".join(item.name for item in fields(Settings) if item.name != "name")
INLINE = re.compile(rf"`((?:{KEYS}) = [^`]+)`")
CODE = "\n".join(
    span for text in TEXTS for span in re.findall(r"`[^`\n]+`|^    .*$", text, re.MULTILINE)
)


def keys(data):
    """Every key below a type of inventory data."""
    for item in fields(data) if is_dataclass(data) else ():
        yield item.name
        yield from keys(get_type_hints(data)[item.name])
    for part in get_args(data):
        yield from keys(part)


@pytest.mark.parametrize("key", sorted(set(keys(Settings))))
def test_a_page_names_every_key(key: str) -> None:
    assert re.search(rf"\b{key}\b", CODE)


def examples():
    """The file that an example stands for, and its text."""
    for text in TEXTS:
        for _, block in BLOCK.findall(text):
            plain = textwrap.dedent(block)
            if file := FILE.match(plain):
                # The inventory here is that of a checkout, whose hosts are the group `spark`.
                yield file[1].replace("group_data/inventory.py", "group_data/spark.py"), plain
        for inline in INLINE.findall(text):
            yield "group_data/spark.py", inline.replace("\n", " ") + "\n"


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


@pytest.mark.parametrize(("file", "text"), [*examples()])
def test_every_example_loads(file: str, text: str, repository: Path) -> None:
    (repository / file).write_text(text)
    assert inventory_file.load(repository / "inventories/spark.py")


def test_the_readme_says_what_plan_says_about_the_models_as_they_are(repository: Path) -> None:
    plans = inventory_file.load(repository / "inventories/spark.py")
    whole_plan = plan_hosts(plans, Pins(), catalogue.load())
    sizes = [item.size for item in whole_plan.hosts[0].downloads]
    text = " ".join((ROOT / "README.md").read_text().split())
    weights = sum(size for size in sizes if size) / 1e9
    assert f"{weights:.1f} GB of weights for the default models" in text
    assert sizes.count(None) == 2 and "two images, Open WebUI" in text
    assert whole_plan.findings == () and "it finds nothing" in text
