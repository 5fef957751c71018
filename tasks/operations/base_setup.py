"""Packages, accounts, kernel settings and our own tools."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyinfra import host
from pyinfra.api import operation

from lockstep import resources
from lockstep.files import remote_exec
from lockstep.files.managed_file import command
from lockstep.onhost.records.package_changes import INSTALL
from lockstep.resources.fact_comparison import rows_to_mend, unmet_rows
from lockstep.system.accounts import Account
from lockstep.system.tools import Environment, same_version
from lockstep.tasks.run import reader_answers as facts
from lockstep.tasks.run import remote_commands
from lockstep.tasks.run.remote_commands import Commands

# The reader `package_versions_by_venv` takes a venv with this file in it for an empty one.
UNFINISHED_MARK = "unfinished"
_TOOLS = {"environments.package_versions_by_venv", "files"}


@operation()
def record_baseline() -> Commands:
    """Record the baseline of what this deploy may touch, for `lockstep remove`."""
    unrecorded_items = facts.reader_answer("deploy_records.items_missing_in_baseline")
    if unrecorded_items:
        yield remote_commands.changing_command(
            remote_exec.COMMAND,
            _stdin=[remote_exec.program_input("records.original_state", unrecorded_items)],
        )
    elif unrecorded_items is not None:
        host.noop("what was here before is on record")


@operation()
def install_packages(
    names: Sequence[str],
    masked_units: Mapping[str, str] | None = None,
    accounts: Mapping[str, str] | None = None,
) -> Commands:
    """Install the archive's candidate of missing packages; the index is read again only then.

    Where foreign packages are half installed, nothing is installed: apt would go on with them. An
    installed package stays at its version. Each command waits for its turn, because other services
    of a Spark use apt too.

    Args:
        names: Debian packages.
        masked_units: Package → its own unit, which is not to run. The unit is masked before the
            package comes, which would start it, and stays masked. For a package that is there
            already, it stays as it is.
        accounts: Package → the account that it makes.
    """
    observed_facts = facts.reader_answer("packages")
    missing = (
        [] if observed_facts is None else resources.packages.missing_packages(names, observed_facts)
    )
    if not missing:
        host.noop(f"{len(names)} packages are installed")
        return
    units = [unit for name, unit in (masked_units or {}).items() if name in missing]
    if units:
        yield remote_commands.changing_command(["systemctl", "mask", "--quiet", *units])
    accounts_made = accounts or {}
    notes = [f"{name}={accounts_made[name]}" if name in accounts_made else name for name in missing]
    yield remote_commands.changing_command(command("packages", "note", *notes))
    turn = command("apt-turn", "--")
    prepare = [*turn, *command("packages", "prepare", *missing)]
    yield remote_commands.transient_job_command("apt", prepare)
    # Settings that we wrote before the package came (earlyoom's) are kept without a question.
    keep = [f"-oDpkg::Options::={option}" for option in ("--force-confdef", "--force-confold")]
    yield remote_commands.transient_job_command(
        "apt", [*turn, "apt-get", "-q", *keep, "-y", *INSTALL, *missing]
    )
    yield remote_commands.changing_command(command("packages", "settle"))


@operation()
def purge_packages(units: Mapping[str, str]) -> Commands:
    """Purge packages that an earlier deploy installed and nothing asks for any more.

    Each is named with its own unit, which was masked.
    """
    brought_packages = facts.reader_answer("packages.brought_packages") or []
    leaving = [name for name in units if name in brought_packages]
    if not leaving:
        host.noop("no package of an earlier deploy is left over")
        return
    host.log(f"{', '.join(leaving)}: nothing asks for them any more")
    purge = command("packages", "purge", *leaving)
    yield remote_commands.transient_job_command("apt", [*command("apt-turn", "--"), *purge])
    yield remote_commands.changing_command(
        ["systemctl", "unmask", "--quiet", *(units[name] for name in leaving)]
    )


@operation()
def create_accounts(groups: Sequence[str], users: Sequence[Account]) -> Commands:
    """Create missing groups, system accounts and memberships; memberships of others stay."""
    observed_facts = facts.reader_answer("accounts")
    if observed_facts is None:
        return
    expectations = resources.accounts.group_and_account_expectations(
        groups, users, remote_commands.adopted_things()
    )
    for kind, row in unmet_rows(expectations, observed_facts):
        if kind == "account home":
            yield from remote_commands.fail_host_operation(
                f"the account {row.item} has the home {row.found} and was not made by "
                "Lockstep. Remedy: give it another name, or set service_user to one; nothing was "
                "changed."
            )
            return
    commands = resources.accounts.commands(groups, users, observed_facts)
    if not commands:
        host.noop("accounts and groups are as they should be")
    for argv in commands:
        yield remote_commands.changing_command(argv)


@operation()
def apply_sysctls(values: Mapping[str, str], path: str) -> Commands:
    """Apply kernel settings of a file now, where the kernel has other values.

    `path` is under /etc/sysctl.d and has them for the next boot.
    """
    observed_facts = facts.reader_answer("machine.settings")
    if observed_facts is None:
        return
    commands = resources.kernel_settings.commands(values, path, observed_facts)
    if not commands:
        host.noop("kernel settings are in force")
    for argv in commands:
        yield remote_commands.changing_command(argv)


@operation()
def install_tools(
    environments: Mapping[str, Environment], python: str, variables: str | None
) -> Commands:
    """Install our own tools, every wheel by its hash: uv by the system's pip, the others by uv.

    `variables` is a file with the package index and the proxy, which may hold passwords; None for
    the clients' own configuration.
    """
    uv, other_tools = environments["uv"], environments["tools"]
    answers = facts.reader_answers(_TOOLS)
    if not set(answers) >= _TOOLS:
        return
    installed_versions = answers["environments.package_versions_by_venv"]
    options = ["--setenv-file", variables] if variables else []
    has_changed = False
    if _lacks_tools(installed_versions[uv.folder], uv):
        yield remote_commands.changing_command(["python3", "-m", "venv", uv.folder])
        pip = [f"{uv.folder}/bin/python", "-m", "pip", "install", "--disable-pip-version-check"]
        pip += ["--require-hashes", "--no-deps", "--requirement", uv.requirements]
        yield remote_commands.transient_job_command("tools", pip, *options)
        has_changed = True
    if _lacks_tools(installed_versions[other_tools.folder], other_tools):
        program = ["env", "UV_PYTHON_DOWNLOADS=never", f"{uv.folder}/bin/uv"]
        yield remote_commands.transient_job_command(
            "tools", [*program, "venv", "--clear", "--python", python, other_tools.folder]
        )
        # An install that is cut off may have the client and lack its dependencies. uv makes its
        # lock for everybody (0.13.8), and takes an existing one as it is.
        marks = [f"{other_tools.folder}/{UNFINISHED_MARK}", f"{other_tools.folder}/.lock"]
        yield remote_commands.changing_command(
            ["sh", "-c", 'umask 077 && touch "$@"', "touch", *marks]
        )
        # No program of ours writes bytecode, and the gateway is to be back within a second.
        install = [*program, "pip", "install", "--compile-bytecode"]
        install += ["--python", f"{other_tools.folder}/bin/python"]
        install += ["--require-hashes", "--no-deps", "--requirement", other_tools.requirements]
        yield remote_commands.transient_job_command("tools", install, *options)
        yield remote_commands.changing_command(["rm", f"{other_tools.folder}/{UNFINISHED_MARK}"])
        has_changed = True
    expectations = resources.files.link_expectations(resources.files.tool_links(environments))
    observed_facts = resources.files.file_facts(answers["files"])
    rows = rows_to_mend(resources.files.KINDS, expectations, observed_facts)
    moved_links = {row.item: row.expected for _, row in rows}
    if moved_links:
        yield remote_commands.write_files_command({"links": moved_links})
    if not (has_changed or moved_links):
        host.noop("uv, pip and what our programs import are installed")


def _lacks_tools(versions: Mapping[str, str], environment: Environment) -> bool:
    return not all(
        same_version(versions.get(name), version) for name, version in environment.versions.items()
    )
