"""Secrets that a command prints or a file holds: had once, and never in a message."""

from __future__ import annotations

import resource
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from a_spark import spark

from lockstep.core.errors import InventoryError, LockstepError
from lockstep.inventory import secret
from lockstep.inventory.secret import SecretSource

SECRET = "hf_Geheim-4711"


@pytest.fixture(autouse=True)
def _forget_secrets() -> None:
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


def test_what_a_command_prints_is_the_secret_without_the_end_of_its_line() -> None:
    assert read(says(f"print('{SECRET}')")) == SECRET
    # PEM has several lines.
    assert read(says("print('a\\nb\\n')"), lines=True) == "a\nb"


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
    assert runs.read_text() == "x"


@pytest.mark.parametrize(
    ("code", "fragment"),
    [
        (f"import sys; print('{SECRET}'); sys.exit('{SECRET}')", "it ended with 1"),
        ("print()", "nothing"),
        (f"print('{SECRET}\\nand more')", "more than one line"),
        (f"print('{SECRET}ß')", "more than one line, or characters beyond ASCII"),
        ("import sys; sys.stdout.buffer.write(bytes([255]))", "no text in UTF-8"),
        (f"print('{SECRET}' * 10000)", "more than 65536 bytes"),
    ],
)
def test_one_that_gives_none_is_named_but_not_what_it_printed(
    code: str, fragment: str, capfd: pytest.CaptureFixture[str]
) -> None:
    message = refusal(says(code))
    assert message.startswith("spark-1.local: the command of hub_token gives no secret; found `")
    assert f"`: {fragment}" in message
    # The command itself is shown, and holds the words of this test.
    assert SECRET not in message.replace(code, "").replace(code.replace("'", "'\"'\"'"), "")
    assert capfd.readouterr() == ("", "")


def test_one_that_hangs_is_ended_although_its_child_holds_the_pipe(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
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


@pytest.mark.parametrize(
    "value",
    [
        *({}, {"command": ()}, {"command": ("",)}, {"file": ""}),
        *({"command": ("op",), "file": "/token"}, {"command": ("op", "a\0b")}, SECRET),
    ],
)
def test_an_inventory_names_a_command_or_a_file(value: object) -> None:
    with pytest.raises(InventoryError, match="hub_token"):
        spark(hub_token=value)


def test_half_a_certificate_on_the_host_is_refused() -> None:
    tls = {"certificate": "/etc/ssl/a.pem", "key": {"command": ("op", "read", "op://a/b")}}
    with pytest.raises(InventoryError, match="one half on the host"):
        spark(gateway={"bind": "0.0.0.0", "tls": tls})
