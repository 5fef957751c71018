"""Build the venv engine, one stage a call; each can be cut off at any moment and called again.

usage: engine-build pytorch|vllm|flashinfer|check|activate [SPEC.json]

SPEC.json (default /etc/lockstep/engine.json) names every wheel by its hash, every source tree by
its commit, and the folder of this environment. Nothing uses that folder before `activate` moves the
link `current` to it, and `activate` demands a passed check. Everything is installed from the folder
`store` beside it alone, which is filled first (`build_inputs.py`).

exit codes: 0 done, 1 failed, 2 wrong use
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import subprocess
import sys
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from lockstep.onhost.core import (
    atomic_files,
    errors,
    event_lines,
    file_lock,
    layout,
    passed_engine_checks,
    program_command_lines,
)
from lockstep.onhost.environment import build_inputs, engine_check, uv_cache_failures
from lockstep.onhost.fetch import growth_report

SPEC = Path("/etc/lockstep/engine.json")
FETCHING = ("pytorch", "vllm", "flashinfer")
STAGES = (*FETCHING, "check", "activate")
#: Lines of standard error; uv's reason is among the last, after the output of a failed build.
KEPT = 200
# Source trees that stay where they are.
EDITABLE = ("vllm",)


class CommandFailure(errors.Problem):
    """The failure of a command; `error_text` is the end of its standard error."""

    def __init__(self, message: str, error_text: str) -> None:
        super().__init__(message)
        self.error_text = error_text


class Build:
    """The build of one environment of the engine."""

    def __init__(self, spec: dict[str, Any], stage: str) -> None:
        self.spec = spec
        self.home = Path(spec["home"])
        self.venv = self.home / "venv"
        self.python = self.venv / "bin/python"
        self.record = self.home / "check.json"
        self.mark = self.home / "unfinished"
        self.content = build_inputs.Content(spec, stage, self.home.parent / "store")
        self.environment = {
            **os.environ,
            **spec["proxy"],
            "UV_PYTHON_DOWNLOADS": "never",
            "UV_CACHE_DIR": str(self.home.parent / "uv-cache"),
            "UV_NO_PROGRESS": "1",
            # A git server that fell silent is an error after two minutes, not a hang.
            "GIT_HTTP_LOW_SPEED_LIMIT": "1000",
            "GIT_HTTP_LOW_SPEED_TIME": "120",
        }

    def run_command(self, *argv: str, **environment: str) -> None:
        """Run one command, its output going straight to ours; raise CommandFailure if it fails."""
        event_lines.say("+ " + " ".join(argv[:12]) + (" …" if len(argv) > 12 else ""))
        try:
            with growth_report.report_growth(
                self._progress_folder(argv), on_growth=self.content.show_sign_of_life
            ):
                code, error_text = _run_and_keep_errors(argv, {**self.environment, **environment})
        except OSError as error:
            raise errors.Problem(f"{argv[0]}: {error.strerror}") from error
        if code != 0:
            raise CommandFailure(f"{Path(argv[0]).name} {argv[1]} ended with {code}", error_text)

    def _progress_folder(self, argv: tuple[str, ...]) -> Path:
        """Return the folder whose growth shows the progress of a command."""
        checkout = argv[0] == "git" and argv[1] == "-C"
        return Path(argv[2]) if checkout else Path(self.environment["UV_CACHE_DIR"])

    @contextlib.contextmanager
    def hold_unfinished_mark(self) -> Iterator[bool]:
        """Mark the environment as unfinished until the block ends well.

        The mark is locked meanwhile: a mark without a lock was left by a stage that was cut off.
        Yields whether there was one, so that the environment must be made anew.
        """
        with file_lock.open_file(self.mark) as mark:
            fcntl.flock(mark, fcntl.LOCK_EX)
            cut_off = mark.read() != ""
            mark.write("x")
            mark.flush()
            # Earlier findings about the environment no longer hold.
            self.record.unlink(missing_ok=True)
            yield cut_off
            self.mark.unlink()

    def install_stage_wheels(self, stage: str) -> None:
        """Install the wheels of one stage, each by its hash, and nothing else."""
        wheels = [wheel for wheel in self.spec["packages"] if wheel["stage"] == stage]
        if wheels:
            self._remove_doubles(wheels)
            target_path = self._requirements_file(stage, wheels)
            self._install_with_retry("--require-hashes", "--requirement", str(target_path))

    def _install_with_retry(self, *words: str, **environment: str) -> None:
        """Install from the store alone; redo it once if the store or uv's cache was spoiled.

        A build that fails on its own is not redone: it would fail again, and takes minutes.
        """
        argv = ("--no-deps", "--no-index", "--find-links", str(self.content.links_folder), *words)
        try:
            self._pip("install", *argv, **environment)
        except CommandFailure as failure:
            cache = Path(self.environment["UV_CACHE_DIR"])
            stale = uv_cache_failures.is_broken(failure.error_text, cache)
            if stale:
                event_lines.say("once more, without what uv had cached")
                shutil.rmtree(cache, ignore_errors=True)
            if not self.content.replace_spoiled_files() and not stale:
                raise
            self._pip("install", *argv, **environment)

    def _requirements_file(self, name: str, wheels: list[dict[str, Any]]) -> Path:
        """Write a requirements file that accepts these wheels and no other file."""
        path = self.home / f"{name}.txt"
        lines = [f"{w['name']}=={w['version']} --hash=sha256:{w['sha256']}\n" for w in wheels]
        path.write_text("".join(lines), encoding="utf-8")
        return path

    def _pip(self, action: str, *arguments: str, **environment: str) -> None:
        uv = (self.spec["uv"], "pip", action, "--python", str(self.python))
        self._protect_uv_locks()
        self.run_command(*uv, *arguments, **environment)

    def _protect_uv_locks(self) -> None:
        """Keep other accounts from locking uv's locks, which uv makes for everybody (0.13.8).

        uv uses an existing lock as it is.
        """
        cache = Path(self.environment["UV_CACHE_DIR"])
        cache.mkdir(parents=True, exist_ok=True)
        cache.chmod(0o700)
        if self.venv.is_dir():
            file_lock.open_file(self.venv / ".lock").close()

    def pytorch(self) -> None:
        """Make the venv, and install PyTorch's CUDA build from its own index."""
        self.content.bring_wheels()
        with self.hold_unfinished_mark() as cut_off:
            if cut_off or not (self.venv / f"lib/python{self.spec['python']}").is_dir():
                uv = (self.spec["uv"], "venv", "--clear", "--python", self.spec["python"])
                self.run_command(*uv, str(self.venv))
            self.install_stage_wheels("pytorch")

    def vllm(self) -> None:
        """Install the engine and everything that it needs; source trees at their commits."""
        self.content.bring_wheels()
        self.content.bring_trees(self.home, self.run_command)
        with self.hold_unfinished_mark():
            self._remove_foreign()
            self.install_stage_wheels("vllm")
            tools = self._requirements_file("built_with", self.spec["built_with"])
            precompiled_variables = self._precompiled_variables()
            for name, source in self.content.trees.items():
                folder = str(self.home / name)
                how = ("--editable", folder) if name in EDITABLE else (folder,)
                # The lock already has everything that a tree needs, or that builds it.
                build_options = ("--build-constraints", str(tools), *how)
                more = precompiled_variables if name == "vllm" else {}
                self._install_with_retry(*build_options, **source.get("environment", {}), **more)

    def _precompiled_variables(self) -> dict[str, str]:
        """Return variables that name the wheel of compiled parts; the build then asks no server."""
        wheel = self.spec["precompiled"]
        if not wheel:
            return {}
        # The file tells `gc` what the environment is made of.
        self._requirements_file("precompiled", [wheel])
        return {"VLLM_PRECOMPILED_WHEEL_LOCATION": str(self.content.links_folder / wheel["file"])}

    def _remove_foreign(self) -> None:
        """Uninstall packages that somebody else has installed here."""
        foreign = set(self._metadata_folders()) - {
            *self.spec["expected"],
            *build_inputs.TREES,
        }
        if foreign:
            self._pip("uninstall", *sorted(foreign))

    def _remove_doubles(self, wheels: list[dict[str, Any]]) -> None:
        """Forget packages that are there twice; they are then installed anew over their files."""
        metadata_folders = self._metadata_folders()
        for wheel in wheels:
            folders = metadata_folders.get(wheel["name"], [])
            for folder in folders if len(folders) > 1 else ():
                shutil.rmtree(folder)

    def _metadata_folders(self) -> dict[str, list[Path]]:
        """Return the metadata folders of installed packages, by name."""
        folders: dict[str, list[Path]] = {}
        for folder in (self.venv / "lib").glob("python*/site-packages/*.dist-info"):
            name = folder.name.partition("-")[0].lower().replace("_", "-").replace(".", "-")
            folders.setdefault(name, []).append(folder)
        return folders

    def flashinfer(self) -> None:
        """Install FlashInfer's three packages, in versions that agree."""
        if any(package["stage"] == "flashinfer" for package in self.spec["packages"]):
            self.content.bring_wheels()
            with self.hold_unfinished_mark():
                self.install_stage_wheels("flashinfer")

    def check(self) -> None:
        """Run the check in the engine itself, which imports all of it."""
        question = json.dumps({key: self.spec[key] for key in engine_check.ASKED})
        check = program_command_lines.command(
            "engine-check", str(self.record), python=str(self.python)
        )
        self.run_command(*check, LOCKSTEP_ENGINE=question)

    def activate(self) -> None:
        """Point `current` at this environment, in one step."""
        if not passed_engine_checks.passed_question_digests(
            atomic_files.read_json(self.record) or {}
        ):
            raise errors.Problem("this build has not passed its check: run `check` first")
        current = Path(self.spec["current"])
        atomic_files.replace_link(current, self.home.name)
        event_lines.say(f"{current} -> {self.home.name}")


