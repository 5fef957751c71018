"""Sparks in memory for pyinfra's `@fake` connector: they answer readers, and commands change them.

An inventory calls `install()`. The hosts' state is read from the file that FAKE_SPARKS names and
written back when the process ends, so that a second run meets the state that the first one left.
Every command is written down.
"""

import atexit
import copy
import json
import os
import re
import shlex
import time
from collections.abc import Iterable
from fnmatch import translate
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

from a_spark import GIB, healthy, spark
from pyinfra.connectors.fake import FakeConnector
from pyinfra.connectors.util import CommandOutput, OutputLine

from lockstep.files import remote_exec
from lockstep.files.managed_file import BACKUP_HOME, GATEWAY_HOME, HOME, MARK, PROGRAMS
from lockstep.host.specs import engine_check_hash
from lockstep.onhost.access import peer_tls
from lockstep.onhost.facts import deploy_records
from lockstep.onhost.facts.reader_helpers import seal
from lockstep.onhost.gateway import keys
from lockstep.preflight import ENGINE

HOSTS = ("@fake/spark1", "@fake/spark2")
WIPED: dict[str, Any] = {
    **{"files": {}, "links": {}, "units": {}, "groups": {}, "sysctls": {}, "venvs": {}},
    **{"images": {}, "image_records": {}, "found": {}},
    **{"firewall": None, "check": None, "current": None},
    "packages": [],
    "accounts": {"spark": ["spark", "sudo"]},
    "engine": {"python": None, "distributions": {}, "origins": {}, "commits": {}},
    "weights": "missing",
    "generations": [],
}

_PERSONS = str(keys.PATH)
_HOMES = {"lockstep": HOME, "lockstep-gateway": GATEWAY_HOME, "lockstep-backup": BACKUP_HOME}


@cache
def _words(command: str) -> tuple[str, ...]:
    """The words of a command; most questions are the same one, which holds a whole program."""
    return tuple(shlex.split(command))


class FakeCommandFailure(Exception):
    """A command that ends with another code than 0."""


