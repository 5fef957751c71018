"""Run long work once per host, even if the connection that asked for it dies.

usage: job run NAME [options] -- ARGV...     start (or attach to) the job and follow it
       job attach NAME                       follow a job that runs, or tell how it ended
       job stop NAME                         stop it

The work is the transient unit lockstep-job-NAME.service, its output the file
/var/log/lockstep/jobs/NAME.log. `run` attaches when the same work is running already and waits
first when other work is running under that name. Killing the follower never kills the job.

exit codes: those of the work; 128 + N when signal N killed it, 124 when systemd's time for
            it was over, 141 when nobody reads the output any more (the work goes on), 143 when
            it was stopped, 2 wrong use, 77 not root
"""

from __future__ import annotations

import argparse
from dataclasses import replace

from lockstep.onhost.core import errors, event_lines, layout, program_command_lines
from lockstep.onhost.systemd import transient_job, units


def main(argv: list[str], paths: layout.Paths | None = None) -> int:
    """Run the command line; see the module's docstring."""
    paths = paths or layout.Paths()
    # argparse would take options of the work for ours, and swallow a second `--`.
    at = argv.index("--") if "--" in argv else len(argv)
    options, work = _parser().parse_args(argv[:at]), tuple(argv[at + 1 :])
    if options.action == "run" and not work:
        raise errors.Problem("run: nothing to run: expected -- ARGV...", errors.EXIT_USAGE)
    if not units.is_root():
        raise errors.Problem("only root may start a job", errors.EXIT_NOT_PERMITTED)
    job = transient_job.Job(options.name, work, log=paths.log / "jobs" / f"{options.name}.log")
    if options.action == "stop":
        units.control_units("stop", job.unit)
        return errors.EXIT_DONE
    if options.action == "attach":
        unit = units.units_by_name([job.unit])[job.unit]
        if not unit.is_installed or not job.log.exists():
            raise errors.Problem(f"job {job.name}: not running, nothing known of it since boot")
        return transient_job.follow_job(job, from_end=True, say=_say)
    properties = tuple(options.property)
    job = replace(job, user=options.uid, env_file=options.setenv_file, properties=properties)
    for tries_left in reversed(range(options.tries)):
        has_started = transient_job.start_job(job, paths, event_lines.say)
        if not has_started:
            event_lines.say(f"job {job.name}: is running already, following it")
        code = transient_job.follow_job(job, from_end=not has_started, say=_say)
        if code == 0 or not tries_left:
            break
        event_lines.say(f"job {job.name}: tried again")
    return code


def _say(line: str) -> None:
    # A deploy reads it.
    event_lines.say(event_lines.line_for_programs(line))


def _parser() -> argparse.ArgumentParser:
    parser = program_command_lines.parser(__doc__)
    actions = parser.add_subparsers(dest="action", required=True)
    run = actions.add_parser("run", help="start (or attach to) a job and follow it")
    run.add_argument("name")
    run.add_argument("--uid", metavar="USER", help="run as this user")
    run.add_argument("--setenv-file", metavar="FILE", help="KEY=VALUE lines, read by systemd")
    run.add_argument(
        "--tries", type=int, choices=(1, 2, 3), default=1, help="of work that fails (1)"
    )
    run.add_argument(
        "--property", action="append", default=[], metavar="KEY=VALUE", help="of the unit"
    )
    for action, text in (("attach", "follow a running job"), ("stop", "stop a job")):
        actions.add_parser(action, help=text).add_argument("name")
    return parser
