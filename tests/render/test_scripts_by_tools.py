"""Scripts, sudoers and configuration files, judged by the programs that will read them."""

import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from example import HOSTS, bound_models, pins
from pair import FILES, plans
from tools import run, write_files

from lockstep.files.managed_file import ManagedFile
from lockstep.inventory.host import HostPlan
from lockstep.inventory.settings import Firewall
from lockstep.onhost.engines import ENGINES
from lockstep.recipes.command import serve_command
from lockstep.system.firewall import RULES, firewall_files
from lockstep.system.netplan import NETPLAN


def checked_by(check: str) -> list[str]:
    return [
        f"{host}:{path}"
        for host, files in FILES.items()
        for path, file in files.items()
        if file.check == check
    ]


def written_file(name: str, folder: Path) -> Path:
    """A file of "HOST:PATH", written below a folder."""
    host, path = name.split(":")
    return write_files(folder, {path: FILES[host][path].text})[0]


@pytest.mark.parametrize("name", checked_by("shell"))
def test_shellcheck_has_nothing_to_say(name: str, tmp_path: Path) -> None:
    assert run(["shellcheck", "--severity=style", written_file(name, tmp_path)]).stdout == ""


LAB = Path(__file__).parents[2] / "lab"
LAB_SCRIPTS = [LAB / "bootstrap", LAB / "guest/customize", *sorted(LAB.glob("carry/*.sh"))]


@pytest.mark.parametrize("script", LAB_SCRIPTS, ids=lambda script: script.name)
def test_shellcheck_has_nothing_to_say_of_the_labs_scripts(script: Path) -> None:
    assert run(["shellcheck", "--severity=style", script]).stdout == ""


@pytest.mark.parametrize("name", checked_by("sudoers"))
def test_sudo_accepts_the_operators_rules(name: str, tmp_path: Path) -> None:
    result = run(["visudo", "-c", "-f", written_file(name, tmp_path)])
    assert result.returncode == 0, result.stdout + result.stderr


# As needrestart reads a file of conf.d, and asks it about each service that uses an old library.
NEEDRESTART = """
use strict; our %nrconf = (override_rc => {q(^dbus) => 0});
my $text = do { local $/; open my $file, '<', shift; <$file> }; eval $text; die $@ if $@;
for my $rc (@ARGV) {
  print "$rc\n" if grep { $rc =~ /$_/ } keys %{$nrconf{override_rc}};
}
"""


def test_needrestart_leaves_what_serves_alone(tmp_path: Path) -> None:
    file = written_file("spark:/etc/needrestart/conf.d/lockstep.conf", tmp_path)
    names = [Path(path).name for path, file in FILES["spark"].items() if file.check == "unit"]
    kept_services = [name for name in names if name.endswith(".service")]
    assert len(kept_services) > 5
    kept_services += [
        f"{name}.service" for name in ("docker", "containerd", "lockstep-tls", "dbus")
    ]
    other_services = ["ssh.service", "my-lockstep-tool.service", "nginx.service", "docker.services"]
    answer = run(["perl", "-e", NEEDRESTART, file, *kept_services, *other_services])
    assert answer.stdout.split() == kept_services, answer.stderr


def test_logrotate_accepts_its_file(tmp_path: Path) -> None:
    file = written_file("spark:/etc/logrotate.d/lockstep", tmp_path)
    result = run(["logrotate", "--debug", "--state", tmp_path / "state", file])
    assert result.returncode == 0 and "error:" not in result.stderr, result.stderr


def launch_words(file: ManagedFile, folder: Path, environment: dict[str, str]) -> list[str]:
    """The words that a launcher's last `exec` gets, with stand-ins for docker and switch.sh."""
    stand_in = folder / "stand-in"
    stand_in.write_text('#!/bin/sh\nprintf "%s\\0" "$@"\n', encoding="utf-8")
    stand_in.chmod(0o755)
    text = file.text.replace("/usr/bin/docker", str(stand_in))
    text = text.replace("/data/scripts/llm/switch.sh", str(stand_in))
    script = folder / "launch.sh"
    script.write_text(text, encoding="utf-8")
    result = run(["sh", script], environment)
    assert result.returncode == 0, result.stderr
    return result.stdout.split("\0")[:-1]


