"""Drift is named, of every kind; what the inventory asks to differ is not drift."""

import json
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from a_snapshot import KEY, diff_report, difference_keys, host, only, perfect, snapshot_copy
from a_spark import pins_for, spark
from an_identity import give_identity

from lockstep.drift.compare import ComparedHost, differences, display, fixable
from lockstep.drift.hosts import HostQuestion, over_ssh
from lockstep.drift.hosts import read as read_answer
from lockstep.drift.report import DRIFT, UNKNOWN, Report, of_host
from lockstep.drift.subjects import KINDS, all_expectations, environments, questions, unknown_kinds
from lockstep.files.managed_file import PEER_AUTHORITY as PATH
from lockstep.fleet.hosts import HostAnswer
from lockstep.fleet.login import Login
from lockstep.host.desired_state import DesiredState
from lockstep.inventory.cluster_join import join_clusters
from lockstep.onhost.core import layout
from lockstep.onhost.facts import files
from lockstep.onhost.facts.reader_helpers import seal_file
from lockstep.resources.fact_comparison import Kind, SubjectView
from lockstep.resources.files import file_facts

ONE, TWO, THREE = map(host, ("spark1", "spark2", "spark3"))
GOOD, GOOD_TOO, GOOD_THREE = map(perfect, (ONE, TWO, THREE))


def with_facts(snapshot: dict[str, Any], facts: Mapping[str, Mapping[str, str | None]]) -> Any:
    """A copy of a snapshot with other values of these facts; None takes one away."""
    bent = snapshot_copy(snapshot)
    for kind, items in facts.items():
        whole = {**bent["facts"].get(kind, {}), **items}
        bent["facts"][kind] = {name: value for name, value in whole.items() if value is not None}
    return bent


def drift(*facts: Mapping[str, Mapping[str, str | None]]) -> Report:
    """The report of as many hosts as there are changes of facts, or of all three."""
    snapshots = map(with_facts, (GOOD, GOOD_TOO, GOOD_THREE), facts)
    return diff_report(*zip((ONE, TWO, THREE), snapshots, strict=False))


def test_every_fact_that_is_asked_for_is_named_when_it_is_missing_or_another() -> None:
    asked_facts = tuple(all_expectations(ONE, SubjectView(GOOD["facts"], KEY)))
    assert len(asked_facts) > 150
    # What the engines say is derived from their own records.
    whole = {**GOOD["facts"], **environments.facts(ONE, GOOD["answers"]["environments"])}
    for item in asked_facts:
        for value in (None, "other"):
            facts = with_facts({"facts": whole}, {item.kind: {item.item: value}})["facts"]
            rows = differences([ComparedHost("spark1", facts, asked_facts)])
            # What any value will do for, and what need not be there, is no drift.
            expected_rows = [] if item.holds(value) else [(item.kind, item.item, value)]
            assert [(row.kind, row.item, row.found) for row in rows] == expected_rows


def kinds_where(holds: Callable[[Kind], bool]) -> list[str]:
    return sorted(name for name, kind in KINDS.items() if holds(kind))


def test_what_nothing_asks_for_is_drift_where_all_is_asked_for() -> None:
    kinds = kinds_where(lambda kind: kind.scope == "odd")
    report = drift({kind: {"/odd one": "present"} for kind in kinds})
    assert sorted(difference_keys(report)) == [("spark1", kind, "/odd one") for kind in kinds]
    # A part of a thing is named where both hosts have the thing.
    kinds = kinds_where(lambda kind: bool(kind.part))
    two = {kind: {"odd": "this"} for kind in kinds}
    assert difference_keys(drift({}, two)) == []
    report = drift({kind: {"odd": "that"} for kind in kinds}, two)
    assert sorted(difference_keys(report)) == [("", kind, "odd") for kind in kinds]


