"""A real apt with our files and programs.

It logs in at archive and proxy, and a command that is refused a lock says so in the words that we
know.
"""

import base64
from collections.abc import Iterator
from pathlib import Path

import pytest
import tools
from a_lock import hold_lock
from local_server import LocalServer, serving

from lockstep.inventory.settings import Proxy, Settings, Sources
from lockstep.onhost.core import errors, event_lines, layout
from lockstep.onhost.records import package_changes
from lockstep.onhost.system import apt_lock_wait
from lockstep.system.base_files import host_files


@pytest.fixture
def archive() -> Iterator[LocalServer]:
    """An archive that has nothing, and is a proxy too."""
    with serving({}) as server:
        yield server


def test_apt_logs_in_at_the_archives_and_at_the_proxy(tmp_path: Path, archive) -> None:
    lines = (
        f"deb [trusted=yes] http://me:%23p%25%24s%22w'ord@{archive.host}/direct ./",
        f"deb [trusted=yes] http://{archive.host}/direct-and-open ./",
        f"deb [trusted=yes] http://me:third@{archive.host}/direct/nearer/ ./",
        f"deb [trusted=yes] http://token@{archive.host}/token ./",
        "deb [trusted=yes] http://far:away@archive.example/proxied ./",
    )
    settings = Settings(
        name="spark",
        models={},
        sources=Sources(apt=lines),
        proxy=Proxy(http=f"http://via:pr$oxy@{archive.host}", no="127.0.0.1"),
    )
    files = {file.path: file for file in host_files(settings) if file.path.startswith("/etc/apt/")}
    tools.write_files(tmp_path, {path: file.text for path, file in files.items()})
    own_folders(tmp_path)
    result = tools.run(["apt-get", "update"], env={"APT_CONFIG": str(tmp_path / "apt.conf")})
    assert "404" in result.stdout, result.stdout + result.stderr
    logins = ("Authorization", "Proxy-Authorization")
    assert {
        (request.path.rpartition("/./")[0], *map(request.headers.get, logins))
        for request in archive.requests
    } == {
        ("/direct", basic("me:#p%$s\"w'ord"), None),
        # Not the login of /direct: that of the server, which is the proxy.
        ("/direct-and-open", basic("via:pr$oxy"), None),
        ("/direct/nearer", basic("me:third"), None),
        ("/token", basic("token:"), None),
        ("http://archive.example/proxied", basic("far:away"), basic("via:pr$oxy")),
    }


def basic(login: str) -> str:
    """The header of a login."""
    return "Basic " + base64.b64encode(login.encode()).decode()


def own_folders(root: Path) -> None:
    """Folders and settings with which apt and dpkg work below `root` only."""
    for folder in ("var/lib/apt/lists/partial", "var/cache/apt/archives/partial"):
        (root / folder).mkdir(parents=True)
    for folder in ("info", "updates"):
        (root / "var/lib/dpkg" / folder).mkdir(parents=True)
    (root / "var/lib/dpkg/status").touch()
    (root / "apt.conf").write_text(f'Dir "{root}/";\nAPT::Sandbox::User "root";\n')


WORKS = {
    "var/lib/apt/lists/lock": ["apt-get", "-q", "update"],
    "var/lib/dpkg/lock-frontend": [*package_changes.MERGE],
    "var/lib/dpkg/lock": [*package_changes.MERGE],
    "var/cache/apt/archives/lock": ["apt-get", "-q", "-y", "upgrade"],
}


@pytest.mark.parametrize("lock", WORKS)
@pytest.mark.parametrize("has_holder", [True, False], ids=["waits", "was too late to see it"])
def test_a_command_waits_for_a_lock_that_somebody_else_has(tmp_path, monkeypatch, lock, has_holder):
    own_folders(tmp_path)
    use(tmp_path, monkeypatch)
    monkeypatch.setattr(apt_lock_wait, "LOOK_EVERY_S", 0.05)
    if not has_holder:
        monkeypatch.setattr(apt_lock_wait, "apt_lock_holder", lambda paths: None)
    lines: list[str] = []
    with hold_lock(tmp_path / lock) as process:

        def say(line: str) -> None:
            lines.append(line)
            if "waited" in line or "faster" in line:
                process.communicate()

        monkeypatch.setattr(event_lines, "say", say)
        assert apt_lock_wait.main(["--", *WORKS[lock]], layout.Paths(tmp_path)) == 0, lines
    assert [line for line in lines if ("waited" if has_holder else "faster") in line] != [], lines