def _run_and_keep_errors(argv: Sequence[str], environment: Mapping[str, str]) -> tuple[int, str]:
    """Run a command; return its exit code and the end of its standard error, which goes to ours."""
    last: deque[str] = deque(maxlen=KEPT)
    with subprocess.Popen(
        argv, env=environment, stderr=subprocess.PIPE, text=True, errors="replace"
    ) as process:
        assert process.stderr is not None
        for line in process.stderr:
            sys.stderr.write(line)
            sys.stderr.flush()
            last.append(line)
    return process.returncode, "".join(last)


def main(argv: list[str], paths: layout.Paths | None = None) -> int:
    """Run the command line; see the module's docstring."""
    if not argv or argv[0] not in STAGES or len(argv) > 2:
        return program_command_lines.print_usage(__doc__)
    path = Path(argv[1]) if len(argv) == 2 else SPEC
    try:
        spec = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise errors.Problem(f"{path}: {error}", errors.EXIT_USAGE) from error
    # For downloads of this process; git and uv get it with their other variables.
    os.environ.update(spec["proxy"])
    build = Build(spec, argv[0])
    build.home.mkdir(parents=True, exist_ok=True)
    sharing = build.content.hold_copy_claim(paths or layout.Paths())
    with sharing if argv[0] in FETCHING else contextlib.nullcontext():
        getattr(build, argv[0])()
    return errors.EXIT_DONE
