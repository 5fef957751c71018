"""The way to a host that is measured, and the most tokens a second that it can give."""

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from a_probe import program
from a_spark import pins_for, spark

from lockstep.bench import reach
from lockstep.bench.results import ResultError
from lockstep.bench.ruler import FASTEST_TOK_S
from lockstep.bench.subject import ceiling
from lockstep.fit import catalogue
from lockstep.fleet.login import Login
from lockstep.onhost.core.config import Model
from lockstep.onhost.engines import ENGINES
from lockstep.recipes.sizing import Serving

SPARK = "12.1"
MISTRAL = "mistral-small-4-119b-nvfp4-sglang-eagle"
CATALOGUE = catalogue.load(catalogue.FOLDER)


def most(recipe: str = MISTRAL, **serving: int) -> float:
    most_tok_s = ceiling(CATALOGUE.recipes[recipe], Serving(**serving), CATALOGUE.knowledge, SPARK)
    assert most_tok_s is not None
    return most_tok_s


def test_one_spark_reads_273_gb_in_a_second_and_each_drafted_token_may_be_taken() -> None:
    read = CATALOGUE.knowledge.checkpoint(CATALOGUE.recipes[MISTRAL].model).token_gb
    assert read is not None
    assert most() == pytest.approx(273 / float(read.value))
    assert most(draft_tokens=3) == pytest.approx(4 * most())
    # Hosts that split each layer read at the same time.
    assert most(tensor_parallel=2) == pytest.approx(2 * most())
    assert most(pipeline_parallel=2, data_parallel=2) == pytest.approx(most())


def test_without_a_figure_anything_possible_is_allowed() -> None:
    knowledge = CATALOGUE.knowledge
    recipes = CATALOGUE.recipes.items()
    unknown = [name for name, recipe in recipes if not knowledge.checkpoint(recipe.model).token_gb]
    assert unknown and {most(name) for name in unknown} == {FASTEST_TOK_S}


def test_the_bound_is_that_of_the_hosts_own_memory() -> None:
    """On an H200 every fast model was suspect, by the figure of a Spark."""
    spark = CATALOGUE.knowledge.hardware["dgx-spark"]
    bandwidth = replace(spark.bandwidth_gb_s, value=4800)
    h200 = replace(spark, compute_capability="9.0", bandwidth_gb_s=bandwidth)
    knowledge = replace(CATALOGUE.knowledge, hardware={"dgx-spark": spark, "h200": h200})
    recipe = CATALOGUE.recipes[MISTRAL]
    assert ceiling(recipe, Serving(), knowledge, "9.0") == pytest.approx(most() * 4800 / 273)
    assert ceiling(recipe, Serving(), knowledge, "10.0") is None


PLAN = spark()
PLACE = reach.BenchAddress(
    PLAN, Login("spark-1", ("ssh", "--", "spark-1")), pins_for(PLAN), Path("some.lock.yaml")
)
KEY = "/etc/lockstep/secrets/api-key"


def test_a_host_that_is_not_reached_and_a_key_that_is_not_there(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/usr/bin:/bin")
    program(tmp_path / "bin", "ssh", "echo cat: No such file >&2; exit 1")
    with pytest.raises(ResultError, match=f"^spark-1:{KEY}: .*No such file. Deploy to this host"):
        PLACE.secret(KEY)
    program(tmp_path / "bin", "ssh", "echo timed out >&2; exit 255")
    for ask in (PLACE.probe, lambda: PLACE.secret(KEY)):
        with pytest.raises(ResultError, match=r"found no connection: timed out\. Try `ssh` to "):
            ask()


def test_the_host_is_asked_for_what_the_log_of_its_engine_says(monkeypatch):
    requests = []

    def read(where: Login, name: str, question: dict[str, Any], **_: Any) -> tuple[Any, None]:
        requests.append(question["compiler_pattern"])
        return {"hot": "a.service", "compiler_line": "21:04 JIT compilation"}, None

    monkeypatch.setattr(reach.hosts, "read", read)
    assert PLACE.look("vllm").compiler_line == "21:04 JIT compilation"
    PLACE.look("an engine of somebody else")
    assert requests == [ENGINES["vllm"].compile_pattern, ""]


def test_a_model_that_gives_no_tokens_is_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    model = Model("vectors", "v.service", "http://127.0.0.1:1", "m", 1.0, kind="embedding")
    answer = {"hot": model.unit, "models": {model.name: asdict(model)}}
    monkeypatch.setattr(reach.hosts, "read", lambda *_, **__: (answer, None))
    with pytest.raises(ResultError, match=r"vectors gives no tokens.*found kind embedding"):
        reach.hot(PLACE)
