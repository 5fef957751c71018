"""A make-believe systemd: unit states are dicts in files of $FAKE_SYSTEMD, jobs are real processes.

onhost_fakes.FakeSystemd names it systemctl, systemd-run, journalctl and sudo for the programs that
a test starts. It answers a test's own process without a new process. Modules that few calls need
are imported late.
"""

import os
import sys
import time
from _thread import get_ident
from contextvars import ContextVar

#: The program of this thread, if this process is of several hosts (`a_process.Process`).
PROCESS = ContextVar("PROCESS", default=None)
#: The programs' clock, if it can be imported.
clock = None

#: Argument list that starts a program → its `main` in this process, which may be forked instead.
HERE = {}
NOT_FOUND = {"LoadState": "not-found", "ActiveState": "inactive", "SubState": "dead"}


def property_text(fields):
    """The output of `systemctl show` about a unit; a list has a line for each value."""
    pairs = ((key, value if isinstance(value, list) else [value]) for key, value in fields.items())
    return "".join(f"{key}={value}\n" for key, values in pairs for value in values)


def write(folder, name, state):
    # Tests write it from several threads as well.
    new = f"{folder}/{name}.{os.getpid()}.{get_ident()}.new"
    with open(new, "w") as file:
        file.write(repr(state))
    os.rename(new, f"{folder}/{name}.state")


def text_of(path):
    with open(path) as file:
        return file.read()


def read(folder, name):
    """Read a unit's state. Any other way to write and read a dict costs an import."""
    return eval(text_of(f"{folder}/{name}.state"))


def folder():
    """The folder with the units of the host that this process belongs to."""
    process = PROCESS.get()
    return process.systemd if process else os.environ["FAKE_SYSTEMD"]


def load(name):
    try:
        return read(folder(), name)
    except FileNotFoundError:
        return dict(NOT_FOUND)


def set_state(name, active, sub, **more):
    state = {**load(name), "ActiveState": active, "SubState": sub, **more}
    write(folder(), name, {**state, "StateChangeTimestamp": f"@{int(time.time())}"})


def take_time(words):
    """Tell whether a call is a start that takes time."""
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
    states = ("activating", "auto-restart") if state.get("restarts_itself") else ("failed",) * 2
    set_state(name, *states, Result="exit-code", ExecMainCode="1", ExecMainStatus="3")
    print(f"Job for {name} failed.", file=err)
    return 1


def stopped_meanwhile(name, part):
    """Run a part of the start, or let its seconds pass; a stop ends it, as systemd does."""
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
    verb, *arguments = argv
    names = [name for name in arguments if not name.startswith("-")]
    if verb == "show":
        for name in names:
            if "@." in name:
                text = f"Unit name {name} is neither a valid invocation ID nor unit name."
                print(f"Failed to get properties: {text}", file=err)
                return 1
        keys = next(word for word in arguments if word.startswith("--property="))[11:].split(",")
        # As systemd does: what every unit has comes after what its kind has.
        states = [{**load(name), "Id": name} for name in names]
        blocks = [{key: value for key, value in s.items() if key in keys} for s in states]
        print("\n".join(map(property_text, blocks)), end="", file=out)
        return 0
    if verb == "cat":
        print(load(names[0])["file"], file=out)
        return 0
    if verb.startswith("list-"):
        for unit in matching_units(*(names or "*")):
            if verb != "list-units" or "@." not in unit:
                state = load(unit)
                print(unit, state["LoadState"], state["ActiveState"], state["SubState"], file=out)
        return 0
    if verb == "start":
        return max(start(name, err) for name in names)
    for name in names:
        if verb == "stop" or load(name)["ActiveState"] == "failed":
            stop(name)
    return 0


def matching_units(*patterns):
    """Return the units that have a state, in order, of which a pattern holds."""
    from fnmatch import fnmatch

    units = [f.removesuffix(".state") for f in sorted(os.listdir(folder())) if ".state" in f]
    return [unit for unit in units if any(fnmatch(unit, pattern) for pattern in patterns)]


