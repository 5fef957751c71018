"""Packages that leave: what was here before stays, and what came for them alone goes too."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from lockstep.onhost.core import errors, layout
from lockstep.onhost.records import ownership, package_changes


class Apt:
    """dpkg and apt over a set of packages; `needs` is what apt installed for a package."""

    def __init__(self, installed_names: set[str], needs: dict[str, set[str]]) -> None:
        self.installed_names, self.needs = installed_names, needs
        self.argv: list[list[str]] = []
        self.fails = False
        #: Package of somebody else's → what it cannot be without.
        self.depends: dict[str, set[str]] = {}

    def run(self, argv: list[str], timeout: float) -> subprocess.CompletedProcess[str]:
        self.argv.append(argv)
        out, code = "", 0
        if argv[0] == "dpkg-query":
            out = (
                "".join(f"installed {name}\n" for name in sorted(self.installed_names))
                + "config-files old\n"
            )
        elif "--simulate" in argv:
            going = set(argv[argv.index("purge") + 1 :]) if "purge" in argv else set()
            while more := {
                name
                for name in self.installed_names - going
                if self.depends.get(name, set()) & going
            }:
                going |= more
            out = "".join(f"Purg {name} [1.0]\n" for name in going)
            if {"--auto-remove", "autoremove"} & set(argv):
                remaining_names = self.installed_names - going
                needed_names = {
                    needed_name
                    for name in remaining_names
                    for needed_name in self.needs.get(name, ())
                }
                automatic = {needed_name for needs in self.needs.values() for needed_name in needs}
                unneeded_names = (
                    (automatic | {"kernel-old", "kernel-new"}) & remaining_names
                ) - needed_names
                out += "".join(f"Remv {name} [1.0]\n" for name in unneeded_names)
        elif "purge" in argv:
            code = 100 if self.fails else 0
            self.installed_names -= set() if self.fails else set(argv[4:])
        return subprocess.CompletedProcess(argv, code, out, "E: no" if code else "")

    @property
    def purge_commands(self) -> list[list[str]]:
        """The commands that changed the host."""
        return [
            argv for argv in self.argv if argv[1:4] == ["-q", "-y", "purge"] or argv[0] == "userdel"
        ]


@pytest.fixture
def apt(monkeypatch: pytest.MonkeyPatch) -> Apt:
    needs = {"prometheus": {"libjs", "shared"}, "other": {"shared"}}
    fake_apt = Apt({"other", "shared", "kernel-old", "curl"}, needs)
    monkeypatch.setattr(package_changes.runner, "run", fake_apt.run)
    return fake_apt


@pytest.fixture
def accounts(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Accounts of this host."""
    account_names: list[str] = []
    monkeypatch.setattr(ownership, "home_of", lambda name: "/" if name in account_names else None)
    return account_names


@pytest.fixture
def paths(tmp_path: Path) -> layout.Paths:
    return layout.Paths(tmp_path)


def test_what_came_goes_with_what_came_for_it_alone(
    apt: Apt, paths: layout.Paths, accounts: list[str]
) -> None:
    package_changes.record_new_packages(paths, ["prometheus=prometheus", "curl"])
    earlier_names = sorted(apt.installed_names)
    record = package_changes.PackageRecord(
        ["prometheus"], {"prometheus": ["prometheus"]}, earlier_names
    )
    assert package_changes.load(paths) == record and paths.packages.stat().st_mode & 0o777 == 0o600
    # One that was not needed before it is purged is nothing of ours.
    apt.installed_names |= {"prometheus", "libjs", "kernel-new"}
    accounts.append("prometheus")
    # A second deploy that meets it half installed forgets nothing.
    package_changes.record_new_packages(paths, ["prometheus=prometheus", "old"])
    record.packages.append("old")
    assert package_changes.load(paths) == record
    purged_names = package_changes.purge_recorded_packages(
        paths, ["prometheus", "old", "curl", "never"]
    )
    assert purged_names == ["prometheus", "old", "libjs"]
    assert apt.purge_commands[0][4:] == ["prometheus", "old", "libjs"]
    assert apt.purge_commands[1] == ["userdel", "prometheus"]
    assert apt.installed_names == {"other", "shared", "kernel-old", "kernel-new", "curl"}
    assert package_changes.load(paths) == package_changes.PackageRecord(
        earlier_packages=earlier_names
    )


