"""Scripts, sudoers and configuration files, judged by the programs that will read them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from example import HOSTS, bound_models, pins, rendered_files
from tools import run, write_files

from lockstep.files.managed_file import ManagedFile
from lockstep.onhost.engines import ENGINES
from lockstep.recipes.command import serve_command
from lockstep.units.model_units import webui_command
from lockstep.units.model_variants import variants

EVERY = [(host, path) for host in HOSTS for path in rendered_files(host)]


def checked_by(check: str) -> list[tuple[str, str]]:
    return [(host, path) for host, path in EVERY if rendered_files(host)[path].check == check]


@pytest.mark.parametrize(("host", "path"), checked_by("shell"))
def test_shellcheck_has_nothing_to_say(host: str, path: str, tmp_path: Path) -> None:
    (script,) = write_files(tmp_path, {path: rendered_files(host)[path].text})
    assert run(["shellcheck", "--severity=style", script]).stdout == ""


LAB = Path(__file__).parents[2] / "lab"
LAB_SCRIPTS = [LAB / "bootstrap", LAB / "guest/customize", *sorted(LAB.glob("carry/*.sh"))]


@pytest.mark.parametrize("script", LAB_SCRIPTS, ids=lambda script: script.name)
def test_shellcheck_has_nothing_to_say_of_the_labs_scripts(script: Path) -> None:
    assert run(["shellcheck", "--severity=style", script]).stdout == ""


@pytest.mark.parametrize(("host", "path"), checked_by("sudoers"))
def test_sudo_accepts_the_operators_rules(host: str, path: str, tmp_path: Path) -> None:
    (file,) = write_files(tmp_path, {path: rendered_files(host)[path].text})
    result = run(["visudo", "-c", "-f", file])
    assert result.returncode == 0, result.stdout + result.stderr


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
    (file,) = write_files(tmp_path, {path: rendered_files(host)[path].text})
    result = run(["perl", "-c", file])
    assert result.returncode == 0, result.stderr
    files = rendered_files(host).items()
    unit_names = [Path(name).name for name, file in files if file.check == "unit"]
    kept_services = [name for name in unit_names if name.endswith(".service")]
    assert len(kept_services) > 5
    kept_services += [
        f"{name}.service" for name in ("docker", "containerd", "lockstep-tls", "dbus")
    ]
    other_services = ["ssh.service", "my-lockstep-tool.service", "nginx.service", "docker.services"]
    answer = run(["perl", "-e", NEEDRESTART, file, *kept_services, *other_services])
    assert answer.stdout.split() == kept_services, answer.stderr


def test_the_rules_are_whole_commands_of_one_group() -> None:
    lines = rendered_files("spark")["/etc/sudoers.d/lockstep"].text.splitlines()
    rules = [line.split() for line in lines if not line.startswith(("#", "Defaults"))]
    start = ["%lockstep-operators", "ALL=(root)", "NOPASSWD:", "/usr/bin/python3"]
    assert all(rule[:4] == start for rule in rules)
    assert all(rule[4:6] == ["/usr/local/lib/lockstep", "switch"] for rule in rules)
    names = ("qwen", "mistral", "mistral-fallback", "mistral-vllm", "none")
    flags = ((), ("--wait",), ("--instead",), ("--dry",))
    allowed_words = {(name, *flag) for name in names for flag in flags}
    allowed_words |= {("log", name, *flag) for name in names[:-1] for flag in ((), ("-f",))}
    # No rule without an argument: sudo would then allow any.
    assert {tuple(rule[6:]) for rule in rules} == allowed_words | {("cancel",)} | {
        ("status", *flag) for flag in ((), ("--json",), ("--follow",))
    }


def test_logrotate_accepts_its_file(tmp_path: Path) -> None:
    (file,) = write_files(
        tmp_path, {"x": rendered_files("spark")["/etc/logrotate.d/lockstep"].text}
    )
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


@pytest.mark.parametrize(
    ("host", "name"), [("spark", "qwen"), ("spark", "mistral"), ("site", "qwen")]
)
def test_a_launcher_under_its_unit_runs_exactly_what_the_recipe_says(
    host: str, name: str, tmp_path: Path
) -> None:
    settings = HOSTS[host]
    model = next(item for item in bound_models(settings) if item.name == name)
    record = pins(settings, bound_models(settings))
    path = model.data.launcher or f"/data/scripts/llm/{model.data.unit}-launch.sh"
    environment = {"LOCKSTEP_MODEL": name, "INVOCATION_ID": "1"}
    words = launch_words(rendered_files(host)[path], tmp_path, environment)
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
def test_a_launcher_run_by_hand_switches_and_starts_nothing(
    environment: dict[str, str], tmp_path: Path
) -> None:
    file = rendered_files("spark")["/data/scripts/vllm/qwen36-launch.sh"]
    assert launch_words(file, tmp_path, environment) == ["qwen"]


def docker_says(words: list[str]) -> str:
    """The output of the real docker client for a command line when there is no daemon."""
    docker = shutil.which("docker")
    if docker is None:
        pytest.skip("no docker client here; the lab's hosts have one")
    return run([docker, *words], {"DOCKER_HOST": "unix:///nonexistent/docker.sock"}).stderr


def test_docker_understands_open_webuis_options_before_it_looks_for_the_secrets() -> None:
    settings = HOSTS["spark"]
    models = bound_models(settings)
    lock_pins = pins(settings, models)
    host_variants = variants(settings, models, lock_pins, engine_id=12 * "0")
    _, *words = webui_command(settings, host_variants, lock_pins)
    assert "/etc/lockstep/secrets/open-webui.env" in docker_says(words)


@pytest.mark.parametrize(
    ("host", "path"),
    [(host, path) for host, path in checked_by("shell") if path.endswith("-launch.sh")],
)
def test_docker_understands_every_option(host: str, path: str, tmp_path: Path) -> None:
    files = rendered_files(host)
    models = json.loads(files["/etc/lockstep/models.json"].text)["models"]
    name = next(
        name
        for name, model in models.items()
        if f"--name {model.get('container')} " in files[path].text
    )
    environment = {"LOCKSTEP_MODEL": name, "INVOCATION_ID": "1"}
    words = launch_words(files[path], tmp_path, environment)
    assert "connect to the docker daemon" in docker_says(words).lower()
    assert "unknown flag" in docker_says([words[0], "--rmm", *words[1:]])
