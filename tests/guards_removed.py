"""Takes each guard of a switch away in a copy of the tree: its tests must go red.

usage: guards-removed [WORDS...]    only the guards whose name has one of these

`make guards` runs it, about ten minutes. Tests that compare whole files are left out: they would
notice any edit, and prove nothing about the guard.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parents[1]
ONHOST = "lockstep/onhost"
MODEL_UNIT = "templates/units/model.service.j2"
#: Of the tests of one guard, many times what they take.
LIMIT_S = 1800
RANKS = "tests/render/test_cluster_ranks.py"


@dataclass(frozen=True)
class Guard:
    """One guard: where it is, the text that makes it, and what is there without it."""

    name: str
    file: str
    text: str
    without: str
    tests: str


GUARDS = (
    Guard(
        "what a host said beside another deploy is asked again",
        "tasks/run.py",
        "        if deploy_lock.waited(each):\n            facts.ask_all(each, every)\n",
        "",
        "tests/operations/test_whole_deploy.py",
    ),
    Guard(
        "a host that is done keeps what all may return to",
        "lockstep/onhost/records/before.py",
        'or deploy or not kept["whole"]',
        "or True",
        "tests/unit/onhost/rollout/test_taken_back.py",
    ),
    Guard(
        "a host returns from a deploy that was cut off",
        "lockstep/onhost/records/deploys.py",
        "elif changed and _between(paths):",
        "elif False:",
        "tests/unit/onhost/records/test_deploys.py",
    ),
    Guard(
        "a restart that is under way is left to its own end",
        "lockstep/onhost/records/deploys.py",
        'bool(kept["whole"]) or not transient.running(job)',
        "True",
        "tests/unit/onhost/records/test_deploys.py",
    ),
    Guard(
        "the host that came last returns first",
        "tasks/all_or_none.py",
        "in reversed(hosts)",
        "in hosts",
        "tests/operations/test_all_or_none.py",
    ),
    Guard(
        "a topic's name is shown to nobody",
        "lockstep/inventory/receivers.py",
        'f"{parts.scheme}://{parts.netloc}"',
        "parts.geturl()",
        "tests/unit/cli/monitoring/test_alert.py",
    ),
    Guard(
        "a password for Alertmanager has no end of a line",
        "lockstep/host/given_secrets.py",
        "path, ended=False)",
        "path)",
        "tests/unit/inventory/test_receivers.py",
    ),
    Guard(
        "an address to tell holds no login",
        "lockstep/inventory/receivers.py",
        r'r"https?://[^/\s@]+/[A-Za-z0-9_-]{1,64}"',
        r'r"https?://[^/\s]+/[A-Za-z0-9_-]{1,64}"',
        "tests/unit/inventory/test_receivers.py",
    ),
    Guard(
        "a host judges itself alone",
        "lockstep/monitoring/rules.py",
        "_OURS.sub(_own, alert.expr)",
        "alert.expr",
        "tests/render/test_alerts_by_promtool.py",
    ),
    Guard(
        "a model that loads is not gone",
        "lockstep/monitoring/rules.py",
        " unless on (target) lockstep_loading_target == 1",
        "",
        "tests/render/test_alerts_by_promtool.py",
    ),
    Guard(
        "a switch that breaks requests off is no error of an engine",
        "lockstep/monitoring/rules.py",
        " unless on () max_over_time(lockstep_switch_running[10m]) == 1",
        "",
        "tests/render/test_alerts_by_promtool.py",
    ),
    Guard(
        "silences of other people stay",
        "lockstep/onhost/monitoring/silences.py",
        'each["createdBy"] == AUTHOR and ',
        "",
        "tests/unit/onhost/monitoring/test_silences.py",
    ),
    Guard(
        "a silence ends by itself soon",
        "lockstep/onhost/monitoring/silences.py",
        "LASTS_S, AGAIN_S = 120.0, 30.0",
        "LASTS_S, AGAIN_S = 86400.0, 30.0",
        "tests/unit/onhost/monitoring/test_silences.py",
    ),
    Guard(
        "a request that failed is not taken for one that arrived",
        "lockstep/onhost/monitoring/alert_test.py",
        '        if wrong > failed:\n            return "it did not take the message"\n',
        "",
        "tests/render/test_alertmanager_by_itself.py",
    ),
    Guard(
        "Open WebUI's data are copied before another image opens them",
        f"{ONHOST}/webui/update.py",
        "known.update is None and known.image != image and",
        "not known.image and",
        "tests/unit/onhost/webui/test_update.py",
    ),
    Guard(
        "Open WebUI's data return with the image of an update that failed",
        f"{ONHOST}/webui/update.py",
        "    record.put_back(paths, place, update.snapshot)\n    known = replace",
        "    known = replace",
        "tests/unit/onhost/webui/test_update.py",
    ),
    Guard(
        "a database that an update broke is no start",
        f"{ONHOST}/webui/update.py",
        "        if wrong:\n",
        "        if False:\n",
        "tests/unit/onhost/webui/test_update.py",
    ),
    Guard(
        "a copy that a rollback asked for long ago is not used",
        f"{ONHOST}/webui/update.py",
        " and time.time() < wanted.until",
        "",
        "tests/unit/onhost/webui/test_update.py",
    ),
    Guard(
        "what a secret's program says besides is thrown away",
        "lockstep/inventory/secret.py",
        "stdout=subprocess.PIPE, stderr=quiet)",
        "stdout=subprocess.PIPE)",
        "tests/unit/inventory/test_secret.py",
    ),
    Guard(
        "a secret's program is run once",
        "lockstep/inventory/secret.py",
        "        with _one_at_a_time:\n            text = _text(source)",
        "        text = _text(source)",
        "tests/unit/inventory/test_secret.py",
    ),
    Guard(
        "nobody waits for a child of a secret's program",
        "lockstep/inventory/secret.py",
        "communicate(timeout=LIMIT_S)",
        "communicate()",
        "tests/unit/inventory/test_secret.py",
    ),
    Guard(
        "a service that was given another secret is restarted",
        f"{ONHOST}/facts/units.py",
        "    ours += secrets\n",
        "",
        "tests/unit/onhost/facts/test_readers.py",
    ),
    Guard(
        "Docker's drop-in, which everybody reads, has no hash of a password",
        "lockstep/system/base_files.py",
        "name: apt_login.without_logins(value) for name, value in values.items()",
        "name: value for name, value in values.items()",
        "tests/unit/system",
    ),
    Guard(
        "the lock of a deploy ends in silence",
        f"{ONHOST}/records/deploys.py",
        "    signal.alarm(SILENCE_S)\n    try:",
        "    try:",
        "tests/unit/onhost/records/test_deploys.py",
    ),
    Guard(
        "the younger of two deploys gives up at once",
        f"{ONHOST}/records/deploys.py",
        "if (other and other.elder(mine)) or time.monotonic() >= until:",
        "if time.monotonic() >= until + 60:",
        "tests/unit/onhost/records/test_deploys.py",
    ),
    Guard(
        "nobody but root can lock deploys out",
        f"{ONHOST}/records/deploys.py",
        "        path.chmod(0o600)\n",
        "",
        "tests/unit/onhost/records/test_deploys.py",
    ),
    Guard(
        "gc waits for no deploy to end, and removes nothing beside it",
        f"{ONHOST}/garbage/cleanup.py",
        "if other := deploys.holder(paths.deploy_lock):",
        "if other := None:",
        "tests/unit/onhost/garbage/test_cleanup.py",
    ),
    Guard(
        "a private file is compared by a keyed hash",
        f"{ONHOST}/facts/files.py",
        '        if key:\n            found["seal"] = seal(key, whole)\n',
        '        if key:\n            found["seal"] = digest[:32]\n',
        "tests/unit/onhost/facts/test_readers.py tests/unit/files",
    ),
    Guard(
        "a page asks no token of an engine",
        f"{ONHOST}/operator/facts.py",
        "status.gather(self.host, self.paths, closely=False)",
        "status.gather(self._host, self._paths)",
        "tests/unit/onhost/operator/test_facts.py",
    ),
    Guard(
        "a driver that hangs holds no watcher up",
        f"{ONHOST}/operator/facts.py",
        "self._thread.join(_PATIENCE_S)",
        "self._thread.join()",
        "tests/unit/onhost/operator/test_facts.py",
    ),
    Guard(
        "what differs on a host is for root and the gateway alone",
        f"{ONHOST}/records/last_diff.py",
        "mode=0o640",
        "mode=0o644",
        "tests/unit/onhost/records/test_last_diff.py",
    ),
    Guard(
        "a refused switch is kept with its reason",
        f"{ONHOST}/records/switches.py",
        "            note(problem.code, str(problem))\n",
        "            pass\n",
        "tests/unit/onhost/records/test_switches.py",
    ),
    Guard(
        "a page runs under a policy of its own",
        f"{ONHOST}/gateway/page.py",
        '{**_HEADERS, "content-security-policy": policy(text)}',
        "dict(_HEADERS)",
        "tests/unit/onhost/gateway/test_page.py",
    ),
    Guard(
        "the page asks before it switches",
        "templates/page/gateway.html.j2",
        "onclick: () => confirm(target.name)",
        "onclick: () => change(target.name)",
        "tests/unit/onhost/gateway/process/test_page_in_browser.py",
    ),
    Guard(
        "nobody looks at a page: nothing is asked",
        "templates/page/gateway.html.j2",
        "if (document.hidden) { clearTimeout(asked); stream?.abort();",
        "if (document.hidden) { clearTimeout(asked);",
        "tests/unit/onhost/gateway/process/test_page_in_browser.py",
    ),
    Guard(
        "no switch for who is neither root nor the gateway",
        f"{ONHOST}/gateway/switch_program.py",
        "            permitted(asker)\n",
        "",
        "tests/unit/onhost/gateway/test_switch_program.py",
    ),
    Guard(
        "no switch by the gateway to what is no target",
        f"{ONHOST}/gateway/switch_program.py",
        '        if name != "none":\n            config.load_host(paths.targets).target(name)\n',
        "",
        "tests/unit/onhost/gateway/test_switch_program.py",
    ),
    Guard(
        "no person's name that would mean something on a command line",
        f"{ONHOST}/gateway/switch_program.py",
        "if _PERSON.fullmatch(person):",
        "if isinstance(person, str):",
        "tests/unit/onhost/gateway/test_switch_program.py",
    ),
    Guard(
        "no swap while a request runs",
        f"{ONHOST}/gateway/turns.py",
        "self._settling or self._running or seen.running or seen.moving:",
        "self._settling or seen.moving:",
        "tests/unit/onhost/gateway/test_turns.py",
    ),
    Guard(
        "no swap while a client of the engine's own port is served",
        f"{ONHOST}/gateway/swap.py",
        "        return counted is not None and counted.outstanding > 0",
        "        return False",
        "tests/unit/onhost/gateway/test_swap.py",
    ),
    Guard(
        "no swap beside somebody else's switch",
        f"{ONHOST}/gateway/swap.py",
        "            return str(holder)\n",
        '            return ""\n',
        "tests/unit/onhost/gateway/test_swap.py",
    ),
    Guard(
        "no swap while nobody knows what is hot",
        f"{ONHOST}/gateway/swap.py",
        "        if not self.hot.known:\n",
        "        if False:\n",
        "tests/unit/onhost/gateway/test_swap.py",
    ),
    Guard(
        "no swap before the hot model had its least time",
        f"{ONHOST}/gateway/turns.py",
        "if seen.serves and seen.hot_s < self._least_hot_s:",
        "if False:",
        "tests/unit/onhost/gateway/test_turns.py",
    ),
    Guard(
        "no request for the hot model before those that wait for another",
        f"{ONHOST}/gateway/turns.py",
        "waiter.due or not (over and any(",
        "True or not (over and any(",
        "tests/unit/onhost/gateway/test_turns.py",
    ),
    Guard(
        "no request passes to an engine that is about to be stopped",
        f"{ONHOST}/gateway/turns.py",
        "        if waiter.target not in seen.serves or self._switching:\n",
        "        if waiter.target not in seen.serves:\n",
        "tests/unit/onhost/gateway/test_turns.py",
    ),
    Guard(
        "no more waiting requests than the bound",
        f"{ONHOST}/gateway/turns.py",
        "        elif len(self._waiting) >= self._bound:\n",
        "        elif False:\n",
        "tests/unit/onhost/gateway/test_turns.py",
    ),
    Guard(
        "no second try of a switch that has just failed",
        f"{ONHOST}/gateway/turns.py",
        "        if cold and until > now:\n",
        "        if False:\n",
        "tests/unit/onhost/gateway/test_turns.py",
    ),
    Guard(
        "no model let go that somebody asks",
        f"{ONHOST}/gateway/rest.py",
        "if fresh or look.running or (engine and not look.watched):",
        "if fresh:",
        "tests/unit/onhost/gateway/test_rest.py",
    ),
    Guard(
        "no model kept by the wedge watch's own questions",
        f"{ONHOST}/gateway/rest.py",
        "(engine and not look.watched)",
        "engine",
        "tests/unit/onhost/gateway/test_rest.py",
    ),
    Guard(
        "the wedge watch notes its question before it asks",
        f"{ONHOST}/switching/wedge.py",
        "        wedge_state.save(self.paths, self.record)\n        for attempt",
        "        for attempt",
        "tests/unit/onhost/switching/test_wedge.py",
    ),
    Guard(
        "nothing private in what is sent in",
        "lockstep/evidence/report.py",
        "scrubbed(document, known(every, told))",
        "document",
        "tests/unit/evidence/test_scrub.py",
    ),
    Guard(
        "no page of a host whose own names are not known",
        "lockstep/evidence/report.py",
        "        if told[name]\n",
        "",
        "tests/unit/evidence/test_report.py",
    ),
    Guard(
        "a Spark that was away brings no revoked key back",
        f"{ONHOST}/gateway/keys_program.py",
        "entry.age > here[entry.person].age",
        "entry != here[entry.person]",
        "tests/unit/onhost/gateway/test_keys_program.py",
    ),
    Guard(
        "a broken file of keys refuses everybody",
        f"{ONHOST}/gateway/keys.py",
        "self._seen, self._entries = mark, []",
        "self._seen = mark",
        "tests/unit/onhost/gateway/test_keys.py",
    ),
    Guard(
        "a key ends with its last day",
        f"{ONHOST}/gateway/keys.py",
        " and entry.valid(now):",
        ":",
        "tests/unit/onhost/gateway/test_keys.py",
    ),
    Guard(
        "a revocation is later than the key, also by a clock that is behind",
        "lockstep/fleet/keys.py",
        "now = max(now, datetime.datetime.fromisoformat(last.since) + second)",
        "pass",
        "tests/unit/cli/gateway/test_key.py",
    ),
    Guard(
        "a revoked key on loopback does not count as none",
        f"{ONHOST}/gateway/access.py",
        " or keys.claimed(headers):",
        ":",
        "tests/unit/onhost/gateway/test_access.py",
    ),
    Guard(
        "no request to an engine whose unit has ended since",
        f"{ONHOST}/gateway/hot.py",
        "        return known is not None and known == mark(self._groups / unit)",
        "        return known is not None",
        "tests/unit/onhost/gateway/test_app.py",
    ),
    Guard(
        "no engine sees a key",
        f"{ONHOST}/gateway/app.py",
        "headers = _headers(scope, *KEY_HEADERS, *but)",
        "headers = _headers(scope, *but)",
        "tests/unit/onhost/gateway/process/test_doors.py",
    ),
    Guard(
        "no request that ends an engine",
        f"{ONHOST}/gateway/app.py",
        "        refusals.check(asked)\n",
        "",
        "tests/unit/onhost/gateway/test_app.py",
    ),
    Guard(
        "no such request at a target's own port",
        f"{ONHOST}/gateway/app.py",
        "        refusals.check(document.read(incoming.Asked))\n",
        "",
        "tests/unit/onhost/gateway/test_app.py",
    ),
    Guard(
        "no web page makes a browser of this host ask",
        f"{ONHOST}/gateway/access.py",
        "        self._only_from_here(headers)\n",
        "",
        "tests/unit/onhost/gateway/process/test_doors.py",
    ),
    Guard(
        "no forwarded request without a key",
        f"{ONHOST}/gateway/access.py",
        "        if any(name in _FORWARDED for name, _ in headers):",
        "        if False:",
        "tests/unit/onhost/gateway/process/test_doors.py",
    ),
    Guard(
        "an engine reads the path that was allowed",
        f"{ONHOST}/gateway/app.py",
        '        scope["raw_path"] = path.encode()\n',
        "",
        "tests/unit/onhost/gateway/test_app.py",
    ),
    Guard(
        "no comment in a stream that has begun",
        f"{ONHOST}/gateway/forward.py",
        '                chunk = await anext(chunks, b"")\n',
        '                chunk = await self.patiently(anext(chunks, b""))\n',
        "tests/unit/onhost/gateway/process/test_streams.py",
    ),
    Guard(
        "who hangs up ends the work",
        f"{ONHOST}/gateway/wire/body.py",
        "await asyncio.wait((working, watching), return_when=asyncio.FIRST_COMPLETED)",
        "await working",
        "tests/unit/onhost/gateway/process/test_streams.py",
    ),
    Guard(
        "a bound of the requests of one key",
        f"{ONHOST}/gateway/limits.py",
        "        if key is not None and self._of[key] >= self._limits.streams_per_key:",
        "        if False:",
        "tests/unit/onhost/gateway/test_app.py",
    ),
    Guard(
        "a bound of a request's head",
        f"{ONHOST}/gateway/server.py",
        "        if size > LONGEST_HEAD:",
        "        if False:",
        "tests/unit/onhost/gateway/test_app.py",
    ),
    Guard(
        "no engine whose class of a checkpoint cannot be imported",
        f"{ONHOST}/environment/engine_check.py",
        'return engine_classes.fault(engine, recipe["name"], config)',
        "return None",
        "tests/unit/onhost/environment/test_engine_classes.py",
    ),
    Guard(
        "no engine that lacks a compiled part",
        f"{ONHOST}/environment/engine_check.py",
        '            parts.load(Path(importlib.import_module("vllm").__file__ or "").parent)\n',
        "",
        "tests/unit/onhost/environment/test_engine_check.py",
    ),
    Guard(
        "no engine without the FlashInfer that it imports",
        f"{ONHOST}/environment/engine_check.py",
        "            faults.append(flashinfer_fault(engine, recipes))\n",
        "",
        "tests/unit/onhost/environment/test_engine_check.py",
    ),
    Guard(
        "no engine whose kernels fail",
        f"{ONHOST}/environment/engine_check.py",
        "            parts.run(no_kernel())\n",
        "",
        "tests/unit/onhost/environment/test_engine_check.py",
    ),
    Guard(
        "no engine whose kernels are wrong",
        f"{ONHOST}/environment/engine_kernels.py",
        "    if not differs <= most:\n",
        "    if False:\n",
        "tests/unit/onhost/environment/test_engine_kernels.py",
    ),
    Guard(
        "no switch waits for an engine's clients",
        MODEL_UNIT,
        "ExecStop={{ end | unit_words }} $MAINPID\n",
        "",
        "tests/render/test_units_by_systemd.py",
    ),
    Guard(
        "no engine that waits for its clients is left alive",
        f"{ONHOST}/engine/end_engine.py",
        "        signal.pidfd_send_signal(process, signal.SIGKILL)\n",
        "",
        "tests/unit/onhost/engine/test_end_engine.py",
    ),
    Guard(
        "torch's family from PyTorch's index alone",
        "lockstep/lock/resolve/python.py",
        "own |= dict.fromkeys(_FROM_TORCH, sources.torch_index)",
        "pass",
        "tests/unit/lock/resolve/test_python.py",
    ),
    Guard(
        "one switch at a time",
        f"{ONHOST}/core/switch_lock.py",
        "fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)\n            return",
        "return",
        "tests/unit/onhost/operator/test_switch_sh.py",
    ),
    Guard(
        "model units conflict",
        MODEL_UNIT,
        'Conflicts={{ others | join(" ") }}',
        "",
        "tests/render/test_units_by_systemd.py",
    ),
    Guard(
        "the old unit is gone before the new one starts",
        MODEL_UNIT,
        'After={{ earlier | join(" ") }}',
        "",
        "tests/render/test_units_by_systemd.py",
    ),
    Guard(
        "every start passes the gate",
        MODEL_UNIT,
        "ExecStartPre=+{{ gate | unit_words }}",
        "",
        "tests/render/test_units_by_systemd.py",
    ),
    Guard(
        "started means a generated token",
        MODEL_UNIT,
        "ExecStartPost=+{{ ready | unit_words }} $MAINPID",
        "",
        "tests/render/test_units_by_systemd.py",
    ),
    Guard(
        "a crash loop is bounded",
        MODEL_UNIT,
        "StartLimitBurst={{ starts }}",
        "",
        "tests/render/test_units_by_systemd.py",
    ),
    Guard(
        "no model starts at boot",
        MODEL_UNIT,
        "[Service]\n",
        "[Install]\nWantedBy=multi-user.target\n[Service]\n",
        "tests/render/test_units_by_systemd.py",
    ),
    Guard(
        "Docker restarts no engine",
        "lockstep/units/docker_run.py",
        '*("--pull", "never", "--restart", "no")',
        '*("--pull", "never", "--restart", "always")',
        "tests/unit/units/test_all_files.py",
    ),
    Guard(
        "Watchtower leaves engines alone",
        "lockstep/units/docker_run.py",
        '*("--label", "com.centurylinklabs.watchtower.enable=false"),',
        "",
        "tests/unit/units/test_all_files.py",
    ),
    Guard(
        "the gate waits for other engines",
        f"{ONHOST}/switching/gate.py",
        "        self.wait_for_other_engines()\n",
        "",
        "tests/unit/onhost/switching/test_gate.py",
    ),
    Guard(
        "the gate sees processes that outlived their unit",
        f"{ONHOST}/switching/gate.py",
        "left = [] if unit.up else units.processes(other.unit, self.paths.proc)",
        "left: list[int] = []",
        "tests/unit/onhost/switching/test_gate.py",
    ),
    Guard(
        "the gate sees containers outside their unit",
        f"{ONHOST}/switching/gate.py",
        "elif other.container in containers:",
        "elif False:",
        "tests/unit/onhost/switching/test_gate.py",
    ),
    Guard(
        "the gate refuses without memory",
        f"{ONHOST}/switching/gate.py",
        "        self.wait_for_memory()\n",
        "",
        "tests/unit/onhost/switching/test_gate.py",
    ),
    Guard(
        "vLLM's share is of the host's own memory",
        f"{ONHOST}/core/need.py",
        "return max(self.gib, self.held(total)) if self.of_total else self.gib",
        "return self.gib",
        "tests/unit/onhost/switching/test_gate.py",
    ),
    Guard(
        "SGLang's share is of what it finds at its start",
        f"{ONHOST}/engines/sglang.py",
        "held / share + of.start",
        "held + of.start",
        "tests/unit/fit/test_need.py",
    ),
    Guard(
        "memory that is short is told before the download",
        "lockstep/preflight/__init__.py",
        "        *memory.findings(plan, pins, facts),\n",
        "",
        "tests/unit/preflight/test_memory.py",
    ),
    Guard(
        "the gate drops the page cache",
        f"{ONHOST}/switching/gate.py",
        "                self.drop_page_cache()\n",
        "",
        "tests/unit/onhost/switching/test_gate.py",
    ),
    Guard(
        "the page cache is dropped while an engine loads",
        f"{ONHOST}/engine/load_guard.py",
        "        meminfo.free_pages(self.proc, self._say)\n",
        "",
        "tests/unit/onhost/engine/test_load_guard.py",
    ),
    Guard(
        "an engine is ended below the memory floor",
        f"{ONHOST}/switching/memory_floor.py",
        "        if available < floor:\n",
        "        if False:\n",
        "tests/unit/onhost/switching/test_memory_floor.py",
    ),
    Guard(
        "what the memory floor ended is not started again by systemd",
        f"{ONHOST}/switching/memory_floor.py",
        '        _systemctl("stop", "--no-block", target.unit)\n',
        "",
        "tests/unit/onhost/switching/test_memory_floor.py",
    ),
    Guard(
        "a gate that waits for memory is not ended for it",
        f"{ONHOST}/switching/memory_floor.py",
        "    if not unit.main_pid:\n        return None\n",
        "",
        "tests/unit/onhost/switching/test_memory_floor.py",
    ),
    Guard(
        "a default floor ends no engine that fits",
        "lockstep/units/targets_json.py",
        "min(_LOADING_GIB, left)",
        "_LOADING_GIB",
        "tests/unit/units/test_targets_json.py",
    ),
    Guard(
        "what cannot work is refused before the stop",
        f"{ONHOST}/switching/switch.py",
        "            self._precheck(state).check(target)\n",
        "",
        "tests/unit/onhost/operator/test_switch_sh.py",
    ),
    Guard(
        "a failed switch brings the old model back",
        f"{ONHOST}/switching/switch.py",
        "for spare in (fallback, previous) if spare is not None",
        "for spare in (fallback,) if spare is not None",
        "tests/unit/onhost/operator/test_switch_sh.py",
    ),
    Guard(
        "a failed unit is stopped before the next starts",
        f"{ONHOST}/switching/switch.py",
        "if self._attempt(spare, partial(self._stop, tuple(failed))):",
        "if self._attempt(spare, lambda: None):",
        "tests/unit/onhost/operator/test_switch_sh.py",
    ),
    Guard(
        "a switch that is cut off is finished",
        f"{ONHOST}/switching/switch_job.py",
        '            f"ExecStopPost={_finisher(paths)}",\n',
        "",
        "tests/unit/onhost/operator/test_switch_sh.py",
    ),
    Guard(
        "readiness asks for a token",
        f"{ONHOST}/engine/ready.py",
        "        return self._wait_for_token(key)",
        '        return "a token in 1.0 s"',
        "tests/unit/onhost/engine/test_ready.py",
    ),
    Guard(
        "vectors of numbers that are not finite are no answer",
        f"{ONHOST}/engine/openai_api.py",
        "if not all(math.isfinite(number) for vector in vectors for number in vector):",
        "if False:",
        "tests/unit/onhost/engine/test_canary.py",
    ),
    Guard(
        "vectors of different lengths are no answer",
        f"{ONHOST}/engine/openai_api.py",
        "or len(set(lengths)) != 1 or not lengths[0]:",
        "or not all(lengths):",
        "tests/unit/onhost/engine/test_canary.py",
    ),
    Guard(
        "a reranker that ranks wrongly is not hot",
        f"{ONHOST}/engine/openai_api.py",
        "if not scores[0] < scores[1] < scores[2]:",
        "if False:",
        "tests/unit/onhost/engine/test_canary.py",
    ),
    Guard(
        "no floor in tokens for a model without tokens",
        "lockstep/inventory/bound_targets.py",
        'if kind != "chat" and floor and ',
        "if False and ",
        "tests/unit/units/test_gateway_unit.py",
    ),
    Guard(
        "no gateway is open without TLS unless the inventory says so",
        "lockstep/inventory/settings_check.py",
        "if gateway.open and gateway.tls is None and not gateway.plain:",
        "if False:",
        "tests/unit/inventory/test_hostile_values.py",
    ),
    Guard(
        "no engine counts as wedged because the gateway before it is down",
        f"{ONHOST}/switching/wedge.py",
        "(each.itself for each in hot)",
        "hot",
        "tests/unit/onhost/switching/test_wedge.py",
    ),
    Guard(
        "a fallback that does not merge roles is behind the door of its target",
        "lockstep/inventory/bound_targets.py",
        "any(each.refuses_roles for each in self.recipes)",
        "self.recipe.refuses_roles",
        "tests/unit/units/test_gateway_unit.py",
    ),
    Guard(
        "gateways answer for each other only where both ends say so",
        "lockstep/inventory/cluster_join.py",
        "if plan.name not in known[name].settings.gateway.peers:",
        "if False:",
        "tests/unit/inventory/test_peers.py",
    ),
    Guard(
        "a way back takes the gateway along",
        f"{ONHOST}/systemd/generation.py",
        'verb = "" if unit.up and not old(unit, paths) else "restart"',
        'verb = ""',
        "tests/unit/onhost/systemd/test_generation.py",
    ),
    Guard(
        "an alias means one thing",
        "lockstep/inventory/bound_targets.py",
        "            if other is not None:\n",
        "            if False:\n",
        "tests/unit/units/test_gateway_unit.py",
    ),
    Guard(
        "no engine is restarted because the gateway before it is down",
        f"{ONHOST}/switching/switch.py",
        "engine = target.itself",
        "engine = target",
        "tests/unit/onhost/operator/test_switch_sh.py",
    ),
    Guard(
        "no model that talks nonsense becomes hot",
        f"{ONHOST}/engine/ready.py",
        '        if verdict.state != "nonsense":',
        "        if True:",
        "tests/unit/onhost/engine/test_ready.py",
    ),
    Guard(
        "the daily look leaves a busy engine alone",
        f"{ONHOST}/switching/sense_watch.py",
        "    if counted is None or counted.outstanding:",
        "    if counted is None:",
        "tests/unit/onhost/switching/test_sense_watch.py",
    ),
    Guard(
        "readiness watches the main process",
        f"{ONHOST}/engine/ready.py",
        "if not self.started or _start_time(self.pid, self.proc) != self.started:",
        "if False:",
        "tests/unit/onhost/engine/test_ready.py",
    ),
    Guard(
        "the wedge watch restarts",
        f"{ONHOST}/switching/wedge.py",
        "                self.act(target, unit, reason)",
        "                pass",
        "tests/unit/onhost/switching/test_wedge.py",
    ),
    Guard(
        "the wedge watch gives up",
        f"{ONHOST}/switching/wedge.py",
        ">= RESTARTS\n",
        ">= 10 * RESTARTS\n",
        "tests/unit/onhost/switching/test_wedge.py",
    ),
    Guard(
        "the wedge watch leaves a switch alone",
        f"{ONHOST}/switching/wedge.py",
        "switch_lock) is not None:\n            return []\n",
        "switch_lock) is not None:\n            pass\n",
        "tests/unit/onhost/switching/test_wedge.py",
    ),
    Guard(
        "a slow Spark takes little power",
        f"{ONHOST}/switching/gpu_watch.py",
        " or watts >= least:",
        ":",
        "tests/unit/onhost/switching/test_gpu_watch.py",
    ),
    Guard(
        "a slow Spark is slow twice",
        f"{ONHOST}/switching/gpu_watch.py",
        "        if slow >= 2:",
        "        if slow >= 1:",
        "tests/unit/onhost/switching/test_gpu_watch.py",
    ),
    Guard(
        "another cap is another speed",
        f"{ONHOST}/switching/gpu_watch.py",
        '(known.get("power_w") and cap and',
        '(known.get("power_w") and',
        "tests/unit/onhost/switching/test_gpu_watch.py",
    ),
    Guard(
        "heat is seen twice",
        f"{ONHOST}/switching/gpu_watch.py",
        "words in after.heat if words in now.heat",
        "words in now.heat",
        "tests/unit/onhost/switching/test_gpu_watch.py",
    ),
    Guard(
        "a lost cap is set again",
        f"{ONHOST}/switching/gpu_watch.py",
        '        done = runner.run(["systemctl", "restart", gpu.CAP_UNIT], timeout=120)',
        '        done = runner.run(["true"])',
        "tests/unit/onhost/switching/test_gpu_watch.py",
    ),
    Guard(
        "a stop lifts the cap",
        "templates/units/gpu-cap.service.j2",
        "ExecStop=/usr/bin/nvidia-smi -rgc\n",
        "",
        "tests/unit/units/test_all_files.py",
    ),
    Guard(
        "sshd outlives memory pressure",
        "templates/system/ssh.conf.j2",
        "MemoryMin=64M",
        "",
        "tests/unit/units/test_all_files.py",
    ),
    Guard(
        "what is started over SSH can be ended",
        "templates/system/ssh.conf.j2",
        "[Service]\n",
        "[Service]\nOOMScoreAdjust=-900\n",
        "tests/unit/units/test_all_files.py",
    ),
    Guard(
        "apt's locks are waited for",
        f"{ONHOST}/system/apt_turn.py",
        "        _wait(options.work, paths, began, options.limit)\n",
        "",
        "tests/unit/onhost/system/test_apt_turn.py",
    ),
    Guard(
        "a command that is refused a lock waits again",
        f"{ONHOST}/system/apt_turn.py",
        "return (128 - code if code < 0 else code), refused and code != 0",
        "return (128 - code if code < 0 else code), False",
        "tests/unit/onhost/system/test_apt_turn.py tests/render/test_apt_by_apt.py",
    ),
    Guard(
        "engines die first",
        MODEL_UNIT,
        "OOMScoreAdjust={{ oom_score }}",
        "",
        "tests/render/test_units_by_systemd.py",
    ),
    Guard(
        "engines in containers die first",
        "lockstep/units/docker_run.py",
        '*("--oom-score-adj", OOM_SCORE),',
        "",
        "tests/render/test_units_by_systemd.py",
    ),
    Guard(
        "sudo rules are whole commands",
        "templates/system/sudoers.j2",
        "NOPASSWD: {{ command }}",
        "NOPASSWD: ALL",
        "tests/unit/units/test_all_files.py tests/render/test_scripts_by_tools.py",
    ),
    Guard(
        "no rank is restarted alone",
        MODEL_UNIT,
        "Restart=no\n",
        "Restart=always\n",
        RANKS,
    ),
    Guard(
        "a rank is admitted before it starts",
        MODEL_UNIT,
        "ExecStartPre=+{{ admit | unit_words }}",
        "",
        RANKS,
    ),
    Guard(
        "a rank's admission sees the agent's word",
        "templates/units/hardening.j2",
        "TemporaryFileSystem=/etc/lockstep:ro\n",
        "TemporaryFileSystem=/etc/lockstep:ro /run/lockstep:ro\n",
        "tests/render/test_units_seen.py",
    ),
    Guard(
        "an engine sees no lease of a deploy",
        "templates/units/hardening.j2",
        "InaccessiblePaths=/run/lockstep\n",
        "InaccessiblePaths=-/run/lockstep\n",
        "tests/render/test_units_seen.py",
    ),
    Guard(
        "the folder that an engine is shut out of is there",
        "lockstep/onhost/switching/gate.py",
        "        self.make_hidden_folder()\n",
        "",
        "tests/unit/onhost/switching/test_gate.py",
    ),
    Guard(
        "the ranks' ports are the members'",
        "lockstep/system/firewall.py",
        "*_members(targets)",
        "",
        RANKS,
    ),
    Guard(
        "an open engine is open at rank 0 only",
        "lockstep/inventory/bound_targets.py",
        "return self.answers and not is_loopback",
        "return not is_loopback",
        RANKS,
    ),
    Guard(
        "a recipe for several Sparks is not put on one",
        "lockstep/fit/cluster_findings.py",
        "if case.hosts == 1 and needed > 1:",
        "if False:",
        "tests/unit/fit/test_cluster_findings.py",
    ),
    Guard(
        "heads are shared evenly",
        "lockstep/fit/cluster_findings.py",
        "    yield from _heads(case, shapes)\n",
        "",
        "tests/unit/fit/test_cluster_findings.py",
    ),
    Guard(
        "netplan takes the file before it is there",
        f"{ONHOST}/system/fabric.py",
        "        _check(text)\n",
        "",
        "tests/unit/onhost/system/test_fabric.py",
    ),
    Guard(
        "what is on trial comes back by itself",
        f"{ONHOST}/system/trial.py",
        "must([*argv, *program.command(",
        "list([*argv, *program.command(",
        "tests/unit/onhost/system/test_fabric.py tests/unit/onhost/system/test_firewall.py",
    ),
    Guard(
        "the addresses of before are put back",
        f"{ONHOST}/system/fabric.py",
        'runner.run(["ip", "address", "replace", address, "dev", name])',
        "pass",
        "tests/unit/onhost/system/test_fabric.py",
    ),
    Guard(
        "a request goes to one other gateway at most",
        f"{ONHOST}/gateway/app.py",
        "                and not caller.hops\n",
        "",
        "tests/unit/onhost/gateway/process/test_two_gateways.py",
    ),
    Guard(
        "a gateway is believed by the key of gateways alone",
        f"{ONHOST}/gateway/peers.py",
        "if not hmac.compare_digest(key, self._key):",
        "if False:",
        "tests/unit/onhost/gateway/test_peers.py",
    ),
    Guard(
        "an authority is believed for private names and the hosts' own alone",
        f"{ONHOST}/access/authority.py",
        "nameConstraints = critical, @permitted\n",
        "",
        "tests/unit/onhost/access/test_authority.py",
    ),
    Guard(
        "no header of a client is in Caddy's log",
        "templates/system/Caddyfile.j2",
        "request>headers delete",
        "request>proto delete",
        "tests/render/test_caddyfile_by_caddy.py",
    ),
    Guard(
        "a package's own server is masked before it could start",
        "tasks/operations/system.py",
        'yield remote.words(["systemctl", "mask", "--quiet", *units])',
        "pass",
        "tests/operations/test_operations.py",
    ),
    Guard(
        "a package that was there before Lockstep is not purged",
        "lockstep/onhost/records/packages.py",
        ' if each.partition("=")[0] not in here]',
        "]",
        "tests/unit/onhost/records/test_packages.py",
    ),
    Guard(
        "what apt could remove before is not removed with monitoring",
        "lockstep/onhost/records/packages.py",
        '- _taken(*needs, "autoremove") - set(kept.before)',
        "- set(kept.before)",
        "tests/unit/onhost/records/test_packages.py",
    ),
    Guard(
        "what was there before monitoring is not removed with it",
        "lockstep/onhost/records/packages.py",
        '_taken(*needs, "autoremove") - set(kept.before)',
        '_taken(*needs, "autoremove")',
        "tests/unit/onhost/records/test_packages.py",
    ),
    Guard(
        "Prometheus is asked about its configuration before that replaces another",
        "lockstep/onhost/records/write_files.py",
        '_CHECKED_FIRST = ("unit", "sudoers", "caddy", "prometheus", "rules", "alertmanager")',
        '_CHECKED_FIRST = ("unit", "sudoers", "caddy")',
        "tests/unit/onhost/records/test_write_files.py",
    ),
    Guard(
        "metrics of a look that hangs are not told as new",
        "lockstep/onhost/monitoring/writer.py",
        "(self._folder / SLOW).unlink(missing_ok=True)",
        "pass",
        "tests/unit/onhost/monitoring/test_writer.py",
    ),
    Guard(
        "what a kernel sends is let in from that host alone",
        "lockstep/system/firewall.py",
        """(f"kernel of {each.name}", f"udp dport {each.console}", [each.address])
            for each in ring.recorded""",
        """(f"kernel of {each.name}", f"udp dport {each.console}", ["0.0.0.0/0"])
            for each in ring.recorded""",
        "tests/unit/monitoring/test_netconsole.py",
    ),
    Guard(
        "a kernel's messages do not leave by another way than the fast link",
        "lockstep/onhost/monitoring/netconsole.py",
        'if not ways or ways[0].get("prefsrc") != source:',
        "if not ways:",
        "tests/unit/onhost/monitoring/test_netconsole.py",
    ),
    Guard(
        "a target that sends is stopped before it is changed",
        "lockstep/onhost/monitoring/netconsole.py",
        """        self._stop()
        for name, value in""",
        "        for name, value in",
        "tests/unit/onhost/monitoring/test_netconsole.py",
    ),
    Guard(
        "the end of the boot before is not that of the present one",
        "lockstep/onhost/facts/blackbox.py",
        "before = [at for at, value in samples if value < latest - SAME_BOOT_S]",
        "before = [at for at, value in samples]",
        "tests/render/test_blackbox_by_prometheus.py",
    ),
    Guard(
        "node_exporter is open to the host's recorder alone",
        "lockstep/system/firewall.py",
        "recorders = [ring.recorder] if ring.recorder else []",
        "recorders: list[Neighbour] = []",
        "tests/unit/monitoring/test_stack.py",
    ),
    Guard(
        "a key that is on a host which is left out is missed before anything is touched",
        "lockstep/preflight/keys.py",
        "if key.hosts[0] not in run and key.seal(host, files) is None:",
        "if False:",
        "tests/unit/preflight/test_keys.py",
    ),
    Guard(
        "what a twin's door lets in is one public key",
        f"{ONHOST}/access/backup_key.py",
        "if not _LINE.fullmatch(text):",
        "if not text:",
        "tests/unit/onhost/access/test_backup_key.py",
    ),
    Guard(
        "the door for backups is open to the host that they are of alone",
        "lockstep/system/firewall.py",
        "saved = [backups.of.address] if backups.of else []",
        "saved: list[str] = []",
        "tests/unit/units/test_backup_twin.py",
    ),
    Guard(
        "the account for a twin's backups goes with the door",
        "tasks/operations/services.py",
        "if backup_twin.UNIT in units:",
        "if False:",
        "tests/operations/test_backup_to_twin.py",
    ),
    Guard(
        "a key of several hosts is that of the host that made it",
        "tasks/operations/shared_keys.py",
        "if mine is None or mine != _hash(first.name, key):",
        "if mine is None:",
        "tests/operations/test_cluster_deploy.py",
    ),
    Guard(
        "who has joined a switch is asked again for groups that began meanwhile",
        f"{ONHOST}/cluster/coordinator.py",
        "        self._planner.still(plan, states)\n",
        "",
        "tests/unit/onhost/cluster/test_coordinator.py",
    ),
    Guard(
        "a switch of one host looks for a group once more when it has the lock",
        f"{ONHOST}/operator/switch_worker.py",
        "            if not planner.concerns(host, name):\n                code",
        "            if True:\n                code",
        "tests/unit/onhost/cluster/test_coordinator.py",
    ),
    Guard(
        "the watch starts nothing again that somebody switched off",
        f"{ONHOST}/cluster/coordinator.py",
        "            self._planner.owed(wanted, states)\n",
        "            pass\n",
        "tests/unit/onhost/cluster/test_coordinator.py",
    ),
    Guard(
        "members that differ start nothing",
        f"{ONHOST}/cluster/planner.py",
        "        said = launch_check.differences(found)\n",
        "        said = []\n",
        "tests/unit/onhost/cluster/test_coordinator.py",
    ),
    Guard(
        "a member's flags that were changed by hand are noticed",
        f"{ONHOST}/cluster/launch_check.py",
        "known = {_TARGETS, _WEIGHTS, unit, *started} & texts.keys()",
        "known = set[str]()",
        "tests/unit/onhost/cluster/test_launch_check.py",
    ),
    Guard(
        "members that were deployed otherwise have another hash",
        "lockstep/units/variants.py",
        "common = of(replace(target, group=target.group.nameless))",
        "common = replace(found, argv=(), environment={})",
        RANKS,
    ),
    Guard(
        "a mirror's password is on no command line of git",
        f"{ONHOST}/fetch/url_login.py",
        "    return shown, {\n",
        "    return address, {\n",
        "tests/unit/onhost/fetch/test_url_login.py",
    ),
    Guard(
        "a deploy after which a group does not serve is undone on all members",
        "lockstep/deploy/group_rollout.py",
        'if not run(member, "ended", why)[0]',
        "if False",
        "tests/unit/deploy/test_group_rollout.py",
    ),
    Guard(
        "no member takes a deploy for done that was undone on all",
        "tasks/operations/cluster_rollout.py",
        "elif state.is_executing and not owing.served():",
        "elif False:",
        "tests/operations/test_cluster_deploy.py",
    ),
    Guard(
        "a deploy restarts no rank alone",
        "tasks/operations/services.py",
        "unit not in (*together, *next_boot):",
        "unit not in next_boot:",
        "tests/operations/test_cluster_deploy.py",
    ),
    Guard(
        "a deploy restarts no unit that begins a model",
        "tasks/operations/services.py",
        "unit not in (*together, *next_boot):",
        "unit not in together:",
        "tests/operations/test_services.py",
    ),
    Guard(
        "no start that a power cut could hide",
        f"{ONHOST}/switching/gate.py",
        "        self.note()\n",
        "",
        "tests/unit/onhost/switching/test_gate.py",
    ),
    Guard(
        "an engine that freezes the host is tried twice",
        f"{ONHOST}/operator/boot.py",
        "if reason := boots.crash_loop(record, boots.boot_id(paths)):",
        "if reason := None:",
        "tests/unit/onhost/operator/test_boot.py",
    ),
    Guard(
        "no model after a boot whose recipe forbids it",
        f"{ONHOST}/operator/boot.py",
        "if each and each.not_at_boot:",
        "if False:",
        "tests/unit/onhost/operator/test_boot.py",
    ),
    Guard(
        "no model after a boot in the place of one that somebody chose",
        f"{ONHOST}/operator/boot.py",
        "    record = boots.load(paths)\n    _idle(host, paths)\n",
        "    record = boots.load(paths)\n",
        "tests/unit/onhost/operator/test_boot.py",
    ),
    Guard(
        "a stale CDI file that Docker uses is an error",
        "lockstep/preflight/docker.py",
        '"error" if used else "warning"',
        '"warning"',
        "tests/unit/preflight/test_docker.py",
    ),
    Guard(
        "a host that a command has changed is asked again",
        "tasks/remote.py",
        "        finally:\n            facts.forget(host)",
        "        finally:\n            pass",
        "tests/operations/test_facts.py",
    ),
    Guard(
        "a host that waited for others is asked again",
        "tasks/facts/host.py",
        "if now - at < FRESH_S",
        "if at",
        "tests/operations/test_facts.py",
    ),
    Guard(
        "hosts of one cloned image are refused",
        "tasks/run.py",
        "standing += preflight.between(",
        "preflight.between(",
        "tests/operations/test_whole_deploy.py",
    ),
    Guard(
        "a container of somebody else's is not removed",
        f"{ONHOST}/docker/stop_container.py",
        'if not docker_api.ours(container["Config"].get("Labels")):',
        "if False:",
        "tests/unit/onhost/images/test_pull_image.py tests/unit/onhost/switching/test_gate.py",
    ),
    Guard(
        "a volume of somebody else's is not emptied",
        f"{ONHOST}/garbage/unneeded.py",
        ' and docker_api.ours(volume.get("Labels")):',
        ":",
        "tests/unit/onhost/garbage/test_cleanup.py",
    ),
    Guard(
        "containers and volumes of somebody else's are refused",
        "lockstep/preflight/__init__.py",
        '*containers.findings(plan, facts["docker"]),',
        "",
        "tests/unit/preflight/test_containers.py",
    ),
    Guard(
        "SGLang gets a folder, by which it tells Mistral's format",
        "lockstep/units/served_weights.py",
        'given == "folder" or ',
        "",
        "tests/unit/lab/test_services_standin.py",
    ),
    Guard(
        "a mixture of experts on vLLM gets the freeze guard",
        "lockstep/recipes/command.py",
        "        wanted += [freeze_guard.arguments(self.recipe, self.argv)]\n",
        "",
        "tests/unit/units/test_variants.py tests/unit/recipes/test_command.py",
    ),
    Guard(
        "no rank starts without its fast link",
        f"{ONHOST}/cluster/rank_gate.py",
        "    cluster_link.check(name, cluster, paths)\n",
        "",
        "tests/unit/onhost/system/test_cluster_link.py",
    ),
    Guard(
        "a member without its fast link stops nothing",
        f"{ONHOST}/switching/precheck.py",
        "cluster_link.check(target.name, cluster, self.paths)",
        "pass",
        "tests/unit/onhost/system/test_cluster_link.py",
    ),
    Guard(
        "no target has the name of a unit of Lockstep's",
        "lockstep/inventory/values.py",
        'lambda unit: not re.fullmatch(r"lockstep(-.*)?|prometheus(-.*)?|earlyoom|nftables", unit)',
        "lambda unit: True",
        "tests/unit/inventory/test_hostile_values.py",
    ),
    Guard(
        "no folder of an inventory is the system's",
        "lockstep/inventory/values.py",
        "return not (first in _SYSTEM or 1 + len(rest) < _DEPTH.get(first, 1))",
        "return True",
        "tests/unit/inventory/test_hostile_values.py",
    ),
    Guard(
        "a launcher or script lies under paths.scripts",
        "lockstep/inventory/settings_check.py",
        "if not inside or path in folders:",
        "if False:",
        "tests/unit/inventory/test_hostile_values.py",
    ),
    Guard(
        "the engines' account is nobody else's",
        "lockstep/inventory/settings_check.py",
        '    if owner:\n        yield Refusal(\n            "service_user',
        '    if False:\n        yield Refusal(\n            "service_user',
        "tests/unit/inventory/test_hostile_values.py",
    ),
    Guard(
        "a file without our mark is somebody else's",
        f"{ONHOST}/records/ours.py",
        "if marked(at) or (path in CONFFILES and _as_shipped(path, at)):",
        "if True:",
        "tests/unit/onhost/records/test_ours.py",
    ),
    Guard(
        "what is somebody else's is refused before anything is touched",
        "lockstep/preflight/__init__.py",
        '*foreign.findings(plan, facts["foreign"]),',
        "",
        "tests/unit/preflight/test_foreign.py",
    ),
    Guard(
        "what writes replaces nothing of somebody else's",
        "lockstep/onhost/records/write_files.py",
        "    foreign = ours.intruders(asked)\n",
        "    foreign: dict[str, str] = {}\n",
        "tests/unit/onhost/records/test_write_files.py",
    ),
    Guard(
        "a way back replaces nothing of somebody else's",
        f"{ONHOST}/records/before.py",
        "    refuse_foreign(paths, kept)\n    try:",
        "    try:",
        "tests/unit/onhost/rollout/test_rollout.py",
    ),
    Guard(
        "a netplan file of somebody else's stays",
        f"{ONHOST}/system/fabric.py",
        "if whose := judge.file(path):",
        'if whose := "":',
        "tests/unit/onhost/system/test_fabric.py",
    ),
    Guard(
        "no restart of Docker ends somebody else's containers",
        "tasks/operations/services.py",
        "_ended_with_docker() if DOCKER in old else {}",
        "{}",
        "tests/operations/test_not_ours.py",
    ),
    Guard(
        "somebody else's drop-in restarts no service of the system",
        "lockstep/onhost/facts/units.py",
        ".d/*lockstep*.conf",
        ".d/*.conf",
        "tests/unit/onhost/facts/test_readers.py",
    ),
    Guard(
        "an account of somebody else's is put into no group",
        "tasks/operations/system.py",
        'theirs = have and user.home and have["home"] != user.home',
        "theirs = False",
        "tests/operations/test_not_ours.py",
    ),
    Guard(
        "a file of somebody else's is not removed",
        f"{ONHOST}/removal/places.py",
        "if named or (not path.is_symlink() and ours.marked(path)):",
        "if True:",
        "tests/unit/onhost/removal/test_plan.py",
    ),
    Guard(
        "the record stays while anything of a deploy does",
        f"{ONHOST}/removal/remove.py",
        "if kind in _LAST and failed:",
        "if False:",
        "tests/unit/onhost/removal/test_remove.py",
    ),
    Guard(
        "what is kept does not go with its folder",
        f"{ONHOST}/removal/places.py",
        'if not any(each.startswith(f"{path}/") for each in kept):',
        "if True:",
        "tests/unit/onhost/removal/test_plan.py",
    ),
    Guard(
        "a folder of somebody else's does not go with an engine's",
        f"{ONHOST}/removal/places.py",
        "if there and was_absent(record, path):",
        "if there:",
        "tests/unit/onhost/removal/test_plan.py",
    ),
    Guard(
        "an account of before a deploy is not removed",
        f"{ONHOST}/removal/plan.py",
        "elif made or (made is None and ours.home_of(name) == home):",
        "elif True:",
        "tests/unit/onhost/removal/test_plan.py",
    ),
    Guard(
        "a membership of before a deploy is not removed",
        f"{ONHOST}/removal/plan.py",
        " - set(was or ()))",
        ")",
        "tests/unit/onhost/removal/test_plan.py",
    ),
    Guard(
        "a membership that no deploy gave is not removed",
        f"{ONHOST}/removal/plan.py",
        " & set(record.groups))",
        ")",
        "tests/unit/onhost/removal/test_plan.py",
    ),
    Guard(
        "a folder with somebody's files in it is not removed",
        f"{ONHOST}/removal/actions.py",
        "self._at(item.name).rmdir()",
        "shutil.rmtree(self._at(item.name))",
        "tests/unit/onhost/removal/test_remove.py",
    ),
    Guard(
        "a removal takes nobody's addresses away",
        f"{ONHOST}/removal/actions.py",
        'if kind == "original" and any(',
        "if any(",
        "tests/unit/onhost/removal/test_remove.py",
    ),
    Guard(
        "a secret variable of somebody else's engine does not leave its host",
        f"{ONHOST}/engine/theirs.py",
        "return bool(_SECRET.search(name) or _LOGIN.search(value) or _KEY.search(value))",
        "return False",
        "tests/unit/onhost/engine/test_theirs.py",
    ),
    Guard(
        "a secret flag of somebody else's engine does not leave its host",
        f"{ONHOST}/engine/theirs.py",
        "bool(_SECRET.search(flag) or _LOGIN.search(word) or _KEY.search(word))",
        "False",
        "tests/unit/onhost/engine/test_theirs.py",
    ),
    Guard(
        "a check of Caddy's file leaves nothing in the home of root",
        f"{ONHOST}/records/write_files.py",
        ', "HOME")',
        ")",
        "tests/unit/onhost/records/test_write_files.py",
    ),
)


def stale() -> list[str]:
    """Guards whose text is not in its file exactly once: it was moved, and not here."""
    return [
        f"{guard.name}: its text is not in {guard.file} once; mend tests/guards_removed.py"
        for guard in GUARDS
        if (HERE / guard.file).read_text().count(guard.text) != 1
    ]


def main(words: list[str]) -> int:
    """Print one line per guard; 1 when a test stays green without its guard."""
    if lines := stale():
        sys.exit("\n".join(lines))
    guards = [each for each in GUARDS if not words or any(word in each.name for word in words)]
    if not guards:
        # Without a test's name, pytest would run every one.
        print((__doc__ or "").strip(), file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        ignored = shutil.ignore_patterns(".venv", ".git", "*.egg-info", "__pycache__")
        shutil.copytree(HERE, tree, ignore=ignored)
        every = sorted({file for guard in guards for file in guard.tests.split()})
        if red := _failing(every, tree):
            sys.exit(f"with all guards in place a test fails: {red}")
        unnoticed = [guard.name for guard in guards if not noticed(guard, tree)]
    for name in unnoticed:
        print(f"NOT NOTICED: {name}", file=sys.stderr)
    print(f"{len(guards)} guards removed, {len(guards) - len(unnoticed)} noticed")
    return 1 if unnoticed else 0


def noticed(guard: Guard, tree: Path) -> bool:
    """Whether a test fails when the guard is gone."""
    path = tree / guard.file
    whole = path.read_text()
    path.write_text(whole.replace(guard.text, guard.without))
    try:
        red = _failing(guard.tests.split(), tree)
    finally:
        path.write_text(whole)
    print(f"{guard.name}: {red or 'NO TEST FAILED'}", flush=True)
    return bool(red)


def _failing(tests: list[str], tree: Path) -> str:
    """The first test that fails."""
    argv = [sys.executable, "-m", "pytest", "-q", "-x", "--no-header", "-p", "no:cacheprovider"]
    try:
        done = subprocess.run(
            [*argv, "-k", "not golden", *tests],
            cwd=tree,
            # The copy, not the checkout that is installed.
            env={**os.environ, "PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"},
            capture_output=True,
            text=True,
            check=False,
            timeout=LIMIT_S,
        )
    except subprocess.TimeoutExpired:
        sys.exit(f"no end within {LIMIT_S} s: {' '.join(tests)}. A test there waits for ever")
    failed = [line for line in done.stdout.splitlines() if line.startswith("FAILED ")]
    if done.returncode == 1 and failed:
        return failed[0].removeprefix("FAILED ").partition(" - ")[0]
    if done.returncode != 0:
        sys.exit(
            f"pytest ended with {done.returncode}:\n{done.stdout[-3000:]}{done.stderr[-2000:]}"
        )
    return ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
