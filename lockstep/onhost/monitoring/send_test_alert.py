"""Send a test alert to each receiver of this host's Alertmanager, and report its delivery.

usage: alert-test HOST PORT RECEIVER=WAY...

Prints JSON: receiver → "" if it took the message, else the reason. WAY is how Alertmanager counts
it: webhook or email. The receivers are tested one after another, because Alertmanager counts each
way and no single receiver.

exit codes: 0 each took it, 1 one did not, 2 wrong use, or Alertmanager does not answer
"""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime, timedelta

from lockstep.onhost.core import errors, program_command_lines
from lockstep.onhost.monitoring.alertmanager_client import (
    Alertmanager,
    AlertmanagerRefusal,
    AlertmanagerUnreachable,
)

LIMIT_S = 40.0  #: Seconds within which a receiver must have been notified.
_ENDS = timedelta(minutes=2)  # Time until the test alert is resolved, which is notified too.


def send_to_receiver(alertmanager: Alertmanager, host: str, receiver: str, way: str) -> str:
    """Test one receiver; return why it did not take the message, or "".

    Raises:
        AlertmanagerRefusal: Alertmanager does not take the alert.
        AlertmanagerUnreachable: It does not answer.
    """
    made_count, failed_count = alertmanager.notification_counts().get(way, (0, 0))
    moment = datetime.now(UTC)
    alertmanager.raise_alert(
        {
            "alertname": "LockstepTest",
            "instance": host,
            "receiver": receiver,
            "severity": "note",
            # A label of its own makes each test a new alert; a known one would not be notified.
            "test": moment.isoformat(timespec="milliseconds"),
        },
        {
            "summary": f"{host}: This is a test. Nothing is wrong.",
            "description": "Somebody ran `lockstep alert test`. Nothing is to be done.",
        },
        (moment + _ENDS).isoformat(timespec="milliseconds"),
    )
    ends, was_counted = time.monotonic() + LIMIT_S, False
    while time.monotonic() < ends:
        now, wrong = alertmanager.notification_counts().get(way, (0, 0))
        if wrong > failed_count:
            return "it did not take the message"
        # Alertmanager counts a failed request as made, and a moment later as failed.
        if was_counted:
            return ""
        was_counted = now > made_count
        time.sleep(0.2)
    return f"nothing was sent within {LIMIT_S:.0f} s"


def main(argv: list[str]) -> int:
    """Run the command line; see the module's docstring."""
    parser = program_command_lines.parser(__doc__)
    parser.add_argument("host")
    parser.add_argument("port", type=int)
    parser.add_argument("receivers", nargs="+", metavar="RECEIVER=WAY")
    options = parser.parse_args(argv)
    alertmanager = Alertmanager(options.port)
    try:
        outcomes = {
            receiver: send_to_receiver(alertmanager, options.host, receiver, way)
            for receiver, _, way in (
                receiver_word.partition("=") for receiver_word in options.receivers
            )
        }
    except (AlertmanagerRefusal, AlertmanagerUnreachable) as fault:
        raise errors.Problem(str(fault), errors.EXIT_USAGE) from fault
    print(json.dumps(outcomes))
    return errors.EXIT_FAILED if any(outcomes.values()) else errors.EXIT_DONE
