"""`lockstep key`: one change on every Spark at once, and what differs among them."""

import grp
import io
import json
import os
import subprocess
import sys
import syslog
import threading
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from an_inventory import TWO, write_inventory
from click.testing import CliRunner, Result
from rich.console import Console

from lockstep.cli.main import main
from lockstep.fleet import hosts
from lockstep.onhost.core import atomic_files, errors
from lockstep.onhost.gateway import keys, keys_program
from lockstep.onhost.gateway.usage_totals import Total

pytestmark = pytest.mark.slow

ONE, OTHER = TWO


class Sparks:
    """Two Sparks, each a folder, and the inventory that has them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.inventory = write_inventory(folder, TWO)
        self.calls: list[str] = []
        self.unreachable: set[str] = set()
        self._one_at_a_time = threading.Lock()

    def ssh(self, words: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
        """The real program on a host whose files are in a folder."""
        host, command = words[-2:]
        self.calls.append(f"{host} {command}")
        if host in self.unreachable:
            return subprocess.CompletedProcess(words, 255, "", "timed out\n")
        out, err = io.StringIO(), io.StringIO()
        with self._one_at_a_time, pytest.MonkeyPatch.context() as patch:
            patch.setattr(sys, "stdin", io.StringIO(options["input"]))
            patch.setattr(sys, "stdout", out)
            patch.setattr(sys, "stderr", err)
            code = self.take(host, command.split()[-1])
        return subprocess.CompletedProcess(words, code, out.getvalue(), err.getvalue())

    def take(self, host: str, verb: str) -> int:
        """Do the work of the program on the host."""
        usage = self.folder / host / "usage.json"
        usage.parent.mkdir(exist_ok=True)
        run = partial(keys_program.main, [verb], self.path(host), usage)
        return errors.run_main("lockstep gateway-keys", run)

    def run(self, *words: str, exit_code: int = 0) -> Result:
        result = CliRunner().invoke(main, ["key", *words, "-i", str(self.inventory)])
        assert result.exit_code == exit_code, result.output
        return result

    def add(self, *words: str) -> str:
        """Add a key; the key."""
        return self.run("add", *words).stdout.strip()

    def path(self, host: str) -> Path:
        """keys.json of a Spark."""
        return self.folder / host / "keys/keys.json"

    def persons_behind(self, secret: str) -> list[keys.Person | None]:
        """The persons that the gateways of both Sparks find behind a key."""
        presented_key = [(b"x-api-key", secret.encode())]
        return [keys.Keys(self.path(host)).person_of(presented_key) for host in TWO]

    def key_list(self, exit_code: int = 0) -> Any:
        """`lockstep key list --json`."""
        return json.loads(self.run("list", "--json", exit_code=exit_code).stdout)


@pytest.fixture
def sparks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Sparks:
    sparks = Sparks(tmp_path)
    monkeypatch.setattr(hosts.subprocess, "run", sparks.ssh)
    monkeypatch.setattr(keys, "ACCOUNT", grp.getgrgid(os.getgid()).gr_name)
    monkeypatch.setattr(syslog, "syslog", lambda *_: None)
    return sparks


def test_a_key_is_in_force_everywhere_and_only_its_digest_leaves_here(sparks: Sparks) -> None:
    result = sparks.run("add", "anna", "--role", "operate", "--until", "2100-01-31")
    secret = result.stdout.strip()
    assert result.stderr == f"anna, role operate, on {ONE}, {OTHER}. Shown only now:\n"
    assert sparks.persons_behind(secret) == 2 * [keys.Person("anna", "operate")]
    for host in TWO:
        assert secret not in sparks.path(host).read_text()
    assert not any(secret in call for call in sparks.calls)
    last = "sudo -n /usr/bin/python3 /usr/local/lib/lockstep gateway-keys take"
    assert sorted(sparks.calls[-2:]) == [f"{ONE} {last}", f"{OTHER} {last}"]
    # The person gets no second one.
    result = sparks.run("add", "anna", exit_code=2)
    assert "anna has a key since" in result.stderr and result.stdout == ""
    assert None not in sparks.persons_behind(secret)


def test_a_revoked_or_expired_key_is_worth_nothing_and_a_new_one_may_follow(sparks: Sparks) -> None:
    old = sparks.add("anna")
    result = sparks.run("revoke", "anna")
    assert result.output == f"anna: revoked on {ONE}, {OTHER}\n"
    assert sparks.persons_behind(old) == [None, None]
    new = sparks.add("anna")
    assert sparks.persons_behind(old) == [None, None]
    assert None not in sparks.persons_behind(new)
    result = sparks.run("revoke", "ben", exit_code=2)
    assert "no Spark has a key of ben; allowed: anna" in result.stderr
    # A key of a machine whose clock is ahead can be revoked, too.
    secret = keys.new_key()
    ahead = keys.Entry("anna", "2100-01-01T00:00:00Z", keys.key_digest(secret.encode()))
    past = keys.Entry("ben", "2026-01-01T00:00:00Z", keys.key_digest(b"x"), until="2026-01-31")
    for host in TWO:
        atomic_files.write_json(sparks.path(host), keys.entries_document([ahead, past]))
    assert None not in sparks.persons_behind(secret)
    sparks.run("revoke", "anna")
    assert sparks.persons_behind(secret) == [None, None]
    states = {person["person"]: person["state"] for person in sparks.key_list()["persons"]}
    assert states == {"anna": "revoked", "ben": "expired"}
    assert None not in sparks.persons_behind(sparks.add("ben"))


def test_a_spark_that_is_down_is_named_and_brought_up_to_date_later(sparks: Sparks) -> None:
    sparks.unreachable = {ONE, OTHER}
    result = sparks.run("add", "anna", exit_code=2)
    assert result.stdout == ""
    assert "No key was made. Again: `lockstep key add anna" in result.stderr
    assert "Shown only now" not in result.stderr
    sparks.unreachable.remove(ONE)
    result = sparks.run("add", "anna", exit_code=2)
    assert f"{OTHER}: no connection: timed out\n  anna's key is not in force there" in result.stderr
    secret = result.stdout.strip()
    assert sparks.persons_behind(secret)[0]
    sparks.run("list", exit_code=2)
    sparks.unreachable.clear()
    listing = sparks.run("list", exit_code=1)
    assert f"{OTHER}: anna is unknown; by the last one: in force" in listing.output
    assert f"→ lockstep key list --fix -i {sparks.inventory}" in listing.output
    sparks.run("list", "--fix")
    assert sparks.persons_behind(secret)[1] == keys.Person("anna", "use")
    sparks.run("list")


@pytest.mark.parametrize("remedy", [("list", "--fix"), ("revoke", "anna")])
def test_a_spark_that_was_away_brings_no_key_back(sparks: Sparks, remedy: tuple[str, ...]) -> None:
    secret = sparks.add("anna")
    sparks.unreachable.add(OTHER)
    result = sparks.run("revoke", "anna", exit_code=2)
    assert "anna's key may be in force there" in result.stderr
    sparks.unreachable.clear()
    assert sparks.persons_behind(secret)[1], "it was not reached"
    difference = {"anna": "in force by an older change"}
    assert sparks.key_list(exit_code=1)["differs"] == {ONE: {}, OTHER: difference}
    sparks.run(*remedy)
    assert sparks.persons_behind(secret) == [None, None]


def test_the_list_has_the_totals_of_all_sparks(sparks: Sparks) -> None:
    sparks.add("anna", "--until", "2100-01-31")
    secret = sparks.add("ben", "--role", "operate")
    sparks.run("revoke", "ben")
    for number, host in enumerate(TWO, start=1):
        totals = {
            "anna": asdict(Total(number, 12345678, 1000, 1, f"2026-11-0{number}T08:30:00Z")),
            "local": asdict(Total(3)),
        }
        (sparks.folder / host / "usage.json").write_text(json.dumps(totals))
    listing = sparks.run("list")
    assert [" ".join(line.split()) for line in listing.output.splitlines()[1:]] == [
        "anna use until 2100-01-31 3 2 24.7M/2000 2026-11-02",
        "ben operate revoked 0 0 0/0",
        "(no key) use local 6 0 0/0",
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lockstep.core.terminal.console", lambda: Console(width=40))
        assert "\n  3 requests, 2 refused, 24.7M/2000\n" in sparks.run("list").output
    document = sparks.key_list()
    assert document["persons"][0]["usage"]["completion_tokens"] == 2000
    assert document["without_key"]["requests"] == 6
    assert (document["differs"], document["unknown"]) == ({ONE: {}, OTHER: {}}, {})
    assert secret not in json.dumps(document)


def test_a_broken_file_is_named_and_programs_of_another_version_are_told(sparks: Sparks) -> None:
    sparks.add("anna")
    path = sparks.path(OTHER)
    path.write_text("{")
    listing = sparks.run("list", exit_code=2)
    assert f"{OTHER}: lockstep gateway-keys: {path}: expected a JSON" in listing.stderr
    later = '{"keys": [{"person": "anna", "since": "2026-11-01T00:00:00Z", "models": []}]}'
    sparks.take = lambda *_: print(later)
    listing = sparks.run("list", exit_code=2)
    assert f"{ONE}: its answer: unknown key 'models' in keys[0]" in listing.stderr
    assert "Deploy to it" in listing.stderr
    wrong = iter(('{"requests": "many"}', '{"others": 1}'))
    sparks.take = lambda *_: print(f'{{"keys": [], "usage": {{"anna": {next(wrong, "{}")}}}}}')
    text = " ".join(sparks.run("list", exit_code=2).stderr.split())
    assert "usage.anna.requests must be a whole number; found 'many'" in text
    assert "usage.anna; allowed: completion_tokens, last, prompt_tokens, refusals, requests" in text


def test_wrong_use_contacts_nobody(sparks: Sparks) -> None:
    for words, message in (
        (("local",), "is no name of a person"),
        (("Anna B",), "is no name of a person"),
        (("anna", "--until", "2020-01-01"), "the day is over"),
        (("anna", "--until", "soon"), "Invalid value for '--until'"),
        (("anna", "--role", "root"), "Invalid value for '--role'"),
    ):
        result = sparks.run("add", *words, exit_code=2)
        assert message in " ".join(result.output.split())
    assert sparks.calls == []