def test_of_a_fact_that_one_host_alone_has_both_hosts_are_named() -> None:
    """G1: the host that had drifted was the model, and the good one was told to switch off."""
    item, value = "odd: x in y 1", "9 here"
    kinds = kinds_where(lambda kind: kind.scope == "hosts" and not kind.part)
    odd = {kind: {item: value} for kind in kinds}
    for report, values in ((drift({}, odd), (None, value)), (drift(odd, {}), (value, None))):
        assert sorted(difference_keys(report)) == [("", kind, item) for kind in kinds]
        for difference in report.differences:
            assert difference.values == dict(zip(("spark1", "spark2"), values, strict=True))
            remedy = (difference.severity, difference.how, difference.command)
            assert remedy == ("differs", "decide", "")
        assert (report.code, fixable(report.differences)) == (DRIFT, [])
    assert difference_keys(drift(odd, odd)) == []
    # The cache of an engine that ran on one host alone is no drift.
    report = drift({}, {"volume": {"vllm-qwen36-cache": "local", "mine": "local"}})
    assert difference_keys(report) == [("", "volume", "mine")]


def test_of_three_hosts_each_is_shown_with_those_that_are_like_it() -> None:
    odd, usual = ({"kernel": {"release": release}} for release in ("6.14.0-1015", "6.17.0-1008"))
    report = drift(odd, usual, usual)
    assert difference_keys(report) == [("", "kernel", "release")]
    values = [("spark1", "6.14.0-1015"), ("spark2, spark3", "6.17.0-1008")]
    assert display(only(report)) == ("release", values)
    # A host whose own a thing is leaves the others to be compared.
    three = host("spark3", differs=("kernel release",))
    first, last = (ONE, with_facts(GOOD, odd)), (three, with_facts(perfect(three), usual))
    assert diff_report(first, (TWO, with_facts(GOOD_TOO, odd)), last).code == 0
    newest = with_facts(GOOD_TOO, {"kernel": {"release": "6.15"}})
    difference = only(diff_report(first, (TWO, newest), last))
    assert difference.values == {"spark1": "6.14.0-1015", "spark2": "6.15"}


def test_a_host_that_nobody_deployed_to_is_one_sentence_and_no_model_for_others() -> None:
    """A wipe of one Spark gave the untouched one two errors, and the advice to lose its images."""
    # A first deploy that was cut off has left some programs, and no record.
    facts = {"file": {"/usr/local/lib/lockstep/lock.json": 32 * "0"}, "account": {"root": "uid 0"}}
    other_facts = {
        "other image": {"an/image@sha256:55": "sha256:12"},
        "shared key": {"/etc/lockstep/secrets/a.key": 32 * "a"},
    }
    facts["kernel"] = GOOD["facts"]["kernel"]
    report = diff_report((ONE, {**GOOD, "facts": facts}), (TWO, with_facts(GOOD_TOO, other_facts)))
    difference = only(report)
    remedy = (difference.host, difference.severity, difference.how)
    assert remedy == ("spark1", "error", "deploy")
    shown_lines = [("", "expected deployed, found nothing")]
    assert (difference.kind, *display(difference)) == ("Lockstep", "on this host", shown_lines)
    assert of_host(report, "spark2")["differences"] == []


def test_a_failed_unit_but_for_a_switch_and_a_package_that_the_lock_lacks_are_drift() -> None:
    units = ("lockstep-switch.service", "sglang-mistral4.service", "lockstep-wedge.service")
    report = drift({"failed unit": dict.fromkeys(units, "failed")})
    assert difference_keys(report) == [("spark1", "failed unit", units[-1])]
    # Beside it another spelling of the locked version, as a wheel may have it.
    report = drift({"engine package": {"left-pad": "1.0", "torchvision": "1.0.0"}})
    assert difference_keys(report) == [("spark1", "engine package", "left-pad")]
    assert only(report).how == "deploy"


#: Docker starts with none of these masked, whichever of them was found off.
ALL_OF_DOCKER = (
    'sudo sh -c \'systemctl unmask "$@" && systemctl enable --now "$@"\' sh '
    "containerd.service docker.socket docker.service"
)


def test_a_deploy_is_the_remedy_for_a_service_that_is_off_where_it_comes_that_far() -> None:
    for service, shows, how, command in (
        ("docker.service", "off at boot", "deploy", ""),
        # Preflight refuses a host whose Docker does not answer, so no deploy comes that far.
        ("docker.service", "inactive, masked", "by hand", ALL_OF_DOCKER),
        ("earlyoom.service", "inactive, masked", "deploy", ""),
        ("containerd.service", None, "by hand", ""),
    ):
        bent = {"system service": {service: shows}}
        # Whichever host it is: the first one of the inventory is no model for the others.
        for drifted_host, report in (("spark1", drift(bent, {})), ("spark2", drift({}, bent))):
            assert difference_keys(report) == [(drifted_host, "system service", service)]
            remedy = (only(report).severity, only(report).how, only(report).command)
            assert remedy == ("error", how, command)


