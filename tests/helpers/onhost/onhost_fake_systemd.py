"""A make-believe systemd: unit states are dicts in files of $FAKE_SYSTEMD, jobs are real processes.

onhost_fakes.FakeSystemd names it systemctl, systemd-run, journalctl and sudo for the programs that
a test starts, and answers a test's own process without another one. What few calls need is
imported late.
"""

import os
import sys
import time
from _thread import get_ident
from contextvars import ContextVar

#: Whose thread asks, if this process is of several hosts (`a_process.Process`).
PROCESS = ContextVar("PROCESS", default=None)
#: The programs' clock, where it can be imported.
clock = None

#: Argument list that starts a program → its `main` in this process, which may be forked instead.
HERE = {}
NOT_FOUND = {"LoadState": "not-found", "ActiveState": "inactive", "SubState": "dead"}


def shown(fields):
    """What `systemctl show` prints of these."""
    return "".join(f"{key}={value}\n" for key, value in fields.items())


def write(folder, name, state):
    """Keep a unit's state."""
    # Tests write it from several threads as well.
    new = f"{folder}/{name}.{os.getpid()}.{get_ident()}.new"
    with open(new, "w") as file:
        file.write(repr(state))
    os.rename(new, f"{folder}/{name}.state")


def text_of(path):
    with open(path) as file:
        return file.read()


def read(folder, name):
    """A unit's state. Every other way to write and read a dict takes an import."""
    return eval(text_of(f"{folder}/{name}.state"))


def folder():
    """Where the units are that this process asks about."""
    mine = PROCESS.get()
    return mine.systemd if mine else os.environ["FAKE_SYSTEMD"]


def load(name):
    try:
        return read(folder(), name)
    except FileNotFoundError:
        return dict(NOT_FOUND)


def set_state(name, active, sub, **more):
    state = {**load(name), "ActiveState": active, "SubState": sub, **more}
    write(folder(), name, {**state, "StateChangeTimestamp": f"@{int(time.time())}"})


def take_time(words):
    """Whether a call is a start that ends later than it begins."""
    return words[0] == "start" and any("on_start" in load(name) for name in words[1:])


def start(name, err):
    state = load(name)
    if state["LoadState"] != "loaded":
        sys.exit(f"Unit {name} not found.")
    set_state(name, "activating", "start")
    if "on_start" in state and stopped_meanwhile(name, state["on_start"]):
        print(f"Job for {name} canceled.", file=err)
        return 1
    if "starts_with" in state:
        path, text = state["starts_with"]
        state["start_ok"] = text in text_of(path)
    if state.get("killed_whole"):
        set_state(name, "activating", "auto-restart", ExecMainCode="2", ExecMainStatus="9")
        return 0
    if state.get("start_ok", True):
        set_state(name, "active", "running", Result="success")
        return 0
    failed = (
        ("failed", "failed") if not state.get("restarts_itself") else ("activating", "auto-restart")
    )
    set_state(name, *failed, Result="exit-code", ExecMainCode="1", ExecMainStatus="3")
    print(f"Job for {name} failed.", file=err)
    return 1


def stopped_meanwhile(name, part):
    """Run a part of the start, or let it take so many seconds; a stop ends it, as systemd does."""
    import subprocess

    until, process = None, None
    if isinstance(part, list):
        process = subprocess.Popen(part)
    else:
        until = clock.now() + part
    try:
        while process.poll() is None if process else clock.now() < until:
            if load(name)["ActiveState"] == "inactive":
                return True
            clock.sleep(0.02)
    finally:
        if process:
            process.kill()
            process.wait()
    return False


def stop(name):
    state = load(name)
    if "stop_fails" in state:
        sys.exit(state["stop_fails"])
    if state.get("transient"):
        os.unlink(f"{folder()}/{name}.state")
    elif state["LoadState"] == "loaded":
        set_state(name, "inactive", "dead")


def systemctl(argv, out, err):
    verb, *rest = argv
    names = [name for name in rest if not name.startswith("-")]
    if verb == "show":
        print("\n".join(shown({"Id": name, **load(name)}) for name in names), end="", file=out)
        return 0
    if verb == "list-units":
        import fnmatch

        for file in sorted(fnmatch.filter(os.listdir(folder()), f"{names[0]}.state")):
            unit = file.removesuffix(".state")
            state = load(unit)
            print(unit, state["LoadState"], state["ActiveState"], state["SubState"], file=out)
        return 0
    if verb == "start":
        return max(start(name, err) for name in names)
    for name in names:
        if verb == "stop" or load(name)["ActiveState"] == "failed":
            stop(name)
    return 0


