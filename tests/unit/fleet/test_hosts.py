"""Hosts of an inventory over ssh: which are asked, what an answer is, what a missing one says."""

import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from a_probe import program
from an_inventory import ANNA, write_inventory

from lockstep.core import product
from lockstep.core.errors import InventoryError
from lockstep.fleet import hosts
from lockstep.fleet.login import Login

SPARK = Login("spark-1", ("ssh", "--", "spark-1"))


@pytest.fixture
def inventory(tmp_path: Path) -> Path:
    hosts = {
        "spark-1.local": {"ssh_user": "anna", **ANNA},
        "@docker/spark-2": ANNA,
        "spark-3.local": {"_sudo": False, **ANNA},
    }
    return write_inventory(tmp_path, hosts)


@pytest.fixture
def put_ssh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Let ssh be these lines of shell."""
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/usr/bin:/bin")
    return partial(program, tmp_path / "bin", "ssh")


def test_named_hosts_come_in_the_inventory_s_order_and_once(inventory: Path) -> None:
    every, chosen_hosts = hosts.choose(inventory, ("spark-3.local", "spark-1.local") * 2)
    assert [host.name for host in every] == ["spark-1.local", "@docker/spark-2", "spark-3.local"]
    assert [host.name for host in chosen_hosts] == ["spark-1.local", "spark-3.local"]
    assert [host.with_sudo for host in chosen_hosts] == [True, False]
    assert "User=anna" in chosen_hosts[0].login.words
    assert hosts.choose(inventory) == (every, every)
    with pytest.raises(InventoryError) as fault:
        hosts.choose(inventory, ("spark-1.local", "spark-9"), remedy="Look again.")
    assert (fault.value.found, fault.value.remedy) == ("spark-9", "Look again.")
    assert fault.value.allowed == "spark-1.local, @docker/spark-2, spark-3.local"


def test_a_command_that_did_not_run_says_why(put_ssh: Callable[[str], None]) -> None:
    for ssh, fault in (
        ("echo a; echo timed  out >&2; exit 255", "no connection: timed out"),
        ("exit 255", "no connection: it ended with 255"),
        (
            "echo sudo: a password is required >&2; exit 1",
            "sudo: a password is required. Let the account use sudo without a password: nobody is "
            "asked for one here.",
        ),
        ("echo busy >&2; exit 75", ""),
        ("echo 'sh: 1: /data/x.sh: not found' >&2; exit 127", hosts.NOT_DEPLOYED),
        ("echo 'sh: 1: /data/y.sh: not found' >&2; exit 127", ""),
    ):
        put_ssh(ssh)
        assert hosts.ask(SPARK, ["/data/x.sh", "status"]).fault == fault
    # A host without our programs is not deployed yet.
    for words in ("can't open file", "can't find '__main__' module in"):
        err = f"/usr/bin/python3: {words} '/usr/local/lib/lockstep': [Errno 2] No such file\n"
        answer = hosts.answer_of(SPARK, 2, "", err)
        assert answer.fault.startswith("not deployed yet")
        assert hosts.answer_of(SPARK, 2, "", "can't open file '/etc/x'").fault == ""


def test_without_ssh_or_an_answer_in_time_that_is_said(put_ssh, monkeypatch) -> None:
    put_ssh("exec sleep 60")
    answer = hosts.ask(SPARK, ["true"], limit_s=0.1)
    assert answer.fault == "no answer within 0 s" and answer.code != 0
    monkeypatch.setenv("PATH", "/nowhere")
    assert hosts.ask(SPARK, ["true"]).fault == "ssh cannot be run: No such file or directory"
    assert hosts.ask(Login("@local", ()), ["/data/x.sh", "status"]).fault == hosts.NOT_DEPLOYED


def test_a_readers_answer_or_its_fault(tmp_path: Path, put_ssh: Callable[[str], None]) -> None:
    for ssh, expected_answer in (
        ("""echo '{"answers": {"link": [1]}, "faults": {}}'""", ([1], "")),
        ("""echo '{"answers": {}, "faults": {"link": "KeyError: 1"}}'""", (None, "KeyError: 1")),
        ("echo lost >&2; exit 255", (None, "no connection: lost")),
    ):
        put_ssh(f'echo "$*" > {tmp_path}/asked; cat > /dev/null; {ssh}')
        assert hosts.read(SPARK, "link", {}, sudo=True, limit_s=60) == expected_answer
        assert (
            (tmp_path / "asked").read_text().startswith("-- spark-1 sudo -n /usr/bin/python3 -I -c")
        )


def test_a_command_gets_words_and_input_all_at_once(put_ssh: Callable[[str], None]) -> None:
    together = threading.Barrier(3, timeout=180)

    def work(number: int) -> int:
        together.wait()
        return number * 10

    assert hosts.at_once(work, [1, 2, 3]) == [10, 20, 30]
    assert hosts.at_once(work, []) == []
    put_ssh('echo "$*"; cat; exit 3')
    answer = hosts.ask(SPARK, ["cat", "/a b"], text="given")
    assert (answer.code, answer.out) == (3, "-- spark-1 cat '/a b'\ngiven")
    assert (answer.fault, answer.error_text) == ("", "it ended with 3")


def test_a_deploy_is_pyinfra_s_own_with_the_owner_s_files_if_any(inventory: Path) -> None:
    pyinfra = str(Path(sys.executable).with_name("pyinfra"))
    words = [pyinfra, "-y", "--limit", "a", "--limit", "b"]
    config, program = (str(product.OWNER / name) for name in ("config.py", "deploy.py"))
    command = hosts.deploy_command(inventory, ["a", "b"])
    assert command == [*words, "--config", config, str(inventory), program]
    for name in ("config.py", "deploy.py"):
        inventory.with_name(name).touch()
    command = hosts.deploy_command(inventory)
    assert (command[2:4], command[-1]) == (["--config", "config.py"], "deploy.py")