def test_a_gateway_that_is_open_everywhere_may_listen_at_every_address_of_both_kinds() -> None:
    """Caddy is asked for 0.0.0.0, and listens at ::, as programs in Go do."""
    for bind in ("0.0.0.0", "::"):
        state = host(gateway={"bind": bind, "tls": "own", "names": ("spark.home.arpa",)})
        question = questions(state, key=KEY, deep=False)["network.foreign_and_exposed_sockets"]
        assert set(question["ports"]["8443"]) == {"0.0.0.0", "::"}
        assert question["ports"]["8090"] == ["127.0.0.1"]


def test_a_driver_that_disagrees_with_its_module_or_its_cdi_file_is_named() -> None:
    driver = {"version": "580.95", "loaded module": "575.1"}
    report = drift({"driver": driver, "CDI driver": {"/etc/cdi/nvidia.yaml": "575.1"}})
    remedies = {item.kind: item.how for item in report.differences}
    assert remedies == {"driver": "reboot", "CDI driver": "by hand"}


HOOK = "hook nvidia-container-runtime-hook"
OF_CDI = {"hook nvidia-cdi-hook": "present", "device nvidia.com/gpu=all": "present"}


def test_nvidias_hook_is_asked_for_only_where_docker_does_not_take_the_gpu_from_cdi() -> None:
    for item, changes in (
        (HOOK, {HOOK: None, "runtime nvidia": "present"}),
        ("toolkit mode", {"toolkit mode": "cdi"}),
    ):
        for version, expected_drift in (("28.5.2", [("spark1", "docker", item)]), ("29.2.1", [])):
            report = drift({"docker": {**OF_CDI, **changes, "version": version}})
            assert difference_keys(report) == expected_drift


def test_what_the_inventory_asks_to_differ_is_no_drift() -> None:
    state = host(
        "spark2",
        operators=("anna",),
        sysctls={"vm.swappiness": "60"},
        models={"qwen": asdict(ONE.plan.settings.models["qwen"]) | {"port": 31000}},
        packages=(*ONE.plan.settings.packages, "htop"),
    )
    # htop brings a library that nobody asked for.
    library = {"apt package": {"libnl-3-200": "3.7"}, "apt automatic": {"libnl-3-200": "yes"}}
    peer_snapshot = with_facts(perfect(state), {**library, "account": {"anna": "uid 1001"}})
    assert difference_keys(diff_report((ONE, GOOD), (state, peer_snapshot))) == []
    # Docker need not trust a registry that only Lockstep asks.
    desired_state = host("spark1", sources={"plain_registries": ("10.0.0.5:5000",)})
    expectations = all_expectations(desired_state, SubjectView(GOOD["facts"], KEY))
    assert [expectation.item for expectation in expectations if expectation.kind == "docker"] == []


def test_what_a_host_says_to_be_its_own_is_no_drift_but_for_what_the_deploy_asks_for() -> None:
    two = host("spark2", differs=("apt package ht*", "drop-in vllm.service *", "file *"))
    facts = {
        "apt package": {"htop": "3.3", "vim": "9.1"},
        "drop-in": {"vllm.service /etc/systemd/system/vllm.service.d/mine.conf": "x"},
        "file": {"/data/scripts/llm/switch.sh": 32 * "0"},
    }
    assert difference_keys(diff_report((ONE, GOOD), (two, with_facts(perfect(two), facts)))) == [
        ("spark2", "file", "/data/scripts/llm/switch.sh"),
        ("", "apt package", "vim"),
    ]
    # A kind that does not exist cannot be a host's own.
    two = host("spark2", differs=("packages", "apt package htop", "apt packge htop"))
    refusals = unknown_kinds(two.plan.settings)
    assert [(refusal.found, refusal.remedy) for refusal in refusals] == [
        ("'packages'", ""),
        ("'apt packge htop'", "Did you mean 'apt package'?"),
    ]


