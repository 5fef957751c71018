"""The units, judged by systemd itself."""

import re
from pathlib import Path

import pytest
from pair import FILES, rank_files
from tools import run, write_files

from lockstep.files import systemd_quoting

EXECUTABLES = (
    "/usr/bin/env",
    "/usr/bin/python3",
    "/usr/bin/docker",
    "/usr/bin/nvidia-smi",
    "/usr/bin/curl",
    "/usr/local/lib/lockstep/environments/tools/bin/python",
    "/opt/lockstep/engines/current/venv/bin/vllm",
)
# systemd-analyze wants them, whatever the units are.
STAND_INS = {
    "/etc/systemd/system/docker.service": "[Service]\nExecStart=/usr/bin/docker\n",
    **{
        f"/etc/systemd/system/{name}.target": "[Unit]\nDescription=Stand-in\n"
        for name in ("basic", "multi-user", "network-online", "shutdown", "sockets", "sysinit")
    },
}


def root(folder: Path, files: dict[str, str]) -> Path:
    """A host's root with its units and stand-ins for the programs that they start."""
    for path in write_files(folder, dict.fromkeys(EXECUTABLES, "#!/bin/sh\n") | STAND_INS | files):
        path.chmod(0o755 if path.read_text(encoding="utf-8").startswith("#!") else 0o644)
    return folder


@pytest.mark.parametrize(
    "every", [*FILES.values(), rank_files(1)], ids=["spark", "member", "rank 1"]
)
def test_systemd_accepts_every_unit_and_drop_in(every, tmp_path: Path) -> None:
    checked_kinds = {"unit", "shell", None}
    files = {path: file.text for path, file in every.items() if file.check in checked_kinds}
    units = [Path(path).name for path in files if path.endswith((".service", ".socket", ".timer"))]
    result = run(
        ["systemd-analyze", "verify", "--man=no", f"--root={root(tmp_path, files)}", *units]
    )
    assert (result.stdout, result.stderr, result.returncode) == ("", "", 0)


def directives(text: str, name: str) -> list[str]:
    """All words of all lines NAME=… of a unit."""
    lines = re.findall(rf"^{name}=(.*)$", text, re.MULTILINE)
    return [word for line in lines for word in line.split()]


#: Unit → text of the units that start an engine.
MODELS = {
    Path(path).name: file.text
    for path, file in FILES["spark"].items()
    if file.check == "unit" and file.stage == "services"
}


def test_every_model_unit_stops_every_other_one_and_waits_for_it() -> None:
    assert len(MODELS) == 4
    for name, text in MODELS.items():
        assert set(directives(text, "Conflicts")) == set(MODELS) - {name}
        for other_unit in set(MODELS) - {name}:
            # On exactly one side: on both it would be a circle when all stop at once.
            is_after = other_unit in directives(text, "After")
            is_before = name in directives(MODELS[other_unit], "After")
            assert is_after != is_before, (name, other_unit)


def test_failures_of_an_engine_as_slow_as_they_can_be_still_meet_the_limit() -> None:
    for name, text in MODELS.items():
        burst, interval, start = (
            int(directives(text, key)[0])
            for key in ("StartLimitBurst", "StartLimitIntervalSec", "TimeoutStartSec")
        )
        assert burst <= 5 and interval > burst * start, name


def test_an_engine_is_the_first_that_short_memory_ends_in_a_container_or_not() -> None:
    """A unit's own value reaches `docker run`, not the container that Docker starts for it."""
    for name, text in MODELS.items():
        assert int(directives(text, "OOMScoreAdjust")[0]) >= 500, name
    starts = [file.text.split() for file in FILES["spark"].values() if "docker run" in file.text]
    scores = [
        int(words[words.index("--oom-score-adj") + 1]) for words in starts if "--gpus" in words
    ]
    assert scores and min(scores) >= 500


def test_only_what_starts_or_kills_containers_reaches_docker() -> None:
    reasons = ("docker run", "SupplementaryGroups=docker", " memory-minimum")
    for path, file in FILES["spark"].items():
        if path.endswith(".service"):
            starts = any(reason in file.text for reason in reasons)
            is_shut = "-/run/docker.sock" in directives(file.text, "InaccessiblePaths")
            assert is_shut != starts, path


def test_a_container_has_no_capability_no_socket_and_no_way_to_the_weights_but_reading() -> None:
    for file in FILES["spark"].values():
        if "docker run" not in file.text or file.check not in ("unit", "shell"):
            continue
        words = file.text.replace("\\\n", " ").split()
        assert words[words.index("--cap-drop") + 1] == "ALL", file.path
        assert words[words.index("--security-opt") + 1] == "no-new-privileges", file.path
        assert not {"--privileged", "--cap-add", "--device", "--pid", "--volume", "-v"} & set(words)
        assert "docker.sock" not in file.text, file.path
        mounts = [words[at + 1] for at, word in enumerate(words) if word == "--mount"]
        assert mounts, file.path
        for mount in mounts:
            assert mount.startswith("type=volume,") or mount.endswith(",readonly"), file.path
        # It leaves nothing behind, and docker alone neither starts, fetches nor updates it.
        for option in ("--rm", "--restart no", "--pull never", "watchtower.enable=false"):
            assert option in file.text, file.path


def test_systemd_reads_back_exactly_what_was_quoted(tmp_path: Path) -> None:
    argument = value = """ä "b" 'c' $HOME ${x} 50% %h \\ \\n ; # @-+!"""
    unit = (
        f"[Service]\nEnvironment={systemd_quoting.assignment('NAME', value)}\n"
        f"ExecStart=/usr/bin/docker {systemd_quoting.quoted_argument(argument)} last\n"
    )
    folder = root(tmp_path, {"/etc/systemd/system/x.service": unit})
    dump = run(
        ["systemd-analyze", "verify", "--man=no", f"--root={folder}", "x.service"],
        {"SYSTEMD_LOG_LEVEL": "debug"},
    ).stdout
    command = re.search(r'^\s*Command Line: /usr/bin/docker "(.*)" last$', dump, re.MULTILINE)
    variable = re.search(r"^\s*Environment: (.*)$", dump, re.MULTILINE)
    assert command and variable, dump
    assert variable[1] == f"NAME={value}"
    # systemd prints a word quoted; "$$" is its spelling of "$" until the very start of the process.
    assert re.sub(r"\\(.)", r"\1", command[1]).replace("$$", "$") == argument
