"""Scripts, sudoers and configuration files, judged by the programs that will read them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from example import HOSTS, bound, pins, rendered
from tools import run, written

from lockstep.files.managed_file import ManagedFile
from lockstep.onhost.engines import ENGINES
from lockstep.recipes.command import serve_command
from lockstep.units.model_units import webui_command
from lockstep.units.variants import variants

EVERY = [(host, path) for host in HOSTS for path in rendered(host)]


def checked_by(check: str) -> list[tuple[str, str]]:
    return [(host, path) for host, path in EVERY if rendered(host)[path].check == check]


@pytest.mark.parametrize(("host", "path"), checked_by("shell"))
def test_shellcheck_has_nothing_to_say(host: str, path: str, tmp_path: Path) -> None:
    (script,) = written(tmp_path, {path: rendered(host)[path].text})
    assert run(["shellcheck", "--severity=style", script]).stdout == ""
    assert run(["sh", "-n", script]).stderr == ""
    assert run(["bash", "-n", script]).stderr == ""


@pytest.mark.parametrize(("host", "path"), checked_by("sudoers"))
def test_sudo_accepts_the_operators_rules(host: str, path: str, tmp_path: Path) -> None:
    (file,) = written(tmp_path, {path: rendered(host)[path].text})
    result = run(["visudo", "-c", "-f", file])
    assert result.returncode == 0, result.stdout + result.stderr
    broken = rendered(host)[path].text.replace("NOPASSWD:", "NOPASWD:")
    (file,) = written(tmp_path, {"broken": broken})
    assert run(["visudo", "-c", "-f", file]).returncode != 0


# As needrestart reads a file of conf.d, and asks it about each service that uses an old library.
NEEDRESTART = """
use strict; our %nrconf = (override_rc => {q(^dbus) => 0});
my $text = do { local $/; open my $file, '<', shift; <$file> }; eval $text; die $@ if $@;
for my $rc (@ARGV) {
  print "$rc\n" if grep { $rc =~ /$_/ } keys %{$nrconf{override_rc}};
}
"""


@pytest.mark.parametrize("host", HOSTS)
def test_needrestart_leaves_what_serves_alone(host: str, tmp_path: Path) -> None:
    path = "/etc/needrestart/conf.d/lockstep.conf"
    (file,) = written(tmp_path, {path: rendered(host)[path].text})
    checked = run(["perl", "-c", file])
    assert checked.returncode == 0, checked.stderr
    ours = [Path(name).name for name in rendered(host) if rendered(host)[name].check == "unit"]
    kept = [name for name in ours if name.endswith(".service")]
    assert len(kept) > 5
    kept += ["docker.service", "containerd.service", "lockstep-tls.service", "dbus.service"]
    others = ["ssh.service", "my-lockstep-tool.service", "nginx.service", "docker.services"]
    asked = run(["perl", "-e", NEEDRESTART, file, *kept, *others])
    assert asked.stdout.split() == kept, asked.stderr


def test_the_rules_are_whole_commands_of_one_group() -> None:
    lines = rendered("spark")["/etc/sudoers.d/lockstep"].text.splitlines()
    rules = [line.split() for line in lines if not line.startswith("#")]
    start = ["%lockstep-operators", "ALL=(root)", "NOPASSWD:", "/usr/bin/python3"]
    assert all(rule[:4] == start for rule in rules)
    assert all(rule[4:6] == ["/usr/local/lib/lockstep", "switch"] for rule in rules)
    names = ("qwen", "mistral", "mistral-fallback", "mistral-vllm", "none")
    flags = ((), ("--wait",), ("--instead",), ("--dry",))
    allowed = {(name, *flag) for name in names for flag in flags}
    allowed |= {("log", name, *flag) for name in names[:-1] for flag in ((), ("-f",))}
    # No rule without an argument: sudo would then allow any.
    assert {tuple(rule[6:]) for rule in rules} == allowed | {("cancel",)} | {
        ("status", *flag) for flag in ((), ("--json",), ("--follow",))
    }


def test_logrotate_accepts_its_file(tmp_path: Path) -> None:
    (file,) = written(tmp_path, {"x": rendered("spark")["/etc/logrotate.d/lockstep"].text})
    result = run(["logrotate", "--debug", "--state", tmp_path / "state", file])
    assert result.returncode == 0 and "error:" not in result.stderr, result.stderr


def launched(file: ManagedFile, folder: Path, environment: dict[str, str]) -> list[str]:
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


@pytest.mark.parametrize(
    ("host", "name"), [("spark", "qwen"), ("spark", "mistral"), ("site", "qwen")]
)
def test_a_launcher_under_its_unit_runs_exactly_what_the_recipe_says(
    host: str, name: str, tmp_path: Path
) -> None:
    settings = HOSTS[host]
    target = next(item for item in bound(settings) if item.name == name)
    record = pins(settings, bound(settings))
    path = target.data.launcher or f"/data/scripts/llm/{target.data.unit}-launch.sh"
    environment = {"LOCKSTEP_TARGET": name, "INVOCATION_ID": "1"}
    words = launched(rendered(host)[path], tmp_path, environment)
    image = next(index for index, word in enumerate(words) if "@sha256:" in word)
    assert words[:4] == ["run", "--rm", "--init", "--name"]
    overrides: dict[str, object] = dict(target.overrides(target.recipe))
    model = record.models[target.recipe.model]
    if target.recipe.engine is ENGINES["sglang"]:
        folder = f"models--{target.recipe.model.replace('/', '--')}/snapshots/{model.commit}"
        overrides["model"] = f"/data/models/huggingface/hub/{folder}"
    else:
        overrides["revision"] = model.commit
    assert target.recipe.lockstep.draft is not None
    overrides["draft_revision"] = record.models[target.recipe.lockstep.draft.model].commit
    expected = serve_command(target.recipe, overrides=overrides)
    assert tuple(words[image + 1 :]) == expected


@pytest.mark.parametrize("environment", [{}, {"LOCKSTEP_TARGET": "qwen"}, {"INVOCATION_ID": "1"}])
def test_a_launcher_run_by_hand_switches_and_starts_nothing(
    environment: dict[str, str], tmp_path: Path
) -> None:
    file = rendered("spark")["/data/scripts/vllm/qwen36-launch.sh"]
    assert launched(file, tmp_path, environment) == ["qwen"]


def docker_says(words: list[str]) -> str:
    """What the real docker client says to a command line when there is no daemon."""
    docker = shutil.which("docker")
    if docker is None:
        pytest.skip("no docker client here; the lab's hosts have one")
    result = subprocess.run(
        [docker, *words],
        capture_output=True,
        text=True,
        timeout=180,
        env={**os.environ, "DOCKER_HOST": "unix:///nonexistent/docker.sock"},
    )
    return result.stderr


def test_docker_understands_open_webuis_options_before_it_looks_for_the_secrets() -> None:
    settings = HOSTS["spark"]
    known = pins(settings, bound(settings))
    _, *words = webui_command(
        settings, variants(settings, bound(settings), known, engine_id=12 * "0"), known
    )
    assert "/etc/lockstep/secrets/open-webui.env" in docker_says(words)


@pytest.mark.parametrize(
    ("host", "path"),
    [(host, path) for host, path in checked_by("shell") if path.endswith("-launch.sh")],
)
def test_docker_understands_every_option(host: str, path: str, tmp_path: Path) -> None:
    unit_of = {
        target["container"]: name
        for name, target in json.loads(rendered(host)["/etc/lockstep/targets.json"].text)[
            "targets"
        ].items()
    }
    name = next(
        name for unit, name in unit_of.items() if f"--name {unit} " in rendered(host)[path].text
    )
    environment = {"LOCKSTEP_TARGET": name, "INVOCATION_ID": "1"}
    words = launched(rendered(host)[path], tmp_path, environment)
    assert "connect to the docker daemon" in docker_says(words).lower()
    assert "unknown flag" in docker_says([words[0], "--rmm", *words[1:]])
