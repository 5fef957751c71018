"""The state before the first deploy; packages leave with what came for them alone."""

import getpass
import subprocess

import pytest

from lockstep.onhost.core import errors, layout
from lockstep.onhost.records import original_state, ownership, package_changes

ASKED = {
    "paths": ["/data", "/etc/lockstep.d"],
    "accounts": ["nobody-knows", getpass.getuser()],
    "groups": ["nobody-knows"],
    "sysctls": ["vm.swappiness", "vm.none"],
}


@pytest.fixture
def paths(paths) -> layout.Paths:
    (paths.root / "data").mkdir(mode=0o750)
    (paths.root / "proc/sys/vm").mkdir(parents=True)
    (paths.root / "proc/sys/vm/swappiness").write_text("60\n")
    return paths


def test_the_state_is_noted_once_and_stays_as_it_was(paths):
    assert original_state.unrecorded_items(paths, ASKED) == ASKED
    original_state.record_items(paths, ASKED)
    record = original_state.load(paths)
    assert record.whole and record.paths["/data"].startswith("folder 0750 ")
    assert record.paths["/etc/lockstep.d"] is None
    assert record.accounts["nobody-knows"] is None and record.groups == {"nobody-knows": None}
    assert record.accounts[getpass.getuser()] is not None
    assert record.sysctls == {"vm.swappiness": "60", "vm.none": None}
    assert paths.baseline.stat().st_mode & 0o777 == 0o600
    assert original_state.unrecorded_items(paths, ASKED) == {}
    (paths.root / "proc/sys/vm/swappiness").write_text("10\n")
    (paths.root / "etc/lockstep.d").mkdir(parents=True)
    more = {**ASKED, "sysctls": ["vm.swappiness", "vm.later"]}
    assert original_state.unrecorded_items(paths, more)["sysctls"] == ["vm.later"]
    original_state.record_items(paths, more)
    again = original_state.load(paths)
    assert again.sysctls == {**record.sysctls, "vm.later": None}
    assert again.paths == record.paths and again.whole


@pytest.mark.parametrize(
    ("path", "whole"),
    [("etc/lockstep/my-notes.txt", True), ("usr/local/lib/lockstep/__main__.py", False)],
)
def test_a_host_that_an_earlier_version_deployed_is_known_by_its_program(paths, path, whole):
    (paths.root / path).parent.mkdir(parents=True)
    (paths.root / path).touch()
    original_state.record_items(paths, ASKED)
    assert original_state.load(paths).whole is whole


def test_the_question_has_every_folder_above_but_none_of_ours():
    asked_paths = ["/data/scripts/a.sh", "/etc/lockstep/x.json", "/var/lib/lockstep"]
    with_parents = ["/data", "/data/scripts", "/data/scripts/a.sh", "/etc", "/var", "/var/lib"]
    assert original_state.with_parent_folders(asked_paths) == with_parents


class Apt:
    """dpkg and apt over a set of packages; `needs` is what apt installed for a package."""

    def __init__(self, installed_names: set[str], needs: dict[str, set[str]]) -> None:
        self.installed_names, self.needs = installed_names, needs
        self.fails, self.accounts = False, set()
        #: Package of somebody else's → the one that it cannot be without.
        self.depends: dict[str, str] = {}
        #: The commands that changed the host.
        self.changes: list[list[str]] = []

    def run(self, argv: list[str], timeout: float) -> subprocess.CompletedProcess[str]:
        out, code = "", 0
        if argv[0] == "dpkg-query":
            lines = [f"installed {name}\n" for name in sorted(self.installed_names)]
            out = "".join([*lines, "config-files old\n"])
        elif "--simulate" in argv:
            out = self.removals(argv)
        elif argv[0] == "userdel" or "purge" in argv:
            self.changes.append(argv)
            code = 100 if self.fails else 0
            self.installed_names -= set() if self.fails else set(argv[4:])
        return subprocess.CompletedProcess(argv, code, out, "E: no" if code else "")

    def removals(self, argv: list[str]) -> str:
        going = set(argv[argv.index("purge") + 1 :]) if "purge" in argv else set()
        going |= {name for name in self.installed_names if self.depends.get(name) in going}
        remaining_names, unneeded_names = self.installed_names - going, set()
        if {"--auto-remove", "autoremove"} & set(argv):
            needs = [need for name, need in self.needs.items() if name not in remaining_names]
            unneeded_names = {"kernel-old", "kernel-new"}.union(*needs) & remaining_names
        lines = [f"Purg {name} [1.0]\n" for name in going]
        return "".join([*lines, *(f"Remv {name} [1.0]\n" for name in unneeded_names)])