def test_the_password_of_sudo_goes_by_standard_input_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    commands = []

    def run(argv: list[str], *, input: str, **_: Any) -> subprocess.CompletedProcess[str]:
        commands.append((argv, input))
        return subprocess.CompletedProcess(argv, 1, "", "sudo: a password is required")

    monkeypatch.setattr(subprocess, "run", run)
    login = Login("spark1", ("ssh", "--", "spark1"))
    host_question = HostQuestion(login, questions(ONE, key=KEY, deep=False))
    over_ssh(host_question)
    host_snapshot = over_ssh(replace(host_question, password="s3cret"))
    (without, document), (with_one, sent_text) = commands
    assert "sudo -n /usr/bin/python3" in without[-1] and "sudo -S -p " in with_one[-1]
    assert sent_text == f"s3cret\n{document}"
    assert not any("s3cret" in word for word in with_one) and "s3cret" not in repr(host_snapshot)
    assert "sudo: a password is required. Give --ask-sudo-password" in host_snapshot.fault


def test_a_part_that_cannot_be_read_is_not_told_and_not_guessed() -> None:
    for reader, part, name in (
        ("environments", "answers", "environments"),
        # Whether it was deployed to is not guessed, either.
        ("deploy_records.generation_and_accepted_speeds", "facts", "deployed"),
    ):
        bent = snapshot_copy(GOOD_TOO)
        bent[part].pop(name)
        bent["faults"] = {reader: "it ended with 2"}
        report = diff_report((ONE, GOOD), (TWO, bent))
        assert (report.differences, report.code) == ((), UNKNOWN)
        assert report.unknown == (("spark2", f"{reader.partition('.')[0]}: it ended with 2"),)


def test_an_answer_that_is_none_is_told_as_such() -> None:
    for answer, why in (
        (HostAnswer(127, "", "python3: not found"), ": python3: not found"),
        (HostAnswer(0, '{"facts": {}}'), ""),
        (HostAnswer(1, '{"answers": {}, "facts": {}, "faults": {}}'), ""),
    ):
        host_snapshot = read_answer("spark1", answer, (0.0, 0.0))
        assert host_snapshot.snapshot is None
        assert f"its answer is no snapshot{why}" in host_snapshot.fault
    # A clock is wrong only by more than the answer was under way.
    text = '{"answers": {}, "facts": {"clock now": {"seconds": "1000.0"}}, "faults": {}}'
    assert read_answer("spark1", HostAnswer(0, text), (600.0, 620.0)).offset == (390.0, 10.0)


GLM = {"recipe": "deepseek-v4-flash-2x", "unit": "glm", "cluster": "pair"}
QWEN = {"recipe": "gpt-oss-120b", "unit": "qwen"}
NAMES = ("spark-1", "spark-2", "spark-3")


def members() -> tuple[DesiredState, ...]:
    """Two members of a cluster, and a host beside it."""
    # The inventory lists them the other way round.
    plans = [
        spark(
            name,
            models={"glm": GLM} if name in NAMES[:2] else {"qwen": QWEN},
            clusters={"pair": {"hosts": NAMES[:2]}},
            fabric_address=f"10.77.0.{number}",
            fabric={"interfaces": {"enp1s0f0np0": f"10.77.0.{number}/24"}},
        )
        for number, name in ((13, "spark-3"), (12, "spark-2"), (11, "spark-1"))
    ]
    return tuple(DesiredState(plan, pins_for(plan)) for plan in join_clusters(plans, "site.py"))


BESIDE, SECOND, FIRST = members()


def same_snapshots() -> dict[str, Any]:
    """Snapshots of all three hosts in their desired state."""
    snapshots = {
        desired_state.plan.name: snapshot_copy(perfect(desired_state))
        for desired_state in (BESIDE, SECOND, FIRST)
    }
    for name in NAMES[:2]:
        snapshots[name]["facts"]["shared key"] = {PATH: 32 * "a"}
    return snapshots


def member_differences(snapshots: dict[str, Any]) -> list[tuple[str, ...]]:
    """Host, kind, item and the person who puts it right, of each difference."""
    states = (BESIDE, SECOND, FIRST)
    report = diff_report(*((state, snapshots[state.plan.name]) for state in states))
    return [(item.host, item.kind, item.item, item.how) for item in report.differences]