def run_work(work, **streams):
    """Run a program to its end; returns its exit code."""
    import subprocess

    streams["stdin"] = subprocess.DEVNULL
    start = next((program for program in HERE if tuple(work[: len(program)]) == program), None)
    if HERE and work[0] == "/bin/sh":
        # The clean-up after a switch that was cut off: its shell decides whether it runs.
        command = [*work[:4], "sh", "-c", "exit 99"]
        code = subprocess.run(command, **streams).returncode
        return run_work(work[4:], **streams) if code == 99 else code
    if start and (process := PROCESS.get()):
        PROCESS.set(process.another(streams["stdout"]))
        return HERE[start](work[len(start) :])
    if start:
        from fork import Fork

        return Fork(lambda: HERE[start](work[len(start) :]), **streams).wait()
    return subprocess.run(work, **streams).returncode


def run_in_fork(do):
    """Call `do` in a process that nobody waits for."""
    if os.fork():
        return
    os.setsid()
    # A reader that waits for the end of our output must not wait for the work.
    for descriptor in (1, 2):
        os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)
    do()
    os._exit(0)


def run_in_thread(do):
    """Call `do` as `run_in_fork`, for a process of several hosts."""
    import threading

    threading.Thread(target=do, daemon=True).start()


def systemd_run(argv, out, err):
    if any(word.startswith("--on-active=") for word in argv):
        return 0
    at = argv.index("--")
    options, work = argv[:at], argv[at + 1 :]
    values = dict(option.partition("=")[::2] for option in options)
    properties = dict(o.split("=", 2)[1:] for o in options if o.startswith("--property="))
    name = values["--unit"]
    if load(name)["LoadState"] == "loaded":
        sys.exit(f"Failed to start transient service unit: Unit {name} was already loaded")
    state = {"LoadState": "loaded", "transient": True, "Description": values["--description"]}
    write(folder(), name, {**state, "ActiveState": "active", "SubState": "running"})
    begin = run_in_thread if PROCESS.get() else run_in_fork
    variables = dict(o.split("=", 2)[1:] for o in options if o.startswith("--setenv="))

    def work_of_unit():
        # Threads of one process have one environment.
        os.environ.update({} if PROCESS.get() else variables)
        run_unit(name, work, properties)

    begin(work_of_unit)
    return 0


def run_unit(name, work, properties):
    import shlex

    log = properties.get("StandardOutput", "append:/dev/null").removeprefix("append:")
    with open(log, "a") as stream:
        code = run_work(work, stdout=stream, stderr=stream)
    if load(name)["LoadState"] != "loaded":
        return
    if "ExecStopPost" in properties:
        set_state(name, "deactivating", "stop-post")
        with open(log, "a") as stream:
            stop_command = shlex.split(properties["ExecStopPost"].replace("$$", "$"))
            run_work(stop_command, stdout=stream, stderr=stream)
    if code == 0:
        set_state(name, "active", "exited", Result="success", ExecMainCode="1", ExecMainStatus="0")
    else:
        result, main_code = ("exit-code", "1") if code > 0 else ("signal", "2")
        status = {"ExecMainCode": main_code, "ExecMainStatus": str(abs(code))}
        set_state(name, "failed", "failed", Result=result, **status)


def journalctl(argv, out, err):
    sync_mark = f"{folder()}/synced"
    if "--sync" in argv:
        open(sync_mark, "a").close()
        return 0
    # Without a unit, the kernel's messages.
    unit = next((o.partition("=")[2] for o in argv if o.startswith("--unit=")), "kernel")
    state = load(unit)
    lines = state.get("journal", []) + (state.get("late", []) if os.path.exists(sync_mark) else [])
    print("\n".join(lines), flush=True, file=out)
    if "--follow" in argv:
        time.sleep(60)
    return 0


def sudo(argv, out, err):
    is_allowed = os.path.exists(f"{folder()}/sudo-allows")
    if "-l" not in argv:
        print("sudo runs", *argv[2:], file=out)
    elif not is_allowed:
        print("sudo: a password is required", file=err)
    return 0 if is_allowed else 1


PROGRAMS = {
    "systemctl": systemctl,
    "systemd-run": systemd_run,
    "journalctl": journalctl,
    "sudo": sudo,
}


def main(name, argv, out, err):
    """Do the command `name`; returns its exit code, or raises SystemExit with its refusal."""
    if name != "journalctl" and argv[0] != "show":
        with open(f"{folder()}/calls", "a") as calls:
            calls.write(" ".join([name, *argv]) + "\n")
    return PROGRAMS[name](argv, out, err)
