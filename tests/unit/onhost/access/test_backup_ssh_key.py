"""The ssh keys of backups to another Spark: made once, public halves alone on their way."""

import io
import stat
import subprocess
from pathlib import Path

import pytest

from lockstep.onhost.access import backup_ssh_key
from lockstep.onhost.core import errors, layout

PUBLIC = "ssh-ed25519 " + 68 * "A"


@pytest.fixture
def private(tmp_path, capsys):
    """A pair that was just made, with its public half in `public`; a make was cut off before."""
    (tmp_path / "key.new").write_text("half")
    assert backup_ssh_key.main(["make", str(tmp_path / "key"), str(tmp_path / "public")]) == 0
    assert capsys.readouterr().out == f"made {tmp_path}/key\nwrote {tmp_path}/public\n"
    return tmp_path / "key"


def fingerprint(path: Path) -> str:
    words = ["ssh-keygen", "-l", "-f", str(path)]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout.split()[1]


def test_a_pair_is_made_once_and_for_root_alone_and_nothing_of_the_key_is_printed(private):
    public = private.with_name("public")
    assert stat.S_IMODE(private.stat().st_mode) == 0o600
    assert stat.S_IMODE(public.stat().st_mode) == 0o644
    assert fingerprint(private) == fingerprint(public)
    assert sorted(path.name for path in private.parent.iterdir()) == ["key", "public"]
    earlier_key = private.read_bytes()
    public.unlink()
    backup_ssh_key.main(["make", str(private), str(public)])
    assert private.read_bytes() == earlier_key and fingerprint(private) == fingerprint(public)


def test_a_host_key_is_written_as_ssh_knows_hosts(private, tmp_path):
    paths = layout.Paths(tmp_path)
    paths.host_key.parent.mkdir(parents=True)
    paths.host_key.write_text(private.with_name("public").read_text())
    target_path = tmp_path / "known"
    backup_ssh_key.main(["host-key", "spark2.lockstep", str(target_path)], paths)
    words = ["ssh-keygen", "-F", "spark2.lockstep", "-f", str(target_path)]
    assert subprocess.run(words, capture_output=True, check=False).returncode == 0


@pytest.mark.parametrize("more", ["", "spark2.lockstep "])
def test_a_public_half_is_taken(more, private, tmp_path, monkeypatch):
    text = more + private.with_name("public").read_text()
    monkeypatch.setattr("sys.stdin", io.StringIO(text))
    backup_ssh_key.main(["take", str(tmp_path / "taken")])
    assert (tmp_path / "taken").read_text() == text


@pytest.mark.parametrize(
    "text",
    ["", f'command="sh" {PUBLIC}', f"{PUBLIC}\n{PUBLIC}", "-----BEGIN OPENSSH PRIVATE KEY-----"],
)
def test_what_is_no_public_half_is_refused(text):
    with pytest.raises(errors.Problem, match="no public key"):
        backup_ssh_key.single_key(text)