@pytest.fixture
def apt(monkeypatch) -> Apt:
    apt = Apt({"other", "kernel-old", "curl"}, {"prometheus": {"libjs"}})
    monkeypatch.setattr(package_changes.runner, "run", apt.run)
    monkeypatch.setattr(ownership, "home_of", lambda name: "/" if name in apt.accounts else None)
    return apt


def test_what_came_goes_with_what_came_for_it_alone(apt, paths):
    package_changes.record_new_packages(paths, ["prometheus=prometheus", "curl"])
    earlier = sorted(apt.installed_names)
    record = package_changes.PackageRecord(["prometheus"], {"prometheus": ["prometheus"]}, earlier)
    assert package_changes.load(paths) == record and paths.packages.stat().st_mode & 0o777 == 0o600
    # One that was not needed before it is purged is nothing of ours.
    apt.installed_names |= {"prometheus", "libjs", "kernel-new"}
    apt.accounts.add("prometheus")
    # A second deploy that meets it half installed forgets nothing.
    package_changes.record_new_packages(paths, ["prometheus=prometheus", "old"])
    record.packages.append("old")
    assert package_changes.load(paths) == record
    names = ["prometheus", "old", "curl", "never"]
    purged_names = package_changes.purge_recorded_packages(paths, names)
    assert purged_names == apt.changes[0][4:] == ["prometheus", "old", "libjs"]
    assert apt.changes[1:] == [["userdel", "prometheus"]]
    assert apt.installed_names == {"other", "kernel-old", "kernel-new", "curl"}
    assert package_changes.load(paths) == package_changes.PackageRecord(earlier_packages=earlier)


def test_packages_and_an_account_that_were_here_stay_although_nobody_needs_them(apt, paths):
    apt.installed_names.add("prometheus")
    apt.needs["exporter"] = {"curl"}
    apt.accounts.add("prometheus")
    package_changes.record_new_packages(paths, ["prometheus=prometheus", "exporter=prometheus"])
    apt.installed_names.add("exporter")
    names = ["prometheus", "exporter"]
    assert package_changes.purge_recorded_packages(paths, names) == ["exporter"]
    assert {"curl", "prometheus"} < apt.installed_names
    assert [argv[0] for argv in apt.changes] == ["apt-get"]


@pytest.mark.parametrize(
    ("beside", "kept_accounts"),
    [("exporter=prometheus", {"prometheus": ["prometheus", "exporter"]}), ("exporter", {})],
)
def test_one_that_stays_keeps_the_account_that_it_makes(apt, paths, beside, kept_accounts):
    package_changes.record_new_packages(paths, ["prometheus=prometheus", beside])
    apt.installed_names |= {"prometheus", "exporter"}
    apt.accounts.add("prometheus")
    package_changes.purge_recorded_packages(paths, ["prometheus"])
    record = package_changes.load(paths)
    assert (record.packages, record.accounts) == (["exporter"], kept_accounts)
    assert (["userdel", "prometheus"] in apt.changes) == (kept_accounts == {})


def test_one_that_somebody_else_s_package_needs_by_now_stays(apt, paths):
    package_changes.record_new_packages(paths, ["jq", "prometheus", "rsync"])
    apt.installed_names |= {"jq", "prometheus", "rsync", "libjs", "mine"}
    apt.depends = {"mine": "jq"}
    assert package_changes.needed_packages(["jq", "prometheus"]) == ["jq"]
    purged_names = package_changes.purge_recorded_packages(paths, ["jq", "prometheus", "rsync"])
    assert purged_names == ["prometheus", "rsync", "libjs"]
    assert {"mine", "jq"} <= apt.installed_names and package_changes.load(paths).packages == ["jq"]


def test_what_apt_refuses_stays_noted_and_goes_after_a_run_that_was_cut_off(apt, paths):
    package_changes.record_new_packages(paths, ["prometheus"])
    apt.installed_names |= {"prometheus", "libjs"}
    apt.fails = True
    with pytest.raises(errors.Problem, match="purge prometheus libjs failed: E: no"):
        package_changes.purge_recorded_packages(paths, ["prometheus"])
    noted_packages = package_changes.load(paths).packages
    assert noted_packages == ["prometheus", "libjs"]
    # As far as dpkg came.
    apt.installed_names.remove("prometheus")
    apt.fails = False
    assert package_changes.purge_recorded_packages(paths, noted_packages) == ["libjs"]
    assert package_changes.load(paths).packages == []


def test_a_record_that_cannot_be_used_is_called_so(paths):
    paths.packages.parent.mkdir(parents=True)
    paths.packages.write_text('{"others": []}')
    with pytest.raises(errors.Problem, match=r"another version of Lockstep.*Remedy: remove it; "):
        package_changes.load(paths)
