"""Sparks in memory for pyinfra's `@fake` connector: they answer readers, and change when told to.

An inventory calls `install()`; the hosts' state is read from the file that FAKE_SPARKS names and
written back when the process ends, so that a second run meets what the first one left. Every
command is written down.
"""

from __future__ import annotations

import atexit
import copy
import json
import os
import re
import shlex
import time
from collections.abc import Iterable
from fnmatch import translate
from hashlib import sha256
from pathlib import Path
from typing import Any

from a_spark import GIB, healthy, spark
from pyinfra.connectors.fake import FakeConnector
from pyinfra.connectors.util import CommandOutput, OutputLine

from lockstep.files import sent
from lockstep.files.managed_file import BACKUP_HOME, GATEWAY_HOME, HOME, MARK, PROGRAMS
from lockstep.host.specs import check_wanted
from lockstep.onhost.facts import records
from lockstep.onhost.facts.reading import seal
from lockstep.onhost.gateway import keys
from lockstep.preflight import ENGINE

HOSTS = ("@fake/spark1", "@fake/spark2")
WIPED: dict[str, Any] = {
    "files": {},
    "folders": {},
    "packages": [],
    "noted": [],
    "found": {},
    "groups": {},
    "accounts": {"spark": ["spark", "sudo"]},
    "foreign": {},
    "sysctls": {},
    "venvs": {},
    "links": {},
    "images": {},
    "image_records": {},
    "units": {},
    "engine": {"python": None, "distributions": {}, "origins": {}, "commits": {}},
    "firewall": None,
    "check": None,
    "current": None,
    "weights": "missing",
    "generations": [],
}

_HOMES = {"lockstep": HOME, "lockstep-gateway": GATEWAY_HOME, "lockstep-backup": BACKUP_HOME}


class Failed(Exception):
    """A command that ends with another code than 0."""


