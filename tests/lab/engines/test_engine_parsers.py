"""Every command line of the catalogue, and of a cluster's ranks, passes its engine's real parser.

Needs no lab and no GPU: `lab.parsers` installs vLLM's CPU build and what SGLang's parser needs.
"""

import itertools
import json
import os
import random
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from packaging.specifiers import SpecifierSet
from stack import REPOSITORY

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
#: Of the names of the two questions about each written command.
ENDS = ("-as-written", "-in-full")
REMOVED = {
    "vllm": ("--disable-log-requests", "--swap-space 4", "--task generate", "--cuda-graph-sizes 4"),
    "sglang": ("--cuda-graph-max-bs 4", "--cuda-graph-bs 4", "--mamba-scheduler-strategy auto"),
}


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


@pytest.fixture(scope="module", params=["vllm", "sglang"])
def answer(request, tmp_path_factory):
    """Each engine's answer. Another number of written commands: MUTATED_COMMANDS=10000."""
    engine: str = request.param
    recipes = [
        item for item in catalogues.load().recipes.values() if item.engine is ENGINES[engine]
    ]
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
    count = int(os.environ.get("MUTATED_COMMANDS", "100"))
    written_questions, unread = written_commands(engine, count)
    # A host's own question has a limit of time.
    batches = [[*questions, *written_questions[:500]]]
    batches += [written_questions[at : at + 500] for at in range(500, len(written_questions), 500)]
    answers, options = zip(
        *(ask(engine, batch, tmp_path_factory.mktemp("question")) for batch in batches), strict=True
    )
    faults = [fault for item in answers for fault in item["faults"]]
    return SimpleNamespace(
        engine=engine,
        version=answers[0]["version"],
        # Question's name → why the engine refuses it.
        refusals={fault.split()[1].rstrip(":"): fault for fault in faults},
        # Recipes written for an older engine, or for an image's own.
        foreign=foreign,
        removed_flags={item["name"] for item in removed_questions},
        # Commands that a person may write, and the numbers of those that Lockstep refuses.
        count=count,
        unread=unread,
        options=options[0],
    )


def written_commands(engine: str, count: int) -> tuple[list[dict[str, Any]], set[str]]:
    """Questions about commands as a person may write them, and in full as Lockstep starts them.

    Also the numbers of those that Lockstep refuses.
    """
    dice = random.Random(7)
    start = "vllm serve {model}" if engine == "vllm" else "sglang serve --model-path {model}"
    questions, unread = [], set()
    for number in range(count):
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
    return questions, unread


_ASK = """\
import runpy
try:
    runpy.run_module("lockstep.onhost", run_name="__main__")
except SystemExit as end:
    assert not end.code, end.code
"""


def ask(engine: str, questions: list[dict[str, Any]], folder: Path) -> tuple[dict[str, Any], str]:
    """The answer of the program that a host runs inside its image, and the engine's options."""
    target_path = folder / "question.json"
    target_path.write_text(json.dumps(questions))
    python = parsers.interpreters(open_lab().cache, print)[engine]
    result = subprocess.run(
        [python, "-c", _ASK + parser_options.question(engine), "image-answer", engine, target_path],
        cwd=REPOSITORY,
        env={"HOME": str(folder), "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert result.returncode == 0, result.stderr[-3000:]
    *_, line, options = result.stdout.splitlines()
    answer = json.loads(line)
    assert answer["unanswered"] is None, answer
    return answer, options


def test_the_catalogue_is_taken_and_removed_flags_are_named(answer):
    refusals = {name: text for name, text in answer.refusals.items() if not name.endswith(ENDS)}
    assert answer.version.startswith(parser_options.VERSIONS[answer.engine])
    assert set(refusals) == answer.foreign | answer.removed_flags, "\n".join(refusals.values())
    for flag in answer.removed_flags:
        assert flag in refusals[flag].partition("refuses it:")[2]
        assert parser_options.VERSIONS[answer.engine] in refusals[flag]


def test_the_list_of_options_is_that_of_the_parser(answer):
    """`python -m lab.parser_options` writes it anew."""
    file = parser_options.FOLDER / f"{answer.engine}.txt"
    option_list = parser_options.option_list(answer.engine, answer.options)
    assert file.read_text(encoding="utf-8") == option_list


def test_a_command_is_read_as_the_engine_reads_it(answer):
    """A command that one refuses the other refuses, too."""
    assert [text for text in answer.refusals.values() if "Lockstep reads" in text] == []
    as_written, in_full = (
        {name.removesuffix(end) for name in answer.refusals if name.endswith(end)} for end in ENDS
    )
    assert as_written == in_full | answer.unread
    print(f"{answer.engine}: {len(as_written)} of {answer.count} commands refused by both")
    assert 0 < len(as_written) < answer.count * 2 / 3
