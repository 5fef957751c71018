"""Every command line of the catalogue, and of a cluster's ranks, passes its engine's real parser.

Needs no lab and no GPU: `lab.parsers` installs vLLM's CPU build and what SGLang's parser needs.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import shlex
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from onhost_fakes import program
from packaging.specifiers import SpecifierSet

from lab import parser_options, parsers
from lab.core.state import open_lab
from lockstep.core.errors import RecipeError
from lockstep.fit import catalogue as catalogues
from lockstep.inventory.cluster import ClusterData, ClusterMembers, Member
from lockstep.onhost.engines import ENGINES
from lockstep.recipes import recipe_file
from lockstep.recipes.command import environment, serve_command
from lockstep.recipes.recipe_file import Recipe
from lockstep.recipes.sizing import options_read

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
        group = ClusterMembers("all", rank, members, data, "enP7s7", ())
        words = group.arguments(ENGINES[engine], data_parallel=copies)
        assert len(words) >= 3
        yield question(recipe, f"rank-{rank}-of-{copies}", **words)


def ask(python: Path, engine: str, questions: Iterable[Any], folder: Path) -> dict[str, Any]:
    """The answer of the program that a host runs inside its image, in this environment."""
    target_path = folder / "question.json"
    target_path.write_text(json.dumps(list(questions)))
    result = subprocess.run(
        program("image-answer", engine, str(target_path), python=(str(python),)),
        env={"HOME": str(folder), "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert result.returncode == 0, result.stderr[-3000:]
    answer: dict[str, Any] = json.loads(result.stdout)
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
        if parser_options.VERSIONS[engine] not in SpecifierSet(recipe.lockstep.engine_versions)
        or OWN_VARIABLES & recipe.env.keys()
    }
    good = next(recipe for recipe in recipes if recipe.name not in foreign)
    removed_questions = [question(good, flag.split()[0], *flag.split()) for flag in REMOVED[engine]]
    questions = [*(question(recipe, recipe.name) for recipe in recipes), *removed_questions]
    questions += ranks(engine, good)
    answer = ask(pythons[engine], engine, questions, tmp_path)
    assert answer["version"].startswith(parser_options.VERSIONS[engine])
    refusals = {fault.split()[1].rstrip(":"): fault for fault in answer["faults"]}
    removed_names = {item["name"] for item in removed_questions}
    assert set(refusals) == foreign | removed_names, "\n".join(answer["faults"])
    for flag in removed_names:
        assert flag in refusals[flag].partition("refuses it:")[2]
        assert parser_options.VERSIONS[engine] in refusals[flag]


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_the_list_of_options_is_that_of_the_parser(engine: str, pythons: dict[str, Path]) -> None:
    """`python -m lab.parser_options` writes it anew."""
    option_text = (parser_options.FOLDER / f"{engine}.txt").read_text(encoding="utf-8")
    assert option_text == parser_options.option_list(engine, pythons[engine])


#: What a person may write of each flag; of some values the engine refuses, and so do we.
WRITTEN = {
    "vllm": {
        "max-model-len": ("32768", "32k", "32K", "1M", "2.5k", "1.5K", "auto", "AUTO", "-1"),
        "gpu-memory-utilization": ("0.5", ".95", "0.9"),
        "max-num-seqs": ("4", "256"),
        "max-num-batched-tokens": ("8192", "8k", "8_192"),
        "kv-cache-dtype": ("fp8", "auto"),
        "kv-cache-memory-bytes": ("6G", "6g", "1024", "512M", "80g", "6 GB"),
        "quantization": ("fp8", "modelopt_fp4"),
        "tensor-parallel-size": ("1", "2"),
        "port": ("8000",),
    },
    "sglang": {
        "context-length": ("32768",),
        "mem-fraction-static": ("0.5", ".95"),
        "max-running-requests": ("4", "256"),
        "kv-cache-dtype": ("fp8_e5m2", "auto"),
        "tp-size": ("1", "2"),
        "port": ("30000",),
    },
}
ALIASES = {
    ("vllm", "quantization"): ("-q",),
    ("vllm", "tensor-parallel-size"): ("-tp",),
    ("sglang", "tp-size"): ("--tp", "--tensor-parallel-size"),
}


def mutated_command(engine: str, dice: random.Random) -> list[str]:
    """A command as a person may write it.

    In any order, with repetitions, underscores, `=`, abbreviations, dots, short names, and values
    that stick to them.
    """
    words: list[list[str]] = []
    for key, values in [*WRITTEN[engine].items(), *dice.sample([*WRITTEN[engine].items()], 2)]:
        if dice.random() < 0.3:
            continue
        flag = "--" + (key.replace("-", dice.choice("-_")) if engine == "vllm" else key)
        flag = dice.choice((flag, *ALIASES.get((engine, key), ())))
        if flag.startswith("--") and dice.random() < 0.1:
            flag = flag[: dice.randrange(min(9, len(flag)), len(flag) + 1)]
        value = dice.choice(values)
        joined_words = [[f"{flag}{value}"]] if len(flag) == 2 else []
        words.append(dice.choice(([f"{flag}={value}"], [flag, value], *joined_words)))
    if engine == "vllm" and dice.random() < 0.7:
        flag = dice.choice(("--speculative-config", "--speculative_config", "-sc"))
        count = dice.randrange(1, 9)
        as_json = json.dumps({"method": "ngram", "num_speculative_tokens": count})
        dotted_words = [[f"{flag}.method", "ngram"], [f"{flag}.num_speculative_tokens={count}"]]
        words += dice.choice(([[flag, as_json]], [[f"{flag}={as_json}"]], dotted_words))
    dice.shuffle(words)
    return [word for pair in words for word in pair]


def quote(word: str, dice: random.Random) -> str:
    """A word, quoted as a shell may get it."""
    ways = [shlex.quote(word), "'" + word + "'", json.dumps(word), "\\".join(("", *word))]
    return dice.choice(ways)


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_a_command_is_read_as_the_engine_reads_it(
    engine: str, pythons: dict[str, Path], tmp_path: Path
) -> None:
    """Another number of commands: MUTATED_COMMANDS=10000. What one refuses the other does, too."""
    dice = random.Random(7)
    start = "vllm serve {model}" if engine == "vllm" else "sglang serve --model-path {model}"
    questions, unread = [], set()
    for number in range(int(os.environ.get("MUTATED_COMMANDS", "200"))):
        words = mutated_command(engine, dice)
        command = dice.choice((" ", "  ", " \\\n    ")).join(quote(word, dice) for word in words)
        text = f"model: org/model\ncontainer: a/b:1\ncommand: |\n  {start} {command}\n"
        recipe = recipe_file.parse(text, Path("x.yaml"))
        as_written = [*start.format(model="org/model").split(), *words]
        questions.append({"name": f"{number}-as-written", "argv": as_written, "environment": {}})
        try:
            questions.append(question(recipe, f"{number}-in-full"))
            questions[-2]["read"] = questions[-1]["read"]
        except RecipeError:
            unread.add(str(number))
    # A host's own question has a limit of time.
    batches = [questions[at : at + 500] for at in range(0, len(questions), 500)]
    faults = [
        fault
        for batch in batches
        for fault in ask(pythons[engine], engine, batch, tmp_path)["faults"]
    ]
    assert [fault for fault in faults if "Lockstep reads" in fault] == []
    refusals = {
        end: {name.partition("-")[0] for name in names if name.endswith(end)}
        for names in [[fault.split()[1].rstrip(":") for fault in faults]]
        for end in ("as-written", "in-full")
    }
    assert refusals["as-written"] == refusals["in-full"] | unread
    print(
        f"{engine}: {len(questions)} asked, {len(refusals['as-written'])} commands refused by both"
    )
    assert 0 < len(refusals["as-written"]) < len(questions) / 3