class Spark:
    """One host: `state` is everything on it, `fails` what goes wrong there."""

    def __init__(self, name: str, state: dict[str, Any], fails: dict[str, Any]) -> None:
        self.name = name
        self.state = state
        self.fails = fails
        self.ran: list[str] = []
        self.holder = ""
        self.said: list[str] = []
        self.faulty: dict[str, str] = fails.get("faults", {})

    def answer(self, command: str, stdin: str) -> str:
        """What a command prints on this host."""
        words = shlex.split(command)
        given = json.loads(stdin) if words == list(sent.COMMAND) else {}
        if given.get("program") == "lockstep.onhost.records.write_files":
            document = given["asked"]
            writes = any(document.get(key) for key in ("folders", "files", "links"))
            self._changes(f"{'write' if writes else 'remove'} {' '.join(_paths(document))}")
            self._write(document)
            return ""
        if given.get("program") == "lockstep.onhost.records.found":
            self._changes("note what is here")
            for part, names in given["asked"].items():
                self.state["found"].setdefault(part, []).extend(names)
            return ""
        if given:
            asked = given["asked"]
            self.ran.append("? all" if "preflight" in asked else f"? {' '.join(sorted(asked))}")
            for name in asked:
                if name in self.fails:
                    raise Failed(self.fails[name])
            read = {name: getattr(self, f"_read_{name.replace('.', '_')}") for name in asked}
            now = self.state
            # What another deploy had not done yet when it was asked first.
            self.state = now | self.fails.get("waited", {})
            faults = {name: self.faulty[name] for name in asked if name in self.faulty}
            answers = {name: read[name](asked[name]) for name in asked if name not in faults}
            self.state = now
            self.fails.pop("waited", None)
            return json.dumps({"answers": answers, "facts": {}, "faults": faults})
        if words[1:] == [PROGRAMS, "rollout", "begin"]:
            self._changes("begin")
            asked = json.loads(stdin)
            was = {key: copy.deepcopy(self.state[key]) for key in ("files", "units", "current")}
            was |= {
                "rollout": asked.get("rollout", ""),
                "records": list(self.state["generations"]),
                "paths": [],
            }
            kept = self.state.setdefault("before", {**was, "whole": asked.get("whole", False)})
            kept["paths"] += asked["paths"]
            return ""
        if words[1:] == [PROGRAMS, "generations", "begin"]:
            self._changes("note generation")
            self.state["begun"] = json.loads(stdin)
            return ""
        if words[1:] == [PROGRAMS, "generations", "record"]:
            self._changes("record")
            self.state["generations"].append(json.loads(stdin))
            self.state.pop("begun", None)
            return ""
        if words[1:] == [PROGRAMS, "gateway-keys", "list"]:
            self.ran.append(f"? {command}")
            return str(self.state["files"][str(keys.PATH)]["text"])
        if words[1:] == [PROGRAMS, "gateway-keys", "take"]:
            self._changes(command)
            have = {each.person: each for each in self._persons()}
            for each in keys.loaded(stdin.strip(), "standard input"):
                if each.person not in have or each.age > have[each.person].age:
                    have[each.person] = each
            self._secret(str(keys.PATH), json.dumps(keys.document(have.values())), "0640")
            return ""
        if words[0] == "cat":
            self.ran.append(f"? {command}")
            return str(self.state["files"][words[1]]["text"])
        takes = (
            *(["make-secrets", "--take"], ["make-authority", "--take"]),
            ["backup-key", "take"],
        )
        if words[1:2] == [PROGRAMS] and words[2:4] in takes:
            self._changes(command)
            if words[2] == "make-authority":
                self._authority(words[4], stdin.strip())
            else:
                self._secret(words[4], stdin.strip(), "0600" if "--take" in words else "0644")
            return ""
        if words[1:3] == [PROGRAMS, "job"]:
            at = words.index("--")
            try:
                self._changes(f"job {words[4]}: {' '.join(words[at + 1 :])}")
            except Failed:
                if words[4] == "rollout":
                    self._return()
                raise
            self._run(words[at + 1 :])
        else:
            self._changes(command)
            self._run(words)
        return ""

    def hears(self, said: Iterable[str]) -> str:
        """The program that holds the lock of a deploy; what it prints at the end."""
        lines = iter(said)
        self.holder = json.loads(next(lines))["asked"]["run"]
        for line in filter(None, lines):
            self.said.append(line)
        if self.said and self.said[-1] == "ended done":
            self.state.pop("before", None)
        elif self._between() and any(line.startswith("changed") for line in self.said):
            self.ran.append("return")
            self._return()
            return json.dumps({"returned": True, "said": "qwen is hot"})
        return "null"

    def _between(self) -> bool:
        return "before" in self.state and not self.state["before"]["rollout"]

    def _return(self) -> None:
        """To the paths that were named and kept, and to no other."""
        kept = self.state.pop("before")
        for path in kept["paths"]:
            self.state["files"].pop(path, None)
            if path in kept["files"]:
                self.state["files"][path] = kept["files"][path]
        names = {Path(path).name for path in kept["paths"]}
        units = {name: unit for name, unit in self.state["units"].items() if name not in names}
        was = {name: unit for name, unit in kept["units"].items() if name in names}
        self.state |= {"current": kept["current"], "generations": kept["records"]}
        self.state.pop("begun", None)
        self.state["units"] = units | was

    def _changes(self, line: str) -> None:
        self.ran.append(line)
        for part, message in self.fails.items():
            if part in line:
                raise Failed(message)

    def _write(self, document: dict[str, Any]) -> None:
        for kind, key in (("folder", "folders"), ("file", "files")):
            for item in document.get(key, []):
                kept = {name: item[name] for name in ("mode", "owner", "group")}
                self.state["files"][item["path"]] = {
                    "kind": kind,
                    "text": item.get("text"),
                    **kept,
                }
        for path in document.get("remove", []):
            self.state["files"].pop(path, None)
        self.state["links"] |= document.get("links", {})
        for path in [file["path"] for file in document.get("files", [])]:
            if Path(path).name in self.state["units"]:
                self.state["units"][Path(path).name]["NeedDaemonReload"] = "yes"

    # Programs --------------------------------------------------------------------------------

    def _run(self, words: list[str]) -> None:
        while words[0] == "env" or "=" in words[0]:
            words = words[1:]
        if words[1] == PROGRAMS:
            words = words[1:]
        program = Path(words[1] if words[0] == PROGRAMS else words[0]).name
        handler = getattr(self, "_run_" + re.sub(r"\W", "_", program), None)
        if handler:
            handler(words)

    def _run_apt_turn(self, words: list[str]) -> None:
        self._run(words[words.index("--") + 1 :])

    def _run_apt_get(self, words: list[str]) -> None:
        if "install" in words:
            self.state["packages"] += words[words.index("--no-install-recommends") + 1 :]

    def _run_groupadd(self, words: list[str]) -> None:
        self.state["groups"][words[-1]] = 990

    def _run_useradd(self, words: list[str]) -> None:
        groups = words[words.index("--groups") + 1].split(",") if "--groups" in words else []
        self.state["accounts"][words[-1]] = [words[-1], *groups]

    def _run_gpasswd(self, words: list[str]) -> None:
        self.state["accounts"][words[-2]].append(words[-1])

    def _run_sysctl(self, words: list[str]) -> None:
        text = self.state["files"][words[-1]]["text"]
        pairs = (line.partition("=") for line in text.splitlines() if "=" in line)
        self.state["sysctls"] = {key.strip(): value.strip() for key, _, value in pairs}

    def _run_python(self, words: list[str]) -> None:
        self._install(str(Path(words[0]).parents[1]), words)

    def _run_uv(self, words: list[str]) -> None:
        if "install" in words:
            self._install(str(Path(words[words.index("--python") + 1]).parents[1]), words)

    def _install(self, venv: str, words: list[str]) -> None:
        listed = self.state["files"][words[words.index("--requirement") + 1]]["text"]
        for line in listed.splitlines():
            name, _, version = line.partition(" ")[0].partition("==")
            self.state["venvs"].setdefault(venv, {})[name] = version

    def _run_firewall(self, words: list[str]) -> None:
        if words[2] == "keep":
            text = self.state["files"]["/etc/lockstep/firewall.nft"]["text"]
            self.state["firewall"] = sha256(text.encode()).hexdigest()

    def _run_make_secrets(self, words: list[str]) -> None:
        # Another one on each host.
        drawn = sha256(f"{self.name} {words[2]}".encode()).hexdigest()
        self._secret(words[2], f"sk-{drawn[:43]}")

    def _run_make_authority(self, words: list[str]) -> None:
        have = self.state["files"].get(words[2], {"text": f"authority of {self.name}"})
        self._authority(words[2], have["text"])

    def _authority(self, path: str, text: str) -> None:
        self._secret(path, text)
        self._secret("/etc/lockstep/authority.crt", f"certificate of {text}", "0644")

    def _persons(self) -> list[keys.Entry]:
        have = self.state["files"].get(str(keys.PATH))
        return keys.loaded(have["text"], str(keys.PATH)) if have else []

    def _run_backup_key(self, words: list[str]) -> None:
        if words[2] == "make":
            self._secret(words[3], f"private of {self.name}")
        self._secret(words[4], f"public of {self.name}", "0644")

    def _secret(self, path: str, text: str, mode: str = "0600") -> None:
        kept = {"kind": "file", "mode": mode, "owner": "root", "group": "root", "text": text}
        self.state["files"][path] = kept

    def _spec(self) -> dict[str, Any]:
        spec: dict[str, Any] = json.loads(self.state["files"]["/etc/lockstep/engine.json"]["text"])
        return spec

    def _run_engine_build(self, words: list[str]) -> None:
        spec, engine, stage = self._spec(), self.state["engine"], words[2]
        if stage == "check":
            self.state["check"] = {
                **{"asked": check_wanted(spec), "faults": [], "version": "0.19.2"},
                **{"torch": "2.10.0+cu130", "cuda": "13.0"},
            }
        elif stage == "activate":
            self.state["current"] = spec["id"]
        else:
            engine["python"] = spec["python"]
            for name, version in spec["expected"].items():
                at = "flashinfer" if "flashinfer" in name else "pytorch"
                at = "vllm" if name in ("mistral-common", "transformers") else at
                if at == stage:
                    engine["distributions"][name] = version
            if stage == "vllm":
                engine["commits"]["vllm"] = spec["vllm"]["commit"]
                engine["origins"]["vllm"] = {"url": f"file://{spec['home']}/vllm"}

    def _run_pull_image(self, words: list[str]) -> None:
        platform = words[words.index("--platform") + 1]
        self.state["images"][words[2]] = platform.partition("/")[2]

    def _run_image_check(self, words: list[str]) -> None:
        digest = words[2].partition("@")[2]
        question = f"/var/cache/lockstep/questions/{digest.replace(':', '-')}.json"
        text = self.state["files"][question]["text"]
        self.state["image_records"][digest] = {
            **{"engine": words[3], "version": "0.19.1", "faults": []},
            **{"unanswered": None, "asked": sha256(text.encode()).hexdigest()},
        }

    def _run_fetch_weights(self, words: list[str]) -> None:
        if "--small" not in words:
            self.state["weights"] = "complete"

    def _run_rm(self, words: list[str]) -> None:
        for path in words[1:]:
            self.state["files"].pop(path, None)

    def _run_rollout(self, words: list[str]) -> None:
        if words[2] == "ended" or not self.state.get("before", {}).get("whole"):
            self.state.pop("before", None)
        for unit in self.state["units"].values():
            if unit["ActiveState"] == "active" and unit["wanted"]:
                unit["generation"] = unit["wanted"]

    def _run_systemctl(self, words: list[str]) -> None:
        units = self.state["units"]
        if "daemon-reload" in words:
            for path, file in self.state["files"].items():
                if path.startswith("/etc/systemd/system/") and path.endswith(
                    (".service", ".socket", ".timer")
                ):
                    found = re.search(r"LOCKSTEP_GENERATION=(\w+)", file["text"])
                    known = units.setdefault(Path(path).name, {**UNIT, "LoadState": "loaded"})
                    known |= {"wanted": found[1] if found else "", "NeedDaemonReload": "no"}
            return
        unit = units.setdefault(words[-1], {**UNIT})
        if "--now" in words:
            unit |= {"ActiveState": "inactive", "SubState": "dead"}
        if "enable" in words:
            unit["UnitFileState"] = "enabled"
        if {"start", "restart", "--now"} & set(words):
            unit |= {"ActiveState": "active", "SubState": "running", "generation": unit["wanted"]}

    def _run_webui(self, words: list[str]) -> None:
        self._run_systemctl(words)

    # Readers ----------------------------------------------------------------------------------

    def _read_preflight(self, asked: dict[str, Any]) -> Any:
        facts = healthy(spark(), time.time())
        facts["identity"] = {"machine_id": self.name, "host_keys": [f"ssh-ed25519 {self.name}"]}
        # The one file of every model of `pins_for`.
        has = {64 * "e": 20 * GIB} if self.state["weights"] == "complete" else {}
        facts["models"] = dict.fromkeys(asked["models"], has)
        facts["docker"]["images"] = [
            each for each in asked["images"].values() if each in self.state["images"]
        ]
        if self.state["check"]:
            facts["lacking"] = [what for what in facts["lacking"] if what != ENGINE]
        facts["docker"]["foreign"] |= self.fails.get("foreign", {})
        return facts | self.fails.get("facts", {})

    def _read_records_deploying(self, asked: dict[str, Any]) -> Any:
        assert self.holder == asked["run"]
        answers = {key: self.fails.get(key, "") for key in ("other", "before")}
        return {**answers, "waited": "waited" in self.fails}

    def _read_records_intruders(self, asked: dict[str, Any]) -> Any:
        found = self.state["foreign"]
        return {what: whose for what, whose in found.items() if what not in asked["adopt"]}

    def _read_packages(self, asked: list[str]) -> Any:
        return dict.fromkeys(self.state["packages"], "1")

    def _read_records_unnoted(self, asked: dict[str, list[str]]) -> Any:
        found = self.state["found"]
        left = {part: [x for x in asked[part] if x not in found.get(part, ())] for part in asked}
        return left if any(left.values()) else {}

    def _read_packages_noted(self, _: object) -> Any:
        return list(self.state["noted"])

    def _read_accounts(self, asked: dict[str, list[str]]) -> Any:
        state = self.state
        accounts = {name: state["accounts"].get(name) for name in asked["accounts"]}
        return {
            "accounts": {
                name: have and {"groups": have, "home": _HOMES.get(name, f"/home/{name}")}
                for name, have in accounts.items()
            },
            "groups": {name: state["groups"].get(name) for name in asked["groups"]},
        }

    def _read_machine_sysctls(self, asked: list[str]) -> Any:
        return {key: self.state["sysctls"].get(key) for key in asked}

    def _read_environments_tools(self, asked: list[str]) -> Any:
        return {path: self.state["venvs"].get(path, {}) for path in asked}

    def _read_files_links(self, asked: list[str]) -> Any:
        return {path: self.state["links"].get(path) for path in asked}

    def _read_files(self, asked: dict[str, Any]) -> Any:
        found = {path: self.state["files"].get(path) for path in asked["paths"]}
        for path in set(asked.get("private", [])) & set(found):
            if found[path]:
                text = (found[path]["text"] or "").encode()
                found[path] = {**found[path], "text": None, "seal": seal(asked["key"], text)}
        return found

    def _read_files_marked(self, asked: dict[str, Any]) -> Any:
        folders = tuple(asked["folders"])
        # One pattern for all: a host has hundreds of files, and is asked often.
        named = re.compile("|".join(map(translate, asked["named"])) or "(?!)")
        return [
            path
            for path, file in self.state["files"].items()
            if (path.startswith(folders) and MARK in (file["text"] or "")) or named.match(path)
        ]

    def _read_units_system_services(self, asked: list[str]) -> Any:
        return dict.fromkeys(asked, "on")

    def _read_units(self, asked: list[str]) -> Any:
        return {name: self.state["units"].get(name, UNIT) for name in asked}

    def _read_ruler_models(self, asked: None) -> Any:
        hot = [name for name, unit in self.state["units"].items() if unit.get("generation")]
        return {name: {"name": name, "requests": 2} for name in hot if name.startswith("vllm")}

    def _read_firewall(self, asked: dict[str, Any]) -> Any:
        kept = self.state["firewall"]
        unit = self.state["units"].get(asked["unit"], UNIT)
        return {"kept": kept, "live": kept is not None, "state": unit}

    def _read_environments(self, asked: dict[str, Any]) -> Any:
        engine = self.state["engine"]
        records = self.state["image_records"]
        return {
            "environment": engine,
            "commits": {name: engine["commits"].get(name) for name in ("vllm", "transformers")},
            "unfinished": False,
            "check": self.state["check"],
            "current": self.state["current"],
            "images": {
                name: records.get(digest) for name, digest in asked.get("images", {}).items()
            },
        }

    def _read_records_generation(self, asked: None) -> Any:
        found = self.state["generations"]
        begun = self.state.get("begun")
        newest = {"number": len(found), **found[-1]} if found else {}
        return {**newest, "begun": begun} if begun else newest

    def _read_records_persons(self, asked: str) -> Any:
        try:
            return {"changes": records.changes(self._persons(), asked), "fault": ""}
        except keys.Broken as fault:
            return {"changes": {}, "fault": str(fault)}

    def _read_weights(self, asked: str) -> Any:
        states = {"state": self.state["weights"], "bytes_total": 10, "bytes_present": 0}
        return {"a/b@c": states} if self.state["weights"] != "missing" else {}

    def _read_machine_available(self, asked: None) -> Any:
        return 100 * GIB

    def _read_docker_images(self, asked: list[str]) -> Any:
        return self.state["images"]


