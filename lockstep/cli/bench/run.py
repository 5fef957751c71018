"""`lockstep bench run`: suites on one engine, a result file, a table."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import click

from lockstep.bench import reach
from lockstep.bench.client import BenchUnreachable, Client
from lockstep.bench.look import HostLoad, look
from lockstep.bench.results import Result, ResultError, Subject, save
from lockstep.bench.ruler import ExpectedFigures
from lockstep.bench.run import Bench, measure
from lockstep.bench.subject import of_host
from lockstep.bench.suites.suites import SUITES
from lockstep.bench.table import print_result
from lockstep.cli.common import DONE, FINDINGS, UNUSABLE, print_json
from lockstep.cli.inventory_option import INVENTORY_IF_NEEDED, find_inventory
from lockstep.core.version import version
from lockstep.fleet.tunnel import tunnel
from lockstep.onhost.rollout.speed_prompt import TOKENS


@click.command()
@click.argument("subject", metavar="HOST|URL")
@INVENTORY_IF_NEEDED
@click.option(
    "--suite",
    "names",
    multiple=True,
    type=click.Choice(list(SUITES)),
    help="Only this suite; may be repeated.  [default: all]",
)
@click.option("--model", help="With a URL: the model's name there, instead of the first served.")
@click.option("--key-file", type=click.Path(path_type=Path), help="File with the API key.")
@click.option(
    "--quick", is_flag=True, help="Fewer prompts: the technical one, the shortest prefill."
)
@click.option(
    "--repeat",
    default=10,
    show_default=True,
    type=click.IntRange(min=1),
    help="Rounds of a suite about speed; after five, none begins later than 3 minutes.",
)
@click.option(
    "--tokens",
    default=TOKENS,
    show_default=True,
    type=click.IntRange(min=32),
    help="Length of an answer whose speed is measured; half of it with several streams.",
)
@click.option("--timeout", default=600.0, show_default=True, help="Limit of one answer, seconds.")
@click.option(
    "--waive",
    multiple=True,
    metavar="CHECK",
    help="Keep the score in spite of this check; may be repeated.",
)
@click.option("--output", "-o", type=click.Path(path_type=Path), help="File of the result.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON instead.")
def run(
    subject: str,
    inventory: Path | None,
    names: tuple[str, ...],
    model: str | None,
    key_file: Path | None,
    quick: bool,
    repeat: int,
    tokens: int,
    timeout: float,
    waive: tuple[str, ...],
    output: Path | None,
    as_json: bool,
) -> int:
    """Measure the hot model of HOST, or the engine at URL.

    A suite about speed (decode, prefill, concurrency, speculation) is warmed by a round that does
    not count, and then measured in rounds. At 30 tok/s each takes about 4 minutes.

    No other engine or host is contacted. Exit codes: 0 every suite is measured, or refused by the
    engine itself; 1 the model talks nonsense (suite sense), whatever else is measured; 2 a suite is
    suspect and has no score, sense could not be told, or there is nothing to measure.
    """
    began = _now()
    with _bench(subject, inventory, model, _key(key_file)) as (bench, about):
        bench.waived_checks, bench.quick = waive, quick
        bench.repeats, bench.tokens, bench.client.timeout_s = repeat, tokens, timeout
        bench.tell = lambda line: click.echo(f"  {line}", err=True)
        suites = tuple(measure(bench, SUITES[name]) for name in names or SUITES)
    result = Result(about, began, _now(), version(), suites)
    name = "-".join(filter(None, (about.host, about.model))) or "url"
    path = output or Path("measured") / f"{name}-{began.replace(':', '')}.json"
    if as_json:
        print_json(result)
    else:
        save(path, result)
        print_result(result)
        click.echo(f"\n{path}")
    if result.sense == "nonsense":
        return FINDINGS
    return UNUSABLE if result.suspect or result.sense == "untold" else DONE


@contextlib.contextmanager
def _bench(
    subject: str, inventory_path: Path | None, model: str | None, key: str | None
) -> Iterator[tuple[Bench, Subject]]:
    if subject.startswith(("http://", "https://")):
        yield _of_url(subject, model, key)
        return
    inventory = find_inventory(inventory_path)
    place = reach.place(inventory, subject)
    hot = reach.hot(place)
    if key is None and hot.api_key_file:
        key = place.secret(hot.api_key_file)
    about, expectation, vision = of_host(place, hot, inventory.stem)
    urls = hot.engine_url or hot.url, hot.url
    with tunnel(place.where, urls) as open_tunnel:
        engine, api = open_tunnel.urls[0], open_tunnel.urls[-1]
        client = Client(engine, hot.served_name, key)
        first_look = _look_at(
            client, place.where.name, "`switch.sh status` there says how it fares."
        )
        bench = Bench(
            client, expectation, lambda: place.look(hot.engine), context=first_look.context
        )
        bench.vision_tensors = vision
        if hot.url not in urls[:1]:
            bench.api = Client(api, hot.served_name, key)
        yield bench, replace(about, version=first_look.version)


def _of_url(url: str, model: str | None, key: str | None) -> tuple[Bench, Subject]:
    client = Client(url, model or "", key)
    remedy = "Give the address without a path, for example http://127.0.0.1:30001."
    first_look = _look_at(client, url, remedy)
    if not model and not first_look.models:
        raise ResultError("the engine serves no model", where=url, remedy="Wait until it is ready.")
    client.model = model or first_look.models[0]
    engine = first_look.engine.name if first_look.engine else None
    about = Subject(client.url, client.model, engine=engine, version=first_look.version)
    return Bench(client, ExpectedFigures(client.model), context=first_look.context), about


def _look_at(client: Client, where: str, remedy: str) -> HostLoad:
    """Return the first look, and note in the client which engine it asks."""
    try:
        first_look = look(client, None)
    except BenchUnreachable as fault:
        raise ResultError(
            "no engine answers there", where=where, found=str(fault), remedy=remedy
        ) from fault
    client.engine = first_look.engine
    return first_look


def _key(path: Path | None) -> str | None:
    if path is None:
        return None
    with ResultError.instead("the key cannot be read", path):
        return path.read_text(encoding="utf-8").strip()


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
