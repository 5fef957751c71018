"""The page of results, and figures for the catalogue."""

import html
import re
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from lockstep.bench.record import figures, with_figures
from lockstep.bench.report import page
from lockstep.bench.results import Result, ResultError, Subject, SuiteResult, save, spread
from lockstep.bench.ruler import Check
from lockstep.cli.main import main
from lockstep.recipes.recipe_file import load, parse

RECIPE = Path("catalogue/recipes/qwen3.6-35b-a3b-prismaquant-dflash-k3.yaml")


def result(rate: float, began: str, lock: str) -> Result:
    runs = spread([rate - 4, rate, rate + 4])
    by_shape = {
        "technical": {"decode_tok_s": runs, "first_token_s": spread([0.2])},
        "counting": {"decode_tok_s": spread([85.6])},
    }
    decode = {"tokens": 256, "by_shape": by_shape}
    acceptance = spread([0.6029])
    drafting = {"acceptance": acceptance, "by_shape": {"technical": {"acceptance": acceptance}}}
    suites = (
        SuiteResult("decode", "measured", decode, checks=(Check("model", "ok", "m <on> 1"),)),
        SuiteResult("speculation", "measured", drafting),
        SuiteResult("coding", "suspect", checks=(Check("zero", "suspect", "0 of 103"),)),
        SuiteResult("vision", "refused", refusal="HTTP 400 <no images>"),
    )
    engine = {"recipe": RECIPE.stem, "engine": "vllm", "version": "0.32.0", "lock": lock * 64}
    subject = Subject("http://127.0.0.1:30001", "m", host="spark1", model="qwen", **engine)
    return Result(subject, began, began, "0.1", suites)


FIRST = result(71.5, "2026-06-11T20:00:00Z", "a")
SECOND = result(62.0, "2026-07-01T20:00:00Z", "b")


def test_the_page_is_whole_in_itself_and_shows_every_result(tmp_path: Path) -> None:
    paths = [tmp_path / "1.json", tmp_path / "2.json"]
    for path, bench_result in zip(paths, (FIRST, SECOND), strict=True):
        save(path, bench_result)
    target = tmp_path / "page.html"
    invocation = CliRunner().invoke(main, ["bench", "report", *map(str, paths), "-o", str(target)])
    assert invocation.exit_code == 0, invocation.output
    text = target.read_text()
    assert not re.search(r"url\(|@import|<script|<link|<img|(?:src|href)=", text)
    shown_text = html.unescape(re.sub(r"<[^>]+>", "", text))
    assert "History by lock: spark1 · qwen" in shown_text
    assert "aaaaaaaa 06-11" in shown_text and "bbbbbbbb 07-01" in shown_text
    assert "The engine says: HTTP 400 <no images>" in shown_text
    # Why a suite is suspect is open.
    assert text.count("<details>") == text.count("<details open>") == 2
    # Two charts of bars per result, and one history.
    assert text.count("<svg") == 5
    assert "History" not in page([FIRST])


def test_figures_of_a_result_are_marked_measured_and_name_their_lock() -> None:
    assert [(figure.quantity, figure.value, figure.unit) for figure in figures(FIRST)] == [
        ("decode, one stream, 256 tokens", 71.5, "tok/s"),
        ("time to first token", 0.2, "s"),
        ("draft tokens accepted, four prompt shapes", 60.3, "%"),
    ]
    first_figure = figures(FIRST)[0]
    assert (first_figure.kind, first_figure.date) == ("measured", "2026-06-11")
    assert first_figure.source == "lockstep bench on spark1, vllm 0.32.0, lock aaaaaaaaaaaa"


def test_a_recipe_gets_its_figures_and_keeps_everything_else(tmp_path: Path) -> None:
    path = tmp_path / RECIPE.name
    path.write_text(RECIPE.read_text())
    save(tmp_path / "result.json", FIRST)
    argv = ["bench", "record", str(tmp_path / "result.json"), "--recipe", str(path)]
    assert CliRunner().invoke(main, argv).exit_code == 0
    old, new = RECIPE.read_text().splitlines(), path.read_text().splitlines()
    assert new[: len(old)] == old and len(new) == len(old) + 3
    assert load(path).lockstep.figures[-3:] == figures(FIRST)
    # A second measurement replaces the first.
    save(tmp_path / "result.json", SECOND)
    assert CliRunner().invoke(main, argv).exit_code == 0
    assert len(path.read_text().splitlines()) == len(new)
    assert load(path).lockstep.figures[-3:] == figures(SECOND)


def test_a_recipe_without_figures_gets_some_and_those_in_another_way_are_not_touched() -> None:
    text, path = 'recipe_version: "2"\nmodel: a/b\n', Path("x.yaml")
    edited_text = with_figures(text, figures(FIRST), path)
    assert parse(edited_text, path).lockstep.figures == figures(FIRST)
    with pytest.raises(ResultError, match="add these lines by hand"):
        with_figures(f"{text}lockstep: {{figures: []}}\n", figures(FIRST), path)


def test_without_a_result_or_a_figure_in_it_the_remedy_is_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    save(tmp_path / "r.json", replace(FIRST, suites=FIRST.suites[2:]))
    (tmp_path / "empty").mkdir()
    for words, message in (
        (("report",), "Measure first"),
        (("record", "r.json"), "no figure for a recipe"),
        (("compare", "r.json", "empty"), "no result is in this folder"),
    ):
        invocation = CliRunner().invoke(main, ["bench", *words])
        assert invocation.exit_code == 2
        assert message in " ".join(invocation.output.split())
