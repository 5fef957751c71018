"""A deploy that restarts hot models: one host after another.

It rolls back where the new model fails.
"""

import re

import pytest
from earlier_state import EarlierState
from stack import Host

IMAGE = "ghcr.io/spark-arena/dgx-vllm-eugr-nightly"
UNIT = "vllm-qwen36.service"
BEGUN = "/var/lib/lockstep-deploy/begun-journal.json"
ACCEPTED = "/var/lib/lockstep-deploy/accepted.json"
CUT_OFF = "/var/lib/lockstep-deploy/cut-off.json"
OPERATION = "Services | Restart hot models, one host at a time"


def host_hash(host: Host) -> str:
    """Hash of every unit, launcher and configuration, where `current` leads, and what runs."""
    return host.root(
        "find /etc/systemd/system /data/scripts /etc/lockstep/models.json"
        " /etc/lockstep/served-weights.json -type f -exec sha256sum {} + | sort;"
        " readlink /opt/lockstep/engines/current;"
        f" systemctl show -p MainPID -p ActiveEnterTimestampMonotonic {UNIT}"
    )


def version(host: Host) -> str:
    """The version that the hot engine gives itself."""
    return str(host.get("http://127.0.0.1:30001/version")["version"])


@pytest.fixture(scope="module")
def newer(stack):
    """An inventory with another image of qwen."""
    return stack.inventory("newer", models={"qwen": {"image": f"{IMAGE}:2026110101"}})


@pytest.fixture(scope="module")
def hot(stack, first):
    """Make qwen hot on both hosts; undone afterwards."""
    for host in stack.hosts:
        answer = host.switch("qwen")
        assert answer.code == 0, answer.text
    yield stack
    for host in stack.hosts:
        host.switch("none")
        host.root(f"rm -f {ACCEPTED}")
    stack.good_deploy()


@pytest.fixture(scope="module")
def rolled_deploy(hot, newer):
    """The deploy of the newer image."""
    assert [version(host) for host in hot.hosts] == ["0.32.0", "0.32.0"]
    return hot.good_deploy(inventory=newer)


def test_one_host_serves_while_the_other_gets_the_new_image(hot, rolled_deploy):
    assert OPERATION in rolled_deploy.changed_operations
    assert [version(host) for host in hot.hosts] == ["0.31.0", "0.31.0"]
    # All hosts have one clock. A unit is started when its model is ready.
    ready_again_s, stopped_s = (
        host.root(f"journalctl -q -u {UNIT} -g '^{word} ' -n 1 -o short-unix").split()[0]
        for host, word in zip(hot.hosts, ("Started", "Stopping"), strict=True)
    )
    assert float(ready_again_s) <= float(stopped_s)


def test_an_image_that_never_serves_stops_at_the_first_host_which_gets_the_old_one_back(
    hot, rolled_deploy, newer
):
    earlier_hash = host_hash(hot.two)
    units = hot.spark1.root("sha256sum /etc/systemd/system/*.service")
    target_path = hot.inventory("broken", models={"qwen": {"image": f"{IMAGE}:broken"}})
    result = hot.deploy(inventory=target_path)
    assert result.code == 1
    assert host_hash(hot.two) == earlier_hash
    assert hot.spark1.root("sha256sum /etc/systemd/system/*.service") == units
    assert [version(host) for host in hot.hosts] == ["0.31.0", "0.31.0"]
    for host in hot.hosts:
        assert (host.status()["hot"], host.status()["problems"]) == ("qwen", [])
    closing = " ".join(result.closing.split())
    assert f"FAILED spark1: {OPERATION}" in closing
    assert "qwen is hot again, as it was before this deploy" in closing
    assert "Held back: spark2, where vllm-qwen36 runs on" in closing
    # What is on the hosts is what the inventory before asked for: nothing is left to do but to say
    # what to fetch, that more has been resolved since, and that the failure is over.
    assert hot.spark1.show("lockstep-job-rollout.service", "ActiveState") == "failed"
    assert hot.good_deploy(inventory=newer).changed_operations <= {
        "Base | Write folders, programs and settings",
        "Services | Note the generation that begins",
        "Verify | Record this generation",
        "Services | Reload systemd, restart what is outdated",
        "Sharing | End the copying between Sparks",
    }
    for host in hot.hosts:
        assert host.show("lockstep-peer.service", "ActiveState") == "inactive"
    assert hot.spark1.root("systemctl list-units --failed --no-legend --plain 'lockstep-*'") == ""


def test_an_all_or_none_deploy_that_is_killed_is_undone_by_the_hosts_and_then_fetches_nothing(
    hot, rolled_deploy
):
    """Every stage's files come back: the gateway's and the kernel's settings, our own programs."""
    program = "/usr/local/lib/lockstep/lockstep/onhost/core/clock.py"
    for host in hot.hosts:
        host.root(f"echo '# of an earlier version' >> {program}")
    earlier_states = [EarlierState.of(host) for host in hot.hosts]
    request_count = len(list(hot.requests("registry")))
    settings = {"gateway": {"keepalive_s": 14}, "sysctls": {"vm.swappiness": "11"}}
    target_path = hot.inventory("all", rollout="all", **settings)
    killed_deploy = hot.start("-y", inventory=target_path)
    killed_deploy.says(r"Starting operation: Services \| Restart hot models")
    changed_counts = [len(state.differences()) for state in earlier_states]
    killed_deploy.says(r"\[spark1\].*qwen is hot with what was deployed")
    killed_deploy.kill()
    assert all(changed_counts)
    for state in earlier_states:
        state.host.await_end_of_deploy()
        assert state.differences() == []
    assert [version(host) for host in hot.hosts] == ["0.31.0", "0.31.0"]
    for host in hot.hosts:
        assert (host.status()["hot"], host.status()["problems"]) == ("qwen", [])
        assert host.look(f"test -e {BEGUN}").code == 1
    result = hot.good_deploy("-y", inventory=target_path)
    message = "cut off; this host returned to what it was before"
    # The other host's turn may have begun before the kill; then it has returned, too.
    returned_hosts = re.findall(
        rf"\[(\w+)\] the deploy before did not end well: .*{message}", result.output
    )
    assert "spark1" in returned_hosts
    assert [version(host) for host in hot.hosts] == ["0.32.0", "0.32.0"]
    # The next deploy has nothing to say of it.
    assert [host.look(f"test -e {CUT_OFF}").code for host in hot.hosts] == [1, 1]
    assert len(list(hot.requests("registry"))) == request_count


def test_gc_frees_the_images_of_deploys_that_failed_and_keeps_those_of_two_generations(
    hot, rolled_deploy
):
    # An image that came after the newest record may be of a deploy under way, and would stay: here
    # the deploy before has written one.
    running, earlier_images = hot.spark1.show(UNIT, "InvocationID"), images(hot.spark1)
    answer = hot.lockstep("gc", "--yes", "--limit", "spark1")
    assert answer.code == 0, answer.text
    now = images(hot.spark1)
    assert len(earlier_images - now) == 1, "the one that never served"
    assert len(earlier_images & now) == 2, "that of the generation now, and of the one before"
    assert hot.spark1.show(UNIT, "InvocationID") == running


def images(host: Host) -> set[str]:
    """The model's images on a host, by digest; tests before may have left others."""
    output = host.root("docker images --digests --no-trunc --format '{{.Repository}}@{{.Digest}}'")
    return {name for name in output.split() if name.partition("@")[0].endswith(IMAGE)}
