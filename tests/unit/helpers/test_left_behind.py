"""A test process that is killed leaves nothing running, whatever it has started."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import left_behind
from lab_servers import until

#: A child, and one in a session of its own whose parent has ended, as a make-believe systemd's.
_STARTS = """\
import subprocess, sys
sys.path.insert(0, sys.argv[1])
import left_behind
with left_behind.end_on_exit():
    sleep = ["sleep", "600"]
    print(subprocess.Popen(sleep, stdout=subprocess.DEVNULL).pid, flush=True)
    orphan = "import subprocess; print(subprocess.Popen(['setsid', *%r], stdout=-3).pid)" % sleep
    subprocess.run([sys.executable, "-IS", "-c", orphan], check=True)
    print("begun", flush=True)
    sys.stdin.read()
"""


def start_test_process() -> tuple[subprocess.Popen[str], list[Path]]:
    """A test process in the middle of a test, and the processes that it has started."""
    helpers = str(Path(left_behind.__file__).parent)
    process = subprocess.Popen(
        [sys.executable, "-IS", "-c", _STARTS, helpers],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    paths = [Path("/proc") / line.strip() for line in iter(process.stdout.readline, "begun\n")]
    assert len(paths) == 2 and all(map(is_running, paths))
    return process, paths


def is_running(process: Path) -> bool:
    """Tell whether a process runs, and is not only waiting for its parent to reap it."""
    try:
        return (process / "stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_what_a_test_process_has_started_ends_with_it_killed_or_not(monkeypatch) -> None:
    process, paths = start_test_process()
    process.kill()
    process.communicate()
    until(lambda: not any(map(is_running, paths)), "nothing is left")
    process, paths = start_test_process()
    process.communicate()
    assert not any(map(is_running, paths))
    monkeypatch.setenv(left_behind.NAME, "mark")
    assert left_behind.NAME not in left_behind.outside()
