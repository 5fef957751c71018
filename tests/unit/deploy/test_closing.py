"""The end of a run that said nothing of its end."""

from lockstep.deploy.closing import unexplained_end
from lockstep.deploy.course import Course

OFF = "[spark-1] Could not connect ([Errno None] Unable to connect to port 22 on 10.0.0.9)"


def test_hosts_that_are_not_reached_are_named_and_the_remedy() -> None:
    for line, remedy in (
        ("[spark-1.invalid] Could not resolve hostname: Name or service not known", "The host is"),
        (OFF, "The host is off, or its address is wrong."),
        ("[spark-1] Authentication error (no key)", "Remedy: log in to the host by `ssh`"),
        ("[spark-1] SSH host key error (Host key does not match)", "Remedy: log in to the host by"),
    ):
        lines = ["--> Connecting to hosts...", line, "--> pyinfra error: No hosts remaining!"]
        first, last = unexplained_end(Course(0.0), lines)
        assert first == line.replace("[Errno None] ", "")
        assert last.startswith(remedy)
    # An error of pyinfra's own is its sentence, without a traceback.
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