def test_what_was_here_before_stays_although_nobody_needs_it_any_more(
    apt: Apt, paths: layout.Paths
) -> None:
    apt.installed_names.add("libjs")
    package_changes.record_new_packages(paths, ["prometheus"])
    apt.installed_names.add("prometheus")
    assert package_changes.purge_recorded_packages(paths, ["prometheus"]) == ["prometheus"]
    assert "libjs" in apt.installed_names


def test_a_package_and_an_account_that_were_here_stay(
    apt: Apt, paths: layout.Paths, accounts: list[str]
) -> None:
    apt.installed_names.add("prometheus")
    accounts.append("prometheus")
    package_changes.record_new_packages(paths, ["prometheus=prometheus", "exporter=prometheus"])
    apt.installed_names.add("exporter")
    assert package_changes.purge_recorded_packages(paths, ["prometheus", "exporter"]) == [
        "exporter"
    ]
    assert "prometheus" in apt.installed_names and not any(
        argv[0] == "userdel" for argv in apt.purge_commands
    )


@pytest.mark.parametrize(
    ("beside", "kept_accounts"),
    [
        ("exporter=prometheus", {"prometheus": ["prometheus", "exporter"]}),
        # This one makes no account.
        ("exporter", {}),
    ],
)
def test_one_that_stays_keeps_the_account_that_it_makes(
    apt: Apt,
    paths: layout.Paths,
    accounts: list[str],
    beside: str,
    kept_accounts: dict[str, list[str]],
) -> None:
    package_changes.record_new_packages(paths, ["prometheus=prometheus", beside])
    apt.installed_names |= {"prometheus", "exporter"}
    accounts.append("prometheus")
    package_changes.purge_recorded_packages(paths, ["prometheus"])
    record = package_changes.load(paths)
    assert (record.packages, record.accounts) == (["exporter"], kept_accounts)
    assert (["userdel", "prometheus"] in apt.purge_commands) == (kept_accounts == {})


def test_one_that_somebody_else_s_package_needs_by_now_stays(apt: Apt, paths: layout.Paths) -> None:
    package_changes.record_new_packages(paths, ["jq", "prometheus", "rsync"])
    apt.installed_names |= {"jq", "prometheus", "rsync", "libjs", "mine"}
    apt.depends = {"mine": {"jq"}}
    assert package_changes.needed_packages(["jq", "prometheus"]) == ["jq"]
    assert package_changes.purge_recorded_packages(paths, ["jq", "prometheus", "rsync"]) == [
        "prometheus",
        "rsync",
        "libjs",
    ]
    assert {"mine", "jq"} <= apt.installed_names and package_changes.load(paths).packages == ["jq"]


def test_what_apt_refuses_stays_noted_and_what_came_for_it_goes_after_a_run_that_was_cut_off(
    apt: Apt, paths: layout.Paths
) -> None:
    package_changes.record_new_packages(paths, ["prometheus"])
    apt.installed_names |= {"prometheus", "libjs"}
    apt.fails = True
    with pytest.raises(errors.Problem, match="purge prometheus libjs failed: E: no"):
        package_changes.purge_recorded_packages(paths, ["prometheus"])
    assert package_changes.load(paths).packages == ["prometheus", "libjs"]
    # As far as dpkg came.
    apt.installed_names.remove("prometheus")
    apt.fails = False
    assert package_changes.purge_recorded_packages(paths, package_changes.load(paths).packages) == [
        "libjs"
    ]
    assert package_changes.load(paths).packages == []


@pytest.mark.parametrize(
    ("text", "description"),
    [
        ("", "Expecting value: line 1 column 1 (char 0)"),
        ('{"others": []}', "a record of another version of Lockstep, which is not carried over"),
        (
            '{"accounts": ["prometheus"]}',
            "a record of another version of Lockstep, which is not carried over",
        ),
    ],
)
def test_a_record_that_cannot_be_used_is_called_so(
    paths: layout.Paths, text: str, description: str
) -> None:
    paths.packages.parent.mkdir(parents=True)
    paths.packages.write_text(text)
    with pytest.raises(errors.Problem) as refusal:
        package_changes.load(paths)
    assert str(refusal.value) == (
        f"{paths.packages}: {description}. Remedy: remove it; the packages that it names then stay "
        "when Lockstep goes"
    )
