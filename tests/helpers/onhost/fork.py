"""Programs as forks of the test's process, which has imported most of their modules already.

Imports take a program much more processor time than the work in a test.
"""

import contextlib
import ctypes
import os
import random
import signal
import subprocess
import sys
import threading
import traceback
from pathlib import Path

_PR_SET_PDEATHSIG = 1


class Fork(subprocess.Popen):
    """A process that runs a function, which is given in the place of an argument list.

    Its exit code is the function's result, or its argument to `sys.exit`. As with another program,
    no descriptor is inherited but the three standard ones and `pass_fds`.
    """

    def _execute_child(  # type: ignore[no-untyped-def]
        self, main, executable, preexec_fn, close_fds, pass_fds, cwd, env, startupinfo,
        creationflags, shell, p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite, *_,
    ):  # fmt: skip
        # The death signal comes at the end of the forking thread, so only the main thread sets it.
        with_us = threading.current_thread() is threading.main_thread()
        self.pid = os.fork()
        if not self.pid:
            _run(main, (p2cread, c2pwrite, errwrite), pass_fds, env, with_us)
        self._child_created = True
        self._close_pipe_fds(p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite)


def _run(main, standard, inherited_fds, env, with_us: bool) -> None:
    code: object = 1
    try:
        if with_us:
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        for place, number in enumerate(standard):
            if number != -1:
                os.dup2(number, place)
        # Keep the numbers taken: an object of the test that is freed later closes its own number.
        null_fd = os.open(os.devnull, os.O_RDWR)
        for number in [int(target_path.name) for target_path in Path("/proc/self/fd").iterdir()]:
            if number > 2 and number not in inherited_fds:
                with contextlib.suppress(OSError):
                    os.fstat(number)
                    os.dup2(null_fd, number)
        sys.stdin = open(0, closefd=False)  # noqa: SIM115
        sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
        sys.stderr = open(2, "w", buffering=1, closefd=False)  # noqa: SIM115
        random.seed()
        if env is not None:
            os.environ.clear()
            os.environ.update(env)
        code = main()
    except SystemExit as end:
        code = end.code
    except BaseException:
        traceback.print_exc()
    finally:
        if isinstance(code, str):
            print(code, file=sys.stderr)
        try:
            sys.stdout.flush()
        finally:
            os._exit(code if isinstance(code, int) else int(code is not None))