def run_work(work, **streams):
    """Run a program to its end; its exit code."""
    import subprocess

    streams["stdin"] = subprocess.DEVNULL
    start = next((each for each in HERE if tuple(work[: len(each)]) == each), None)
    if HERE and work[0] == "/bin/sh":
        # What finishes a switch that was cut off: its shell decides whether that is run.
        asked = [*work[:4], "sh", "-c", "exit 99"]
        code = subprocess.run(asked, **streams).returncode
        return run_work(work[4:], **streams) if code == 99 else code
    if start and (mine := PROCESS.get()):
        PROCESS.set(mine.another(streams["stdout"]))
        return HERE[start](work[len(start) :])
    if start:
        from fork import Fork

        return Fork(lambda: HERE[start](work[len(start) :]), **streams).wait()
    return subprocess.run(work, **streams).returncode


def forked(do):
    """Have something done by a process that nobody waits for."""
    if os.fork():
        return
    os.setsid()
    # Whoever waits for the end of our output must not wait for the work.
    for descriptor in (1, 2):
        os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)
    do()
    os._exit(0)


def threaded(do):
    """The same where this process is of several hosts."""
    import threading

    threading.Thread(target=do, daemon=True).start()


def systemd_run(argv, out, err):
    at = argv.index("--")
    options, work = argv[:at], argv[at + 1 :]
    if "--wait" in options:
        return run_work(work)
    values = dict(option.partition("=")[::2] for option in options)
    properties = dict(o.split("=", 2)[1:] for o in options if o.startswith("--property="))
    name = values["--unit"]
    if load(name)["LoadState"] == "loaded":
        sys.exit(f"Failed to start transient service unit: Unit {name} was already loaded")
    state = {"LoadState": "loaded", "transient": True, "Description": values["--description"]}
    write(folder(), name, {**state, "ActiveState": "active", "SubState": "running"})
    begin = threaded if PROCESS.get() else forked
    begin(lambda: run_unit(name, work, properties))
    return 0


def run_unit(name, work, properties):
    """Run a transient unit to its end."""
    import shlex

    log = properties.get("StandardOutput", "append:/dev/null").removeprefix("append:")
    with open(log, "a") as stream:
        code = run_work(work, stdout=stream, stderr=stream)
    if load(name)["LoadState"] != "loaded":
        return
    if "ExecStopPost" in properties:
        set_state(name, "deactivating", "stop-post")
        with open(log, "a") as stream:
            after = shlex.split(properties["ExecStopPost"].replace("$$", "$"))
            run_work(after, stdout=stream, stderr=stream)
    if code == 0:
        set_state(name, "active", "exited", Result="success", ExecMainCode="1", ExecMainStatus="0")
    else:
        how = ("1", code) if code > 0 else ("2", -code)
        set_state(
            name,
            "failed",
            "failed",
            Result="exit-code" if code > 0 else "signal",
            ExecMainCode=how[0],
            ExecMainStatus=str(how[1]),
        )


def journalctl(argv, out, err):
    synced = f"{folder()}/synced"
    if "--sync" in argv:
        open(synced, "a").close()
        return 0
    # Of no unit: what the kernel said.
    unit = next((o.partition("=")[2] for o in argv if o.startswith("--unit=")), "kernel")
    state = load(unit)
    lines = state.get("journal", []) + (state.get("late", []) if os.path.exists(synced) else [])
    print("\n".join(lines), flush=True, file=out)
    if "--follow" in argv:
        time.sleep(60)
    return 0


def sudo(argv, out, err):
    allowed = os.path.exists(f"{folder()}/sudo-allows")
    if "-l" not in argv:
        print("sudo runs", *argv[2:], file=out)
    elif not allowed:
        print("sudo: a password is required", file=err)
    return 0 if allowed else 1


PROGRAMS = {
    "systemctl": systemctl,
    "systemd-run": systemd_run,
    "journalctl": journalctl,
    "sudo": sudo,
}


def main(name, argv, out, err):
    """Do what `name` is asked for; its exit code, or SystemExit with what it says as it refuses."""
    if name != "journalctl" and argv[0] != "show":
        with open(f"{folder()}/calls", "a") as calls:
            calls.write(" ".join([name, *argv]) + "\n")
    return PROGRAMS[name](argv, out, err)
