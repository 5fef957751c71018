"""The end of a run that said nothing of its end."""

from __future__ import annotations

from lockstep.deploy.closing import unexplained_end
from lockstep.deploy.course import Course


def test_an_error_of_pyinfras_own_is_its_sentence_without_a_traceback() -> None:
    lines = [
        "--> Connecting to hosts...",
        "Traceback (most recent call last):",
        'raise PyinfraError(f"No such private key file: {key_filename}")',
        "<Greenlet at 0x7f: <bound method Host.connect of Host(spark1)>> failed with PyinfraError",
        "--> pyinfra error in src/gevent/greenlet.py line 912: No such private key file: /x/key",
    ]
    assert list(unexplained_end(Course(0.0), lines)) == [
        "spark1: No such private key file: /x/key. Remedy: correct `ssh_key` in the inventory, or "
        "copy the key there."
    ]
