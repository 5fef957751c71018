"""The first deploy of two wiped hosts, and the second one, which has nothing to do."""

from __future__ import annotations

import re

import pytest
from stack import DeployResult, Host, Stack, engine_answers, state

from lockstep.lock import lockfile


def test_the_first_deploy_ends_well_and_says_what_runs_where(
    deployed_stack: Stack, first: DeployResult
) -> None:
    closing = first.closing
    for host in deployed_stack.hosts:
        table = closing.partition(f"{host.name}\n")[2]
        rows = dict(re.findall(r"^ (\S+(?: \S+)*?)  +(\S.*)$", table, re.MULTILINE))
        assert {"venv engine", "qwen", "mistral", "tiny", "open-webui"} <= set(rows)
        assert rows["venv engine"].startswith(
            f"vLLM {engine_answers(host)['venv']['version']}, torch "
        )
        assert rows["qwen"].startswith("inactive, vllm-qwen36 at 127.0.0.1:30001,")
        assert rows["mistral"].startswith("inactive, sglang-mistral4 at 127.0.0.1:30000,")
        assert rows["tiny"].startswith("inactive, vllm at 127.0.0.1:8000,")
        assert rows["gateway"] == "active, http://127.0.0.1:8090"
        assert rows["open-webui"] == "active, 127.0.0.1:8080"
        assert (rows["hot now"], rows["models at boot"]) == ("none", "none")
    # After it stands what people must know.
    assert closing.partition("Note: ")[0].rstrip().endswith("/data/scripts/llm/switch.sh status")


def test_the_closing_table_fits_eighty_columns(deployed_stack: Stack, first: DeployResult) -> None:
    wide = [line for line in first.closing.splitlines() if len(line) > 80]
    assert first.closing.strip() and wide == []


def test_what_is_not_locked_is_resolved_once_and_written_to_the_lock(
    deployed_stack: Stack, first: DeployResult
) -> None:
    assert first.output.count("Resolving what lab.lock.yaml") == 1
    assert " ".join(first.output.split()).count("Note: lab.lock.yaml has new entries") == 1
    record = deployed_stack.lock.read_text(encoding="utf-8")
    assert re.search(r"vllm\.git: \{branch: fix_mistral_parsing, commit: '?[0-9a-f]{40}", record)
    pins = lockfile.load(deployed_stack.lock)
    assert pins.precompiled and len(pins.images) == 3


def test_the_forks_compiled_parts_are_those_of_the_lock(deployed_stack: Stack, host: Host) -> None:
    [pin] = lockfile.load(deployed_stack.lock).precompiled.values()
    vllm = "/opt/lockstep/engines/current/vllm"
    assert host.root(f"cat {vllm}/src/vllm_fork/_C.abi3.so") == f"compiled from {pin.commit}\n"
    stored_sum = host.root(f"sha256sum /opt/lockstep/engines/store/wheels/{pin.file}").split()[0]
    assert stored_sum == pin.sha256


def test_no_model_is_hot_or_starts_at_boot(host: Host) -> None:
    assert host.active() == set()
    links = host.root("find /etc/systemd -path '*.wants/*' -o -path '*.requires/*'")
    assert [line for line in links.splitlines() if re.search("vllm|sglang|tiny", line)] == []
    assert host.show("open-webui.service", "UnitFileState") == "enabled"


def test_no_container_restarts_itself_or_is_updated_behind_the_units(host: Host) -> None:
    output = host.root(
        "docker inspect --format '{{.HostConfig.RestartPolicy.Name}} {{.HostConfig.AutoRemove}} "
        '{{index .Config.Labels "com.centurylinklabs.watchtower.enable"}}\' '
        "$(docker ps -q)"
    )
    assert output.split("\n")[:-1] == ["no true false"]


def test_the_gateway_answers_before_any_model_is_hot(host: Host) -> None:
    assert host.run("curl -fsS --max-time 20 http://127.0.0.1:8090/health").code == 0
    models = host.get("http://127.0.0.1:8090/v1/models")["data"]
    assert [model["id"] for model in models] == ["qwen", "mistral", "tiny"]
    assert {model["lockstep"]["state"] for model in models} == {"cold"}
    assert host.root("stat -c '%a %U:%G' /etc/lockstep/gateway").strip() == (
        "750 root:lockstep-gateway"
    )


def test_the_engine_runs_as_a_system_account(host: Host) -> None:
    """logind removes the semaphores of a regular user's engine when that user logs out."""
    user = host.show("vllm.service", "User")
    lowest = host.root("sed -n 's/^UID_MIN[[:space:]]*//p' /etc/login.defs").strip()
    assert int(host.root(f"id -u {user}")) < int(lowest)


def test_what_is_started_over_ssh_can_be_ended_before_an_engine(host: Host) -> None:
    # A lab may not lower a score; a session has what systemd gives sshd all the same.
    assert host.show("ssh.service", "OOMScoreAdjust") == "0"
    assert host.run("cat /proc/self/oom_score_adj").out == "0\n"


@pytest.fixture(scope="module")
def again(
    stack: Stack, first: DeployResult
) -> tuple[dict[str, set[str]], DeployResult, DeployResult]:
    """A second deploy and a dry run, and the changes of each host after both.

    A container that came and went is a change, too.
    """
    earlier_states = {host.name: state(host) for host in stack.hosts}
    since = {host.name: host.root("date +%s.%N").strip() for host in stack.hosts}
    second, dry = stack.good_deploy("-y", "--debug"), stack.good_deploy("--dry")
    changes = {}
    for host in stack.hosts:
        events = host.root(
            f'docker events --since {since[host.name]} --until "$(date +%s.%N)"'
            " --filter event=create --format '{{.Actor.Attributes.image}}'"
        )
        changes[host.name] = state(host) ^ earlier_states[host.name] | set(events.splitlines())
    return changes, second, dry


def test_a_run_that_changes_nothing_runs_few_commands_on_each_host(
    again: tuple[dict[str, set[str]], DeployResult, DeployResult], deployed_stack: Stack
) -> None:
    _, second, _ = again
    for host in deployed_stack.hosts:
        assert 1 <= second.output.count(f"Running command on {host.name}:") <= 3


def test_a_second_run_and_a_dry_one_change_nothing(
    again: tuple[dict[str, set[str]], DeployResult, DeployResult],
) -> None:
    differences, second, dry = again
    assert differences == {"spark1": set(), "spark2": set()}
    assert second.changed_operations == dry.changed_operations == set()