def test_a_key_that_is_missing_damaged_readable_by_others_or_another_is_drift() -> None:
    # Members have one key, and the host beside them has none.
    assert member_differences(same_snapshots()) == []
    for value in (None, "0644 root:root", "damaged"):
        snapshots = same_snapshots()
        if value is None:
            del snapshots["spark-1"]["facts"]["secret"][PATH]
            del snapshots["spark-1"]["facts"]["shared key"]
        else:
            snapshots["spark-1"]["facts"]["secret"][PATH] = value
        assert member_differences(snapshots) == [("spark-1", "secret", PATH, "deploy")]
    # Of two keys the one of the later host is wrong.
    snapshots = same_snapshots()
    snapshots["spark-1"]["facts"]["shared key"] = {PATH: 32 * "b"}
    assert member_differences(snapshots) == [("spark-1", "shared key", PATH, "deploy")]
    # One that could not be read is not guessed.
    del snapshots["spark-2"]["facts"]["shared key"]
    snapshots["spark-2"]["faults"] = {"files": "PermissionError"}
    assert member_differences(snapshots) == []


def test_a_host_tells_of_a_key_only_whose_it_is_and_a_keyed_hash(tmp_path: Path) -> None:
    key, api = tmp_path / "peer-authority.pem", tmp_path / "api-key"
    for path in (key, api):
        path.write_text("c2VjcmV0=\n")
        path.chmod(0o600)
    question = questions(FIRST, key=KEY, deep=False)["files"]
    assert PATH in question["paths"]
    answer = files.read(question | {"paths": [str(key), str(api)]})
    facts = file_facts(answer, [str(key)])
    assert facts["shared key"] == {str(key): seal_file(KEY.hex(), str(key))}
    assert [value[:5] for value in facts["secret"].values()] == ["0600 ", "0600 "]
    assert "c2VjcmV0" not in json.dumps(answer)


def test_deploy_and_diff_see_that_a_certificate_is_damaged(tmp_path: Path) -> None:
    paths, name = layout.Paths(tmp_path), "lockstep:agent:spark-1"
    give_identity(paths, "spark-1")
    authority, identity = (
        str(paths.secrets / Path(path).name) for path in (PATH, *FIRST.certificates)
    )
    assert [*FIRST.certificates.values()] == [(PATH, name)]
    assert questions(FIRST, key=KEY, deep=False)["files"]["authorities"] == [PATH]
    question = {"key": KEY.hex(), "paths": [authority, identity], "absent": []}
    question |= {"authorities": [authority], "certificates": {identity: (authority, name)}}

    def damaged_files() -> list[str]:
        """Files that a deploy makes anew; `diff` calls the same ones damaged."""
        facts = file_facts(files.read(question), [authority])
        found_paths = [path for path in question["paths"] if facts["secret"][path] == "damaged"]
        assert (authority in facts["shared key"]) != (authority in found_paths)
        return found_paths

    whole = Path(identity).read_text()
    assert damaged_files() == []
    Path(identity).write_text(whole[:-80])
    assert damaged_files() == [identity]
    Path(authority).write_text(Path(authority).read_text()[30:])
    assert damaged_files() == [authority, identity]
    # Its certificate is whole, and what it signed counts.
    Path(identity).write_text(whole)
    assert damaged_files() == [authority]


def test_of_two_authorities_neither_is_right_and_nobody_replaces_one() -> None:
    gateway = {"bind": "0.0.0.0", "tls": "own"}
    plans = [spark(name, gateway=gateway, models={"qwen": QWEN}) for name in NAMES[:2]]
    hosts = [DesiredState(plan, pins_for(plan)) for plan in join_clusters(plans, "site.py")]
    [authority] = [key for key in hosts[0].shared_keys if key.announcement]
    assert questions(hosts[0], key=KEY, deep=False)["files"]["authorities"] == [authority.path]
    snapshots = [snapshot_copy(perfect(desired_state)) for desired_state in hosts]
    for snapshot, letter in zip(snapshots, "ab", strict=True):
        snapshot["facts"]["shared key"] = {authority.path: 32 * letter}
    report = diff_report(*zip(hosts, snapshots, strict=True))
    [row] = report.differences
    assert (row.host, row.kind, row.item, row.how) == ("", "shared key", authority.path, "decide")
