"""The first deploy of two wiped hosts, which are the same, and the second, which does nothing."""

import re
from collections import Counter

from copies import hashes, nothing_is_left
from stack import state

from lockstep.lock import lockfile

#: Server → the least that is fetched from it, bytes. Of packages those of the engine alone count:
#: apt's, uv and our tools are what each host fetches for itself.
LEAST = {"hub": 50_000_000, "registry": 20_000_000, "git": 1_000, "web": 150_000_000}
ENGINE = ("/torch/torch/", "/flashinfer/", "/simple/transformers/")


def test_what_is_not_locked_is_resolved_once_and_written_to_the_lock(deployed_stack, first):
    assert first.output.count("Resolving what lab.lock.yaml") == 1
    assert " ".join(first.output.split()).count("Note: lab.lock.yaml has new entries") == 1
    record = deployed_stack.lock.read_text(encoding="utf-8")
    assert re.search(r"vllm\.git: \{branch: fix_mistral_parsing, commit: '?[0-9a-f]{40}", record)
    pins = lockfile.load(deployed_stack.lock)
    assert pins.precompiled and len(pins.images) == 3


def test_the_forks_compiled_parts_are_those_of_the_lock(deployed_stack, host):
    [pin] = lockfile.load(deployed_stack.lock).precompiled.values()
    vllm = "/opt/lockstep/engines/current/vllm"
    assert host.root(f"cat {vllm}/src/vllm_fork/_C.abi3.so") == f"compiled from {pin.commit}\n"
    stored_sum = host.root(f"sha256sum /opt/lockstep/engines/store/wheels/{pin.file}").split()[0]
    assert stored_sum == pin.sha256


def test_no_model_is_hot_and_nothing_starts_a_model_or_a_container_behind_the_units(host):
    assert host.active() == set()
    links = host.root("find /etc/systemd -path '*.wants/*' -o -path '*.requires/*'")
    assert [line for line in links.splitlines() if re.search("vllm|sglang|tiny", line)] == []
    assert host.show("open-webui.service", "UnitFileState") == "enabled"
    output = host.root(
        "docker inspect --format '{{.HostConfig.RestartPolicy.Name}} {{.HostConfig.AutoRemove}} "
        '{{index .Config.Labels "com.centurylinklabs.watchtower.enable"}}\' '
        "$(docker ps -q)"
    )
    assert output.splitlines() == ["no true false"]


def test_the_gateway_answers_before_any_model_is_hot(host):
    assert host.run("curl -fsS --max-time 20 http://127.0.0.1:8090/health").code == 0
    models = host.get("http://127.0.0.1:8090/v1/models")["data"]
    assert [model["id"] for model in models] == ["qwen", "mistral", "tiny"]
    assert {model["lockstep"]["state"] for model in models} == {"cold"}
    assert host.root("stat -c '%a %U:%G' /etc/lockstep/gateway").strip() == (
        "750 root:lockstep-gateway"
    )


def test_what_no_host_had_was_downloaded_once_and_copied(deployed_stack, first):
    first_host, two = deployed_stack.hosts
    for service, least in LEAST.items():
        fetched_bytes = Counter()
        for request in deployed_stack.requests(service):
            is_counted = service != "web" or request.path.startswith(ENGINE)
            if is_counted and request.method != "HEAD":
                fetched_bytes[request.client] += request.body_bytes
        assert fetched_bytes[first_host.address] > least, service
        assert fetched_bytes[two.address] == 0, service
    assert re.search(r"\[spark2\] engine, vllm: 4\d\d\.\d MB copied from spark1", first.output)
    assert re.search(r"\[spark2\] weights: [4-9]\d\.\d MB copied from spark1", first.output)
    assert re.search(r"\[spark2\] image \S+: 2\d\.\d MB copied from spark1", first.output)
    assert hashes(first_host) == hashes(two)
    list_command = "docker images --digests --format '{{.Repository}}@{{.Digest}} {{.ID}}' | sort"
    assert first_host.root(list_command) == two.root(list_command) != ""
    nothing_is_left(deployed_stack)


def test_two_freshly_deployed_hosts_have_no_drift(deployed_stack):
    result = deployed_stack.diff()
    assert result.code == 0, result.text
    assert result.out == "No drift: 2 hosts as inventory and record ask and as each other.\n"


def test_a_second_run_and_a_dry_one_change_nothing_with_few_commands_on_each_host(deployed_stack):
    hosts = deployed_stack.hosts
    earlier_states = [state(host) for host in hosts]
    since = [host.root("date +%s.%N").strip() for host in hosts]
    second, dry = deployed_stack.good_deploy("-y", "--debug"), deployed_stack.good_deploy("--dry")
    changes = [state(host) ^ was for host, was in zip(hosts, earlier_states, strict=True)]
    assert changes == [set(), set()]
    assert second.changed_operations == dry.changed_operations == set()
    for host, began in zip(hosts, since, strict=True):
        assert 1 <= second.output.count(f"Running command on {host.name}:") <= 3
        # No container came and went either.
        times = f'--since {began} --until "$(date +%s.%N)"'
        assert host.root(f"docker events {times} --filter event=create") == ""
