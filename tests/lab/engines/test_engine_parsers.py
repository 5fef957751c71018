"""Every command line of the catalogue, and of a cluster's ranks, passes its engine's real parser.

Needs no lab and no GPU: `lab.parsers` installs vLLM's CPU build and what SGLang's parser needs.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from onhost_fakes import program
from packaging.specifiers import SpecifierSet

from lab import parsers
from lab.core.state import open_lab
from lockstep.fit import catalogue as catalogues
from lockstep.inventory.cluster import ClusterData, Group, Member
from lockstep.onhost.engines import ENGINES
from lockstep.recipes import recipe_file
from lockstep.recipes.command import environment, serve_command
from lockstep.recipes.recipe_file import Recipe
from lockstep.recipes.sizing import options_read

PINNED = {"vllm": parsers.VLLM_VERSION, "sglang": parsers.SGLANG_VERSION}
#: What only the build of a recipe's own image reads.
OWN_VARIABLES = {"VLLM_PLE_TABLE_MEMORY"}
REMOVED = {
    "vllm": ("--disable-log-requests", "--swap-space 4", "--task generate", "--cuda-graph-sizes 4"),
    "sglang": ("--cuda-graph-max-bs 4", "--cuda-graph-bs 4", "--mamba-scheduler-strategy auto"),
}


@pytest.fixture(scope="session")
def pythons() -> dict[str, Path]:
    """Engine → interpreter."""
    return parsers.interpreters(open_lab().cache, print)


def question(recipe: Recipe, name: str, *more: str, **words: Any) -> dict[str, Any]:
    argv = (*serve_command(recipe, overrides=words), *more)
    return {
        "name": name,
        "argv": argv,
        "environment": environment(recipe),
        "read": options_read(recipe, argv),
    }


def ranks(engine: str, recipe: Recipe) -> Iterator[dict[str, Any]]:
    """A recipe as every rank of four Sparks starts it, as one copy and as two."""
    members = tuple(Member(f"spark-{rank}", f"10.77.0.{rank}", ()) for rank in range(4))
    data = ClusterData(hosts=tuple(member.name for member in members))
    for copies, rank in itertools.product((1, 2), range(4)):
        group = Group("all", rank, members, data, "enP7s7", ())
        words = group.arguments(ENGINES[engine], data_parallel=copies)
        assert len(words) >= 3
        yield question(recipe, f"rank-{rank}-of-{copies}", **words)


def ask(python: Path, engine: str, questions: Iterable[Any], folder: Path) -> dict[str, Any]:
    """What the program that a host runs inside its image says in this environment."""
    asked = folder / "question.json"
    asked.write_text(json.dumps(list(questions)))
    done = subprocess.run(
        program("image-answer", engine, str(asked), python=(str(python),)),
        env={"HOME": str(folder), "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    answer: dict[str, Any] = json.loads(done.stdout)
    assert answer["unanswered"] is None, answer
    return answer


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_the_catalogue_is_taken_and_removed_flags_are_named(
    engine: str, pythons: dict[str, Path], tmp_path: Path
) -> None:
    recipes = [
        item for item in catalogues.load().recipes.values() if item.engine is ENGINES[engine]
    ]
    # Written for an older engine, or for an image's own.
    foreign = {
        recipe.name
        for recipe in recipes
        if PINNED[engine] not in SpecifierSet(recipe.lockstep.engine_versions)
        or OWN_VARIABLES & recipe.env.keys()
    }
    good = next(recipe for recipe in recipes if recipe.name not in foreign)
    removed = [question(good, flag.split()[0], *flag.split()) for flag in REMOVED[engine]]
    asked = [*(question(recipe, recipe.name) for recipe in recipes), *removed]
    asked += ranks(engine, good)
    answer = ask(pythons[engine], engine, asked, tmp_path)
    assert answer["version"].startswith(PINNED[engine])
    refused = {fault.split()[1].rstrip(":"): fault for fault in answer["faults"]}
    gone = {item["name"] for item in removed}
    assert set(refused) == foreign | gone, "\n".join(answer["faults"])
    for flag in gone:
        assert flag in refused[flag].partition("refuses it:")[2]
        assert PINNED[engine] in refused[flag]


#: What a person may write of each flag.
WRITTEN = {
    "vllm": {
        "max_model_len": ("32768", "32k", "32K", "1M", "auto", "-1"),
        "gpu_memory_utilization": ("0.5", ".95", "0.9"),
        "max_num_seqs": ("4", "256"),
        "max_num_batched_tokens": ("8192", "8k"),
        "kv_cache_dtype": ("fp8", "auto"),
        "kv_cache_memory_bytes": ("6G", "6g", "1024"),
    },
    "sglang": {
        "context_length": ("32768",),
        "mem_fraction_static": ("0.5", ".95"),
        "max_running_requests": ("4", "256"),
        "kv_cache_dtype": ("fp8_e5m2", "auto"),
    },
}


def mutated(engine: str, dice: random.Random) -> list[str]:
    """A command as a person may write it: any order, underscores, `=`, abbreviations, dots."""
    words: list[list[str]] = []
    for key, values in WRITTEN[engine].items():
        if dice.random() < 0.3:
            continue
        flag = "--" + key.replace("_", dice.choice("-_") if engine == "vllm" else "-")
        if dice.random() < 0.3:
            flag = flag[: dice.randrange(6, len(flag) + 1)]
        value = dice.choice(values)
        words.append([f"{flag}={value}"] if dice.random() < 0.5 else [flag, value])
    if engine == "vllm" and dice.random() < 0.5:
        flag = dice.choice(("--speculative-config", "--speculative_config", "-sc"))
        words.append([f"{flag}.method", "ngram"])
        words.append([f"{flag}.num_speculative_tokens={dice.randrange(1, 9)}"])
    dice.shuffle(words)
    return [word for pair in words for word in pair]


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_a_command_is_read_as_the_engine_reads_it(
    engine: str, pythons: dict[str, Path], tmp_path: Path
) -> None:
    """Another number of commands: MUTATED_COMMANDS=10000. What is ambiguous both refuse."""
    dice = random.Random(7)
    start = "vllm serve {model}" if engine == "vllm" else "sglang serve --model-path {model}"
    asked = []
    for number in range(int(os.environ.get("MUTATED_COMMANDS", "200"))):
        words = mutated(engine, dice)
        text = f"model: org/model\ncontainer: a/b:1\ncommand: {start} {' '.join(words)}\n"
        recipe = recipe_file.parse(text, Path("x.yaml"))
        in_full = question(recipe, f"{number}-in-full")
        as_written = [*start.format(model="org/model").split(), *words]
        asked += [in_full, {**in_full, "name": f"{number}-as-written", "argv": as_written}]
    faults = ask(pythons[engine], engine, asked, tmp_path)["faults"]
    refused = {fault.split()[1].rstrip(":") for fault in faults}
    assert {name.partition("-")[2] for name in refused} == {"in-full", "as-written"}
    assert [fault for fault in faults if "ambiguous option" not in fault] == []
    assert len({name.partition("-")[0] for name in refused}) * 2 == len(refused) < len(asked) / 2
