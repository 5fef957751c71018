"""A deploy that another program started, and that starts programs itself."""

import os
import subprocess
import sys

from lockstep.onhost.core.event_lines import READER

#: As pyinfra runs: gevent's subprocess has a child wait at the standard input that it is given.
_PROGRAM = """\
from gevent import monkey
monkey.patch_all()
import subprocess
import gevent
from lockstep.deploy.events import Ready
from lockstep.tasks.run import events_for_parent
events_for_parent.begin_sending()
gevent.sleep(0)
print(repr(subprocess.run(["cat"], capture_output=True).stdout), flush=True)
print(events_for_parent.ask_parent_program(Ready()), flush=True)
"""


def test_a_program_that_a_deploy_starts_neither_takes_nor_stops_the_answers() -> None:
    pipe = subprocess.PIPE
    deploy = subprocess.Popen(
        [sys.executable, "-c", _PROGRAM],
        env={**os.environ, READER: "1"},
        stdin=pipe,
        stdout=pipe,
        text=True,
    )
    assert deploy.stdin and deploy.stdout
    with deploy:
        try:
            assert deploy.stdout.readline() == "b''\n"
            print("true", file=deploy.stdin, flush=True)
            assert deploy.wait(120) == 0
            assert deploy.stdout.read().splitlines()[-1] == "True"
        finally:
            deploy.kill()