@pytest.mark.parametrize("name", ["qwen", "mistral"])
def test_a_launcher_under_its_unit_runs_exactly_what_the_recipe_says(name, tmp_path) -> None:
    settings = HOSTS["spark"]
    model = next(item for item in bound_models(settings) if item.name == name)
    record = pins(settings, bound_models(settings))
    path = model.data.launcher or f"/data/scripts/llm/{model.data.unit}-launch.sh"
    environment = {"LOCKSTEP_MODEL": name, "INVOCATION_ID": "1"}
    words = launch_words(FILES["spark"][path], tmp_path, environment)
    # Docker's client, which the lab's hosts have anyway, understands every option.
    if shutil.which("docker"):
        no_daemon = {"DOCKER_HOST": "unix:///nonexistent/docker.sock"}
        assert "connect to the docker daemon" in run(["docker", *words], no_daemon).stderr.lower()
    image = next(index for index, word in enumerate(words) if "@sha256:" in word)
    assert words[:4] == ["run", "--rm", "--init", "--name"]
    overrides: dict[str, object] = dict(model.overrides(model.recipe))
    checkpoint = record.checkpoints[model.recipe.model]
    if model.recipe.engine is ENGINES["sglang"]:
        folder = f"models--{model.recipe.model.replace('/', '--')}/snapshots/{checkpoint.commit}"
        overrides["model"] = f"/data/models/huggingface/hub/{folder}"
    else:
        overrides["revision"] = checkpoint.commit
    assert model.recipe.lockstep.draft is not None
    overrides["draft_revision"] = record.checkpoints[model.recipe.lockstep.draft.model].commit
    expected_words = serve_command(model.recipe, overrides=overrides)
    assert tuple(words[image + 1 :]) == expected_words


@pytest.mark.parametrize("environment", [{}, {"LOCKSTEP_MODEL": "qwen"}, {"INVOCATION_ID": "1"}])
def test_a_launcher_run_by_hand_switches_and_starts_nothing(environment, tmp_path) -> None:
    file = FILES["spark"]["/data/scripts/vllm/qwen36-launch.sh"]
    assert launch_words(file, tmp_path, environment) == ["qwen"]


def test_netplan_makes_both_interfaces_large_frames_and_networks_of_their_own(tmp_path) -> None:
    path = written_file(f"member:{NETPLAN}", tmp_path)
    path.chmod(0o600)
    result = run(["netplan", "generate", "--root-dir", str(tmp_path)])
    assert (result.returncode, result.stdout + result.stderr) == (0, "")
    networks = "".join(
        path.read_text()
        for path in sorted((tmp_path / "run/systemd/network").glob("*netplan*.network"))
    )
    assert re.findall(r"^(?:Address|MTUBytes)=(.*)$", networks, re.MULTILINE) == [
        *("9000", "10.77.1.11/24", "9000", "10.77.0.11/24")
    ]
    assert networks.count("RequiredForOnline=no") == 2


ALL = Firewall(
    ssh_ports=(22, 2222),
    open=("tcp/3389", "udp/51820"),
    peers=("10.9.0.0/24", "10.9.0.7", "192.168.7.3", "fd00::/64"),
)
PLANS = [*(HostPlan(name, host, bound_models(host)) for name, host in HOSTS.items()), *plans()]


@pytest.mark.parametrize("plan", PLANS, ids=lambda plan: plan.name)
@pytest.mark.parametrize("firewall", [Firewall(), ALL], ids=["default", "all"])
def test_nftables_takes_the_rules_and_lists_the_same_after_a_second_load(plan, firewall, tmp_path):
    plan = replace(plan, settings=replace(plan.settings, firewall=firewall))
    rules = tmp_path / "firewall.nft"
    rules.write_text(next(file.text for file in firewall_files(plan) if file.path == RULES))
    load = f"nft -f {rules} && nft list table inet lockstep"
    result = run(["unshare", "--net", "sh", "-ec", f"{load}; echo ---; {load}"])
    assert (result.returncode, result.stderr) == (0, "")
    first, second = result.stdout.split("---\n")
    assert first == second
    assert "policy drop" in first and first.count("chain") == 3
