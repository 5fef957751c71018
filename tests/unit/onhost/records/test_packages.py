"""Packages that leave: what was here before stays, and what came for them alone goes too."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from lockstep.onhost.core import errors, layout
from lockstep.onhost.records import ours, packages


class Apt:
    """dpkg and apt over a set of packages; `needs` is what apt installed for a package."""

    def __init__(self, here: set[str], needs: dict[str, set[str]]) -> None:
        self.here, self.needs = here, needs
        self.argv: list[list[str]] = []
        self.fails = False
        #: Package of somebody else's → what it cannot be without.
        self.depends: dict[str, set[str]] = {}

    def run(self, argv: list[str], timeout: float) -> subprocess.CompletedProcess[str]:
        self.argv.append(argv)
        out, code = "", 0
        if argv[0] == "dpkg-query":
            out = (
                "".join(f"installed {name}\n" for name in sorted(self.here)) + "config-files old\n"
            )
        elif "--simulate" in argv:
            going = set(argv[argv.index("purge") + 1 :]) if "purge" in argv else set()
            while more := {
                name for name in self.here - going if self.depends.get(name, set()) & going
            }:
                going |= more
            out = "".join(f"Purg {name} [1.0]\n" for name in going)
            if {"--auto-remove", "autoremove"} & set(argv):
                here = self.here - going
                wanted = {each for name in here for each in self.needs.get(name, ())}
                automatic = {each for needs in self.needs.values() for each in needs}
                unneeded = ((automatic | {"kernel-old", "kernel-new"}) & here) - wanted
                out += "".join(f"Remv {name} [1.0]\n" for name in unneeded)
        elif "purge" in argv:
            code = 100 if self.fails else 0
            self.here -= set() if self.fails else set(argv[4:])
        return subprocess.CompletedProcess(argv, code, out, "E: no" if code else "")

    @property
    def done(self) -> list[list[str]]:
        """What changed the host."""
        return [
            argv for argv in self.argv if argv[1:4] == ["-q", "-y", "purge"] or argv[0] == "userdel"
        ]


@pytest.fixture
def apt(monkeypatch: pytest.MonkeyPatch) -> Apt:
    needs = {"prometheus": {"libjs", "shared"}, "other": {"shared"}}
    found = Apt({"other", "shared", "kernel-old", "curl"}, needs)
    monkeypatch.setattr(packages.runner, "run", found.run)
    return found


@pytest.fixture
def accounts(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Accounts of this host."""
    there: list[str] = []
    monkeypatch.setattr(ours, "home_of", lambda name: "/" if name in there else None)
    return there


@pytest.fixture
def paths(tmp_path: Path) -> layout.Paths:
    return layout.Paths(tmp_path)


def test_what_came_goes_with_what_came_for_it_alone(
    apt: Apt, paths: layout.Paths, accounts: list[str]
) -> None:
    packages.note(paths, ["prometheus=prometheus", "curl"])
    before = sorted(apt.here)
    kept = packages.Noted(["prometheus"], {"prometheus": ["prometheus"]}, before)
    assert packages.load(paths) == kept and paths.packages.stat().st_mode & 0o777 == 0o600
    # One that was not needed before it is purged is nothing of ours.
    apt.here |= {"prometheus", "libjs", "kernel-new"}
    accounts.append("prometheus")
    # A second deploy that meets it half installed forgets nothing.
    packages.note(paths, ["prometheus=prometheus", "old"])
    kept.packages.append("old")
    assert packages.load(paths) == kept
    gone = packages.purge(paths, ["prometheus", "old", "curl", "never"])
    assert gone == ["prometheus", "old", "libjs"]
    assert apt.done[0][4:] == ["prometheus", "old", "libjs"]
    assert apt.done[1] == ["userdel", "prometheus"]
    assert apt.here == {"other", "shared", "kernel-old", "kernel-new", "curl"}
    assert packages.load(paths) == packages.Noted(before=before)


def test_what_was_here_before_stays_although_nobody_needs_it_any_more(
    apt: Apt, paths: layout.Paths
) -> None:
    apt.here.add("libjs")
    packages.note(paths, ["prometheus"])
    apt.here.add("prometheus")
    assert packages.purge(paths, ["prometheus"]) == ["prometheus"]
    assert "libjs" in apt.here


def test_a_package_and_an_account_that_were_here_stay(
    apt: Apt, paths: layout.Paths, accounts: list[str]
) -> None:
    apt.here.add("prometheus")
    accounts.append("prometheus")
    packages.note(paths, ["prometheus=prometheus", "exporter=prometheus"])
    apt.here.add("exporter")
    assert packages.purge(paths, ["prometheus", "exporter"]) == ["exporter"]
    assert "prometheus" in apt.here and not any(argv[0] == "userdel" for argv in apt.done)


@pytest.mark.parametrize(
    ("beside", "kept"),
    [
        ("exporter=prometheus", {"prometheus": ["prometheus", "exporter"]}),
        # This one makes no account.
        ("exporter", {}),
    ],
)
def test_one_that_stays_keeps_the_account_that_it_makes(
    apt: Apt, paths: layout.Paths, accounts: list[str], beside: str, kept: dict[str, list[str]]
) -> None:
    packages.note(paths, ["prometheus=prometheus", beside])
    apt.here |= {"prometheus", "exporter"}
    accounts.append("prometheus")
    packages.purge(paths, ["prometheus"])
    noted = packages.load(paths)
    assert (noted.packages, noted.accounts) == (["exporter"], kept)
    assert (["userdel", "prometheus"] in apt.done) == (kept == {})


def test_one_that_somebody_else_s_package_needs_by_now_stays(apt: Apt, paths: layout.Paths) -> None:
    packages.note(paths, ["jq", "prometheus", "rsync"])
    apt.here |= {"jq", "prometheus", "rsync", "libjs", "mine"}
    apt.depends = {"mine": {"jq"}}
    assert packages.needed(["jq", "prometheus"]) == ["jq"]
    assert packages.purge(paths, ["jq", "prometheus", "rsync"]) == ["prometheus", "rsync", "libjs"]
    assert {"mine", "jq"} <= apt.here and packages.load(paths).packages == ["jq"]


def test_what_apt_refuses_stays_noted_and_what_came_for_it_goes_after_a_run_that_was_cut_off(
    apt: Apt, paths: layout.Paths
) -> None:
    packages.note(paths, ["prometheus"])
    apt.here |= {"prometheus", "libjs"}
    apt.fails = True
    with pytest.raises(errors.Problem, match="purge prometheus libjs failed: E: no"):
        packages.purge(paths, ["prometheus"])
    assert packages.load(paths).packages == ["prometheus", "libjs"]
    # As far as dpkg came.
    apt.here.remove("prometheus")
    apt.fails = False
    assert packages.purge(paths, packages.load(paths).packages) == ["libjs"]
    assert packages.load(paths).packages == []


def test_the_record_of_an_earlier_version_is_understood(paths: layout.Paths) -> None:
    paths.packages.parent.mkdir(parents=True)
    old = {"packages": ["prometheus"], "accounts": ["prometheus"], "before": ["curl"]}
    paths.packages.write_text(json.dumps(old))
    assert packages.load(paths).accounts == {"prometheus": ["prometheus"]}


def test_a_record_that_cannot_be_read_is_empty(paths: layout.Paths) -> None:
    paths.packages.parent.mkdir(parents=True)
    for text in ("", json.dumps([]), json.dumps({"others": []})):
        paths.packages.write_text(text)
        assert packages.load(paths) == packages.Noted()
