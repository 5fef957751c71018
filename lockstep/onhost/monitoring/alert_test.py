"""Send a test alert to each receiver of this host's Alertmanager, and say whether it was taken.

usage: alert-test HOST PORT RECEIVER=WAY...

Prints JSON: receiver → "" where it took the message, else why not. WAY is how Alertmanager counts
it: webhook or email. The receivers are told one after another, for Alertmanager counts each way
and no single receiver.

exit codes: 0 each took it, 1 one did not, 2 wrong use, or Alertmanager does not answer
"""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime, timedelta

from lockstep.onhost.core import errors, program
from lockstep.onhost.monitoring.alertmanager import Alertmanager, Refused, Unreachable

LIMIT_S = 40.0  #: Seconds in which a receiver must have been told.
_ENDS = timedelta(minutes=2)  # When the test is over, which is told too.


def told(alertmanager: Alertmanager, host: str, receiver: str, way: str) -> str:
    """Tell one receiver; why it did not take the message, "" where it did.

    Refused: Alertmanager does not take the alert. Unreachable: it does not answer.
    """
    made, failed = alertmanager.requests().get(way, (0, 0))
    moment = datetime.now(UTC)
    alertmanager.raise_alert(
        {
            "alertname": "LockstepTest",
            "instance": host,
            "receiver": receiver,
            "severity": "note",
            # Each test is an alert of its own: of one that it knows nothing is told again.
            "test": moment.isoformat(timespec="milliseconds"),
        },
        {
            "summary": f"{host}: This is a test. Nothing is wrong.",
            "description": "Somebody ran `lockstep alert test`. Nothing is to be done.",
        },
        (moment + _ENDS).isoformat(timespec="milliseconds"),
    )
    ends, counted = time.monotonic() + LIMIT_S, False
    while time.monotonic() < ends:
        now, wrong = alertmanager.requests().get(way, (0, 0))
        if wrong > failed:
            return "it did not take the message"
        # A request that failed is counted as one, and a moment later as failed.
        if counted:
            return ""
        counted = now > made
        time.sleep(0.2)
    return f"nothing was sent within {LIMIT_S:.0f} s"


def main(argv: list[str]) -> int:
    """Command line; see the module's docstring."""
    parser = program.parser(__doc__)
    parser.add_argument("host")
    parser.add_argument("port", type=int)
    parser.add_argument("receivers", nargs="+", metavar="RECEIVER=WAY")
    options = parser.parse_args(argv)
    alertmanager = Alertmanager(options.port)
    try:
        found = {
            receiver: told(alertmanager, options.host, receiver, way)
            for receiver, _, way in (each.partition("=") for each in options.receivers)
        }
    except (Refused, Unreachable) as fault:
        raise errors.Problem(str(fault), errors.EXIT_USAGE) from fault
    print(json.dumps(found))
    return errors.EXIT_FAILED if any(found.values()) else errors.EXIT_DONE