PACKAGE = "Package: {0}\nVersion: 1\nArchitecture: all\nMaintainer: x\nDescription: x\n"
UNPACKED = PACKAGE + "Status: install ok unpacked\n"


def use(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have apt and dpkg work below `root`."""
    monkeypatch.setenv("APT_CONFIG", str(root / "apt.conf"))
    monkeypatch.setenv("DPKG_ADMINDIR", str(root / "var/lib/dpkg"))
    monkeypatch.setenv("LC_ALL", "C.UTF-8")


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> layout.Paths:
    """A host whose archive has jq, and whose dpkg was killed over a package of ours."""
    own_folders(tmp_path)
    use(tmp_path, monkeypatch)
    files = {
        "archive/Packages": PACKAGE.format("jq") + "Filename: ./jq.deb\nSize: 1\nSHA256: 0\n",
        "etc/apt/sources.list": f"deb [trusted=yes] file:{tmp_path}/archive ./\n",
        "var/lib/dpkg/status": "",
        "var/lib/dpkg/updates/0000": UNPACKED.format("earlyoom"),
    }
    tools.write_files(tmp_path, files)
    package_changes.record_new_packages(layout.Paths(tmp_path), ["earlyoom"])
    return layout.Paths(tmp_path)


def test_a_dead_source_is_named_and_packages_that_need_none_of_it_come(host, archive, capfd):
    address = f"{archive.url}/baseos/8"
    path = "etc/apt/sources.list.d/dgx.list"
    tools.write_files(host.root, {path: f"deb [trusted=yes] {address} ./\n"})
    # Without the dead source one of these cannot come.
    with pytest.raises(errors.Problem) as problem:
        package_changes.prepare_install(host, ["jq", "ninja-build"])
    assert f"could not be read (Failed to fetch {address}/./Packages  404" in str(problem.value)
    assert "apt cannot install jq, ninja-build without" in str(problem.value)
    assert f"It stands in {host.root}/{path}:" in str(problem.value)
    capfd.readouterr()
    package_changes.prepare_install(host, ["jq"])
    text = capfd.readouterr().out
    assert f"warning: a source of apt fails: Failed to fetch {address}/./Packages  404" in text
    assert f"It stands in {host.root}/{path}: correct the source" in text
    assert package_changes.load(host).coming == ["jq"]
    package_changes.clear_coming_packages(host)
    assert package_changes.load(host).coming == []
    assert package_changes.load(host).packages == ["earlyoom"]
    # What a cut-off dpkg left is no obstacle for the next one.
    assert list((host.root / "var/lib/dpkg/updates").iterdir()) == []


@pytest.mark.parametrize(
    ("name", "message"),
    [("jqq", "no source of apt has jqq (did you mean jq?)."), ("vim", "has vim.")],
)
def test_a_package_that_no_source_has_is_named_with_the_nearest(host, name, message) -> None:
    with pytest.raises(errors.Problem) as problem:
        package_changes.prepare_install(host, ["jq", name])
    assert message in str(problem.value) and "`packages` of the inventory" in str(problem.value)
    assert package_changes.load(host).coming == []


def test_packages_of_others_that_are_half_installed_are_named_and_nothing_is_done(host) -> None:
    journal = host.root / "var/lib/dpkg/updates/0000"
    more = f"{UNPACKED.format('thunderbird-locale-de')}Depends: thunderbird\n"
    (host.root / "var/lib/dpkg/status").write_text(f"{UNPACKED.format('snaps')}\n{more}")
    with pytest.raises(errors.Problem) as problem:
        package_changes.prepare_install(host, ["jq"])
    assert (
        "block apt: snaps (unpacked), thunderbird-locale-de (unpacked; Depends: thunderbird but it "
        "is not installable). `sudo dpkg" in str(problem.value)
    )
    names = ["snaps", "thunderbird-locale-de"]
    assert journal.exists() and package_changes.foreign_unfinished_packages(host, names) == {}
