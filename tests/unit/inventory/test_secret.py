"""Secrets that a command prints or a file holds: had once, and never in a message; logins."""

import resource
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from a_spark import spark

from lockstep.core.errors import LockstepError
from lockstep.inventory import secret
from lockstep.inventory.logins import logged_in
from lockstep.inventory.secret import SecretSource

SECRET = "hf_Geheim-4711"


@pytest.fixture(autouse=True)
def _forget_secrets():
    secret._text.cache_clear()


def says(code: str) -> SecretSource:
    """A command that runs a program."""
    return SecretSource((sys.executable, "-c", code))


def read(source: SecretSource, **more: bool) -> str:
    return secret.read(source, key="hub_token", where="spark-1.local", **more)


def refusal(source: SecretSource) -> str:
    with pytest.raises(LockstepError) as error:
        read(source)
    return str(error.value)


def test_a_file_holds_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "token").write_text(f"{SECRET}\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert read(SecretSource(file="~/token")) == SECRET
    assert "`~/none`: No such file" in refusal(SecretSource(file="~/none"))
    assert "`op-none read`: No such file" in refusal(SecretSource(("op-none", "read")))


def test_a_command_is_asked_once_however_many_want_it(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    source = says(
        f"import time; open({str(runs)!r}, 'a').write('x'); time.sleep(0.1); print('{SECRET}')"
    )
    threads = [threading.Thread(target=read, args=(source,)) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (read(source), runs.read_text()) == (SECRET, "x")
    # PEM has several lines.
    assert read(says("print('a\\nb\\n')"), lines=True) == "a\nb"


@pytest.mark.parametrize(
    ("code", "fragment"),
    [
        (f"import sys; print('{SECRET}'); sys.exit('{SECRET}')", "it ended with 1"),
        ("print()", "nothing"),
        (f"print('{SECRET}ß')", "more than one line, or characters beyond ASCII"),
        ("import sys; sys.stdout.buffer.write(bytes([255]))", "no text in UTF-8"),
        (f"print('{SECRET}' * 10000)", "more than 65536 bytes"),
    ],
)
def test_one_that_gives_none_is_named_but_not_what_it_printed(code: str, fragment: str, capfd):
    message = refusal(says(code))
    assert message.startswith("spark-1.local: the command of hub_token gives no secret; found `")
    assert f"`: {fragment}" in message
    # The command itself is shown, and holds the words of this test.
    assert SECRET not in message.replace(code, "").replace(code.replace("'", "'\"'\"'"), "")
    assert capfd.readouterr() == ("", "")


def test_one_that_hangs_is_ended_although_its_child_holds_the_pipe(monkeypatch):
    monkeypatch.setattr(secret, "LIMIT_S", 0.5)
    child = f"import time; print('{SECRET}', flush=True); time.sleep(30)"
    source = says(f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])")
    assert "it did not end within 0 s" in refusal(source)


def test_a_process_that_has_read_one_leaves_no_image_of_its_memory() -> None:
    code = (
        "import resource; from lockstep.inventory import secret as s;"
        " s.read(s.SecretSource(('echo', 'x')), key='k', where='h');"
        " print(resource.getrlimit(resource.RLIMIT_CORE)[0])"
    )
    limit = subprocess.check_output([sys.executable, "-c", code])
    # Not 0: core(5), "Piping core dumps to a program".
    most = resource.getrlimit(resource.RLIMIT_CORE)[1]
    assert int(limit) == (min(most, 1) if most != resource.RLIM_INFINITY else 1)


SERVER = "https://mirror.lan:8443"


def test_every_address_at_the_server_gets_it_and_no_other(tmp_path: Path):
    (tmp_path / "login").write_text("anna:p@ss/w?rd\\1\n")
    plan = spark(
        sources={
            "python_index": f"{SERVER}/simple",
            "torch_index": "https://mirror.lan:84431/whl",
            "git": {"https://github.com/": f"{SERVER}/git/", "https://x.org/": "git@host:p"},
            "apt": (f"deb {SERVER}/apt stable main", "deb http://mirror.lan/apt stable main"),
        },
        proxy={"https": SERVER},
        logins={SERVER: {"file": str(tmp_path / "login")}},
    )
    settings = logged_in(plan).settings
    address = "https://anna:p%40ss%2Fw%3Frd%5C1@mirror.lan:8443"
    assert settings.sources.python_index == f"{address}/simple"
    assert settings.sources.torch_index == "https://mirror.lan:84431/whl"
    git = {"https://github.com/": f"{address}/git/", "https://x.org/": "git@host:p"}
    assert settings.sources.git == git
    apt = (f"deb {address}/apt stable main", "deb http://mirror.lan/apt stable main")
    assert settings.sources.apt == apt
    assert (settings.proxy.https, settings.proxy.http) == (address, None)
    # What only looks sees the inventory's own.
    assert plan.settings.sources.python_index == f"{SERVER}/simple"