def _paths(document: dict[str, Any]) -> list[str]:
    paths = [item["path"] for key in ("folders", "files") for item in document.get(key, [])]
    # Which programs there are is no matter of a deploy.
    shown = ("/usr/local/lib/lockstep/*" if "/lib/lockstep/" in path else path for path in paths)
    links = (f"{path} -> {target}" for path, target in document.get("links", {}).items())
    return list(dict.fromkeys((*shown, *document.get("remove", []), *links)))


UNIT: dict[str, Any] = {
    "LoadState": "not-found",
    "ActiveState": "inactive",
    "SubState": "dead",
    "UnitFileState": "disabled",
    "NeedDaemonReload": "no",
    "generation": "",
    "links": [],
    "wanted": "",
}


def install() -> None:
    """Let `@fake` hosts be these, for this process.

    The file holds {"hosts": {NAME: state}, "fails": {NAME: {PART OF A COMMAND: message}},
    "cut": N}; with "cut", the process dies after so many changes.
    """
    path = Path(os.environ["FAKE_SPARKS"])
    document = json.loads(path.read_text())
    sparks: dict[str, Spark] = {}
    order: list[tuple[str, str]] = []
    changes = 0

    def save() -> None:
        # `lockstep deploy` reads the inventory before the deploy, which is another process, does.
        if not sparks and "ran" in json.loads(path.read_text()):
            return
        document["hosts"] = {name: spark.state for name, spark in sparks.items()}
        document["ran"] = {name: spark.ran for name, spark in sparks.items()}
        document["said"] = {name: spark.said for name, spark in sparks.items()}
        document["order"] = order
        path.write_text(json.dumps(document))

    def run_shell_command(
        self: Any, command: Any, print_output: bool = False, **arguments: Any
    ) -> tuple[bool, CommandOutput]:
        nonlocal changes
        name = self.host.name
        if name not in sparks:
            state = document["hosts"].setdefault(name, json.loads(json.dumps(WIPED)))
            sparks[name] = Spark(name, state, document.get("fails", {}).get(name, {}))
        text = command if isinstance(command, str) else command.get_raw_value()
        if shlex.split(text) == list(sent.LISTENING):
            # Heard to its end, which is that of the deploy.
            said = sparks[name].hears(arguments["_stdin"])
            order.extend([(name, "return")] if said != "null" else [])
            return True, CommandOutput([OutputLine("stdout", line) for line in said.splitlines()])
        try:
            said = sparks[name].answer(text, "".join(arguments.get("_stdin") or []))
        except Failed as failed:
            return False, CommandOutput([OutputLine("stderr", str(failed))])
        last = sparks[name].ran[-1]
        changes += not last.startswith("?")
        order.append((name, last))
        if changes == document.get("cut"):
            save()
            os._exit(137)
        return True, CommandOutput([OutputLine("stdout", line) for line in said.splitlines()])

    FakeConnector.run_shell_command = run_shell_command
    atexit.register(save)