class Spark:
    """One host: `state` is everything on it, `fails` the faults planted there."""

    def __init__(self, name: str, state: dict[str, Any], fails: dict[str, Any]) -> None:
        self.name = name
        self.state = state
        self.fails = fails
        self.commands: list[str] = []
        self.holder = ""
        self.messages: list[str] = []

    def answer(self, command: str, stdin: str) -> str:
        """The output of a command on this host."""
        words = list(_words(command))
        request = json.loads(stdin) if words == list(remote_exec.COMMAND) else {}
        if request.get("program") == "lockstep.onhost.records.checked_file_writes":
            document = request["asked"]
            paths = _paths(document)
            writes = any(document.get(key) for key in ("folders", "files", "links"))
            self._note(paths)
            self._changes(f"{'write' if writes else 'remove'} {' '.join(paths)}")
            self._write(document)
            return ""
        if request.get("program") == "lockstep.onhost.records.original_state":
            self._changes("note what is here")
            for part, names in request["asked"].items():
                self.state["found"].setdefault(part, []).extend(names)
            return ""
        if request:
            details = request["asked"]
            self.commands.append(
                "? all" if "preflight" in details else f"? {' '.join(sorted(details))}"
            )
            for name in details:
                if name in self.fails:
                    raise FakeCommandFailure(self.fails[name])
            read = {name: getattr(self, f"_read_{name.replace('.', '_')}") for name in details}
            now = self.state
            # The state at the first question, before another deploy was done.
            self.state = now | self.fails.get("waited", {})
            planted_faults = self.fails.get("faults", {})
            faults = {name: planted_faults[name] for name in details if name in planted_faults}
            answers = {name: read[name](details[name]) for name in details if name not in faults}
            self.state = now
            self.fails.pop("waited", None)
            return json.dumps({"answers": answers, "facts": {}, "faults": faults})
        program = " ".join(words[2:4]) if words[1:2] == [PROGRAMS] else words[0]
        if program in ("cat", "gateway-keys list"):
            self.commands.append(f"? {command}")
            return str(self.state["files"][words[1] if program == "cat" else _PERSONS]["text"])
        if program == "rollout note":
            self._changes("note paths")
            details = json.loads(stdin)
            self._note(details["paths"], details.get("rollout", ""))
        elif program == "generations begin":
            self._changes("note generation")
            self.state["begun"] = json.loads(stdin)
        elif program == "generations record":
            self._changes("record")
            self.state["generations"].append(json.loads(stdin))
            self.state.pop("begun", None)
        elif program == "job run":
            at = words.index("--")
            try:
                self._changes(f"job {words[4]}: {' '.join(words[at + 1 :])}")
            except FakeCommandFailure:
                if words[4] == "rollout":
                    self._return()
                raise
            self._run(words[at + 1 :])
        else:
            self._changes(command)
            match program:
                case "gateway-keys take":
                    self._take_persons(keys.entries_of_text(stdin.strip(), "standard input"))
                case "make-authority --take":
                    self._authority(words[4], stdin.strip())
                case "peer-certificates --take":
                    self._peer_certificates(words[4:], stdin.strip())
                case "backup-key take":
                    self._secret(words[4], stdin.strip(), "0644")
                case _:
                    self._run(words)
        return ""

    def hears(self, source: Iterable[str]) -> str:
        """Play the program that holds the lock of a deploy; returns its output at the end."""
        lines = iter(source)
        self.holder = json.loads(next(lines))["asked"]["run"]
        for line in filter(None, lines):
            self.messages.append(line)
        if self.messages and self.messages[-1] == "ended done":
            self.state.pop("journal", None)
        elif self.state.get("journal", {}).get("rollout") == "" and any(
            line.startswith("changed") for line in self.messages
        ):
            self.commands.append("return")
            self._return()
            return json.dumps({"returned": True, "said": "qwen is hot"})
        elif self.state["generations"] and "journal" not in self.state:
            self.state.pop("begun", None)
        return "null"

    def _note(self, paths: Iterable[str], rollout: str = "") -> None:
        """Keep what is here before a change, unless a host has no generation yet."""
        if not self.state["generations"]:
            return
        was = {key: copy.deepcopy(self.state[key]) for key in ("files", "units", "current")}
        was |= {"records": list(self.state["generations"]), "paths": [], "rollout": rollout}
        journal = self.state.setdefault("journal", was)
        journal["rollout"] = rollout or journal["rollout"]
        journal["paths"] += paths

    def _return(self) -> None:
        """Bring back the paths that were noted, and no others."""
        backup = self.state.pop("journal", None)
        if backup is None:
            return
        for path in backup["paths"]:
            self.state["files"].pop(path, None)
            if path in backup["files"]:
                self.state["files"][path] = backup["files"][path]
        names = {Path(path).name for path in backup["paths"]}
        units = {name: unit for name, unit in self.state["units"].items() if name not in names}
        was = {name: unit for name, unit in backup["units"].items() if name in names}
        self.state |= {"current": backup["current"], "generations": backup["records"]}
        self.state.pop("begun", None)
        self.state["units"] = units | was

    def _changes(self, line: str) -> None:
        self.commands.append(line)
        for part, message in self.fails.items():
            if part in line:
                raise FakeCommandFailure(message)

    def _write(self, document: dict[str, Any]) -> None:
        for kind, key in (("folder", "folders"), ("file", "files")):
            for item in document.get(key, []):
                attributes = {name: item[name] for name in ("mode", "owner", "group")}
                self.state["files"][item["path"]] = {
                    "kind": kind,
                    "text": item.get("text"),
                    **attributes,
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
        requirements = self.state["files"][words[words.index("--requirement") + 1]]["text"]
        for line in requirements.splitlines():
            name, _, version = line.partition(" ")[0].partition("==")
            self.state["venvs"].setdefault(venv, {})[name] = version

    def _run_firewall(self, words: list[str]) -> None:
        if words[2] == "keep":
            self.state["firewall"] = self.state["files"]["/etc/lockstep/firewall.nft"]["text"]

    def _run_make_secrets(self, words: list[str]) -> None:
        # Each host has another value.
        digest = sha256(f"{self.name} {words[2]}".encode()).hexdigest()
        self._secret(words[2], f"sk-{digest[:43]}")

    def _run_make_authority(self, words: list[str]) -> None:
        have = self.state["files"].get(words[2], {"text": f"authority of {self.name}"})
        self._authority(words[2], have["text"])

    def _run_peer_certificates(self, words: list[str]) -> None:
        have = self.state["files"].get(words[2], {"text": f"authority of {self.name}"})
        self._peer_certificates(words[2:], have["text"])

    def _peer_certificates(self, words: list[str], text: str) -> None:
        path, host, *roles = words
        self._secret(path, text)
        for role in roles:
            own_path = Path(path).with_name(peer_tls.identity_file_name(role, host))
            self._secret(str(own_path), f"{role} of {host} by {text}")

    def _authority(self, path: str, text: str) -> None:
        self._secret(path, text)
        self._secret("/etc/lockstep/authority.crt", f"certificate of {text}", "0644")

    def _persons(self) -> list[keys.Entry]:
        have = self.state["files"].get(_PERSONS)
        return keys.entries_of_text(have["text"], _PERSONS) if have else []

    def _take_persons(self, entries: Iterable[keys.Entry]) -> None:
        every = sorted((*self._persons(), *entries), key=lambda entry: entry.age_sort_key)
        newest = {entry.person: entry for entry in every}
        self._secret(_PERSONS, json.dumps(keys.entries_document(newest.values())), "0640")

    def _run_backup_key(self, words: list[str]) -> None:
        if words[2] == "make":
            self._secret(words[3], f"private of {self.name}")
        self._secret(words[4], f"public of {self.name}", "0644")

    def _secret(self, path: str, text: str, mode: str = "0600") -> None:
        file_state = {"kind": "file", "mode": mode, "owner": "root", "group": "root", "text": text}
        self.state["files"][path] = file_state

    def _spec(self) -> dict[str, Any]:
        spec: dict[str, Any] = json.loads(self.state["files"]["/etc/lockstep/engine.json"]["text"])
        return spec

    def _run_engine_build(self, words: list[str]) -> None:
        spec, engine, stage = self._spec(), self.state["engine"], words[2]
        if stage == "check":
            self.state["check"] = {
                **{"asked": engine_check_hash(spec), "faults": [], "version": "0.19.2"},
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
        if words[2] == "ended":
            self.state.pop("journal", None)
        for unit in self.state["units"].values():
            if unit["ActiveState"] == "active" and unit["wanted"]:
                unit["restart_key"] = unit["wanted"]

    def _run_systemctl(self, words: list[str]) -> None:
        units = self.state["units"]
        # systemctl reloads systemd after it has enabled a unit.
        if {"daemon-reload", "enable"} & set(words):
            for path, file in self.state["files"].items():
                if path.startswith("/etc/systemd/system/") and path.endswith(
                    (".service", ".socket", ".timer")
                ):
                    match = re.search(r"LOCKSTEP_RESTART_KEY=(\w+)", file["text"])
                    known_unit = units.setdefault(Path(path).name, {**UNIT, "LoadState": "loaded"})
                    known_unit |= {"wanted": match[1] if match else "", "NeedDaemonReload": "no"}
        for name in (word for word in words if word.endswith((".service", ".socket", ".timer"))):
            unit = units.setdefault(name, {**UNIT})
            if "enable" in words:
                unit["UnitFileState"] = "enabled"
            if {"start", "restart", "--now"} & set(words):
                key = {"restart_key": unit["wanted"]}
                unit |= {"ActiveState": "active", "SubState": "running", **key}

    _run_webui = _run_systemctl

    # Readers ----------------------------------------------------------------------------------

    def _read_preflight(self, question: dict[str, Any]) -> Any:
        facts = healthy(spark(), time.time())
        facts["identity"] = {"machine_id": self.name, "host_keys": [f"ssh-ed25519 {self.name}"]}
        # The one file of every model of `pins_for`.
        has = {64 * "e": 20 * GIB} if self.state["weights"] == "complete" else {}
        facts["checkpoints"] = dict.fromkeys(question["checkpoints"], has)
        facts["docker"]["images"] = [
            image for image in question["images"].values() if image in self.state["images"]
        ]
        if self.state["check"]:
            facts["lacking"] = [fact for fact in facts["lacking"] if fact != ENGINE]
        facts["docker"]["foreign"] |= self.fails.get("foreign", {})
        return facts | self.fails.get("facts", {})

    def _read_deploy_records_other_and_cut_off_deploy(self, question: dict[str, Any]) -> Any:
        assert self.holder == question["run"]
        answers = {key: self.fails.get(key, "") for key in ("other", "before")}
        return {**answers, "waited": "waited" in self.fails}

    def _read_deploy_records_foreign_obstacles(self, question: dict[str, Any]) -> Any:
        return {}

    def _read_packages(self, question: dict[str, Any]) -> Any:
        return {"apt package": dict.fromkeys(self.state["packages"], "1")}

    def _read_deploy_records_items_missing_in_baseline(self, question: dict[str, list[str]]) -> Any:
        found = self.state["found"]
        unnoted_items = {
            part: [item for item in items if item not in found.get(part, ())]
            for part, items in question.items()
        }
        return unnoted_items if any(unnoted_items.values()) else {}

    def _read_packages_brought_packages(self, _: object) -> Any:
        return []

    def _read_accounts(self, question: dict[str, Any]) -> Any:
        groups_by_account = {
            name: groups
            for name, groups in self.state["accounts"].items()
            if name in question["names"]
        }
        return {
            "account": dict.fromkeys(groups_by_account, "uid 999"),
            "account home": {name: _HOMES.get(name, f"/home/{name}") for name in groups_by_account},
            "account shell": dict.fromkeys(groups_by_account, "/usr/sbin/nologin"),
            "group": {name: f"gid {gid}" for name, gid in self.state["groups"].items()},
            "right": {
                f"{name} in {group}": "yes"
                for name, groups in groups_by_account.items()
                for group in groups
            },
        }

    def _read_machine_settings(self, question: dict[str, Any]) -> Any:
        return {"sysctl": self.state["sysctls"]}

    def _read_environments_package_versions_by_venv(self, question: list[str]) -> Any:
        return {path: self.state["venvs"].get(path, {}) for path in question}

    def _read_files(self, question: dict[str, Any]) -> Any:
        files = {path: copy.copy(self.state["files"].get(path)) for path in question["paths"]}
        for path, (authority, name) in question["certificates"].items():
            _, role, host = name.split(":", 2)
            authority_text = (files[authority] or {}).get("text")
            if files[path] and files[path]["text"] != f"{role} of {host} by {authority_text}":
                files[path]["kind"] = "damaged"
        for path, have in files.items():
            if have and have["kind"] == "file":
                have["seal"] = seal(question["key"], (have["text"] or "").encode())
            if have and question.get("shown", {}).get(path) in (None, have.get("seal")):
                have["text"] = None
        owner = {"mode": "0777", "owner": "root", "group": "root", "text": None}
        for path in question["paths"]:
            if target := self.state["links"].get(path):
                files[path] = {"kind": "link", "target": target, **owner}
        return files

    def _read_files_leftovers(self, question: dict[str, Any]) -> Any:
        folders, wanted_paths = tuple(question["marked"]), {*question["files"]}
        # One pattern for all paths: a host has hundreds of files, and questions are frequent.
        name_pattern = re.compile("|".join(map(translate, question["named"])) or "(?!)")
        left_paths = [
            path
            for path, file in self.state["files"].items()
            if path not in wanted_paths
            and (
                (path.startswith(folders) and MARK in (file["text"] or ""))
                or name_pattern.match(path)
            )
        ]
        return {"leftover": dict.fromkeys(left_paths, "present")}

    def _read_units_system_services(self, question: dict[str, Any]) -> Any:
        return {"system service": dict.fromkeys(question["services"], "on")}

    def _read_units(self, question: dict[str, Any]) -> Any:
        return {
            name: {"settled": True, **self.state["units"].get(name, UNIT)}
            for name in question["programs"]
        }

    def _read_units_await_settled_units(self, question: list[str]) -> Any:
        return {name: "activating (auto-restart): why" for name in question}

    def _read_host_load_hot_models(self, question: None) -> Any:
        hot = [name for name, unit in self.state["units"].items() if unit.get("restart_key")]
        return {name: {"name": name, "requests": 2} for name in hot if name.startswith("vllm")}

    def _read_firewall(self, question: dict[str, Any]) -> Any:
        rules = self.state["firewall"]
        tables = {"inet lockstep": seal(question["key"], rules.encode())} if rules else {}
        return {"firewall table": tables}

    def _read_environments(self, question: dict[str, Any]) -> Any:
        engine = self.state["engine"]
        records = self.state["image_records"]
        return {
            "environment": engine,
            "commits": {name: engine["commits"].get(name) for name in ("vllm", "transformers")},
            "unfinished": False,
            "check": self.state["check"],
            "current": self.state["current"],
            "images": {
                name: records.get(digest) for name, digest in question.get("images", {}).items()
            },
        }

    def _read_deploy_records_generation(self, question: None) -> Any:
        generations = self.state["generations"]
        unfinished_generation = self.state.get("begun")
        newest = {"number": len(generations), **generations[-1]} if generations else {}
        return {**newest, "begun": unfinished_generation} if unfinished_generation else newest

    def _read_deploy_records_sealed_key_changes_and_fault(self, question: str) -> Any:
        try:
            return {
                "changes": deploy_records.last_key_change_by_person(self._persons(), question),
                "fault": "",
            }
        except keys.BrokenKeys as fault:
            return {"changes": {}, "fault": str(fault)}

    def _read_weights(self, question: str) -> Any:
        states = {"state": self.state["weights"], "bytes_total": 10, "bytes_present": 0}
        return {"a/b@c": states} if self.state["weights"] != "missing" else {}

    def _read_machine_available(self, question: None) -> Any:
        return 100 * GIB

    def _read_docker_image_architectures(self, question: list[str]) -> Any:
        return self.state["images"]


def _paths(document: dict[str, Any]) -> list[str]:
    paths = [item["path"] for key in ("folders", "files") for item in document.get(key, [])]
    # Show our programs as one entry: their list does not matter for a deploy.
    shown_paths = (
        "/usr/local/lib/lockstep/*" if "/lib/lockstep/" in path else path for path in paths
    )
    links = (f"{path} -> {target}" for path, target in document.get("links", {}).items())
    return list(dict.fromkeys((*shown_paths, *document.get("remove", []), *links)))


UNIT: dict[str, Any] = {
    "LoadState": "not-found",
    "ActiveState": "inactive",
    "SubState": "dead",
    "UnitFileState": "disabled",
    "NeedDaemonReload": "no",
    "restart_key": "",
    "links": [],
    "wanted": "",
}


def install() -> None:
    """Make these the `@fake` hosts of this process.

    The file holds {"hosts": {NAME: state}, "fails": {NAME: {PART OF A COMMAND: message}},
    "cut": N}; with "cut", the process dies after so many changes.
    """
    path = Path(os.environ["FAKE_SPARKS"])
    document = json.loads(path.read_text())
    sparks: dict[str, Spark] = {}
    order: list[tuple[str, str]] = []
    changes = 0

    def save() -> None:
        # `lockstep deploy` reads the inventory before the deploy, another process, reads it.
        if not sparks and "ran" in json.loads(path.read_text()):
            return
        document["hosts"] = {name: spark.state for name, spark in sparks.items()}
        document["ran"] = {name: spark.commands for name, spark in sparks.items()}
        document["said"] = {name: spark.messages for name, spark in sparks.items()}
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
        if _words(text) == tuple(remote_exec.LISTENING):
            # The input is read to its end, which is the end of the deploy.
            output = sparks[name].hears(arguments["_stdin"])
            order.extend([(name, "return")] if output != "null" else [])
            return True, CommandOutput([OutputLine("stdout", line) for line in output.splitlines()])
        try:
            output = sparks[name].answer(text, "".join(arguments.get("_stdin") or []))
        except FakeCommandFailure as error:
            return False, CommandOutput([OutputLine("stderr", str(error))])
        last = sparks[name].commands[-1]
        changes += not last.startswith("?")
        order.append((name, last))
        if changes == document.get("cut"):
            save()
            os._exit(137)
        return True, CommandOutput([OutputLine("stdout", line) for line in output.splitlines()])

    FakeConnector.run_shell_command = run_shell_command
    atexit.register(save)
