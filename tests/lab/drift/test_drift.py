"""Many kinds of drift: each is named, and then a deploy or its remedy puts it right. Evidence.

`planted_drifts.py` has the kinds. Where it says so, the remedy that `diff` names undoes them.
"""

import json
import os
import shlex
import subprocess
import sys

import pytest
from planted_drifts import ALONE, ENGINE, OTHER, PLANTS, SITE, WEIGHT
from stack import INVENTORY, REPOSITORY, Host

HISTORY = "/var/log/apt/history.log"
MARK = "/run/lockstep-test-mark"
# What a host writes by itself: logs of the ssh session and of Docker's containers.
OWN = "-path /var/log -o -path /var/lib/docker -o -path /var/tmp"
#: Kind of drift → a file of which one byte changes and no time stamp.
ROT = {"weights content": WEIGHT, "changed package file": f"{SITE}/idna/core.py"}


@pytest.fixture(scope="module")
def answer(stack, first):
    """Differences before, of each plant on the second host, and after."""
    result = subprocess.run(
        [sys.executable, str(REPOSITORY / "tests/proofs/drifting.py"), str(INVENTORY)],
        capture_output=True,
        text=True,
        cwd=REPOSITORY,
        env={**os.environ, **stack.environment},
        check=False,
    )
    assert result.returncode == 0, result.stderr[-4000:]
    return json.loads(result.stdout)


def test_every_kind_of_drift_is_named_with_who_puts_it_right(answer):
    unnamed_plants = {
        name: answer["found"][name]
        for name, plant in PLANTS.items()
        if not any(
            kind == plant.kind and plant.item in item and how == plant.how
            for kind, item, how in answer["found"][name]
        )
    }
    assert unnamed_plants == {}
    # Each was gone before the next were planted, and nothing else was ever named for good.
    assert answer["after"] == answer["before"]


def test_after_a_deploy_what_it_can_put_right_is_gone(answer, deployed_stack):
    two = deployed_stack.two
    earlier_drift = {tuple(entry) for entry in answer["before"]}
    names = [name for name, plant in PLANTS.items() if plant.how == "deploy"]
    names.sort(key=lambda name: name in ALONE)
    two.root("; ".join(f"bash -c {shlex.quote(PLANTS[name].shell)} || exit" for name in names))
    result = deployed_stack.diff("--fix", "--yes", "--json", "--limit", two.name)
    later_drift = json.loads(result.out)["differences"]
    two.root(f"rm -rf /run/drift-* {OTHER}")
    assert [item for item in later_drift if item["how"] == "deploy"] == [], result.err[-3000:]
    later_items = {(item["kind"], item["item"], item["how"]) for item in later_drift}
    assert later_items <= earlier_drift, result.err[-3000:]
    assert result.code == (1 if later_drift else 0)
    assert two.run(f"test -e {ENGINE}/check.json").code == 0


def test_rot_that_no_time_stamp_shows_is_found_by_reading_everything(deployed_stack):
    two = deployed_stack.two
    for number, path in enumerate(ROT.values()):
        two.root(
            f"cp -p {path} /run/rot{number}; printf X | dd conv=notrunc bs=1 seek=9 status=none"
            f" of={path}; touch -r /run/rot{number} {path}"
        )
    try:
        quick, deep = (drift(deployed_stack, *how) for how in ((), ("--deep",)))
    finally:
        for number, path in enumerate(ROT.values()):
            two.root(f"dd conv=notrunc status=none if=/run/rot{number} of={path};")
            two.root(f"touch -r /run/rot{number} {path}; rm /run/rot{number}")
    assert {kind for kind, _ in deep - quick} == set(ROT)


def drift(stack, *options):
    """Kind and item of every difference that `lockstep diff` names on the second host."""
    result = stack.diff("--json", *options, "--limit", "spark2")
    return {(item["kind"], item["item"]) for item in json.loads(result.out)["differences"]}


def plant(host: Host) -> None:
    """A run of apt through a proxy with a password, by somebody, in this boot."""
    entry = (
        "\\nStart-Date: $(date '+%F  %T')\\nCommandline: apt-get -o "
        "Acquire::http::Proxy=http://bob:hunter2@10.77.0.1:3128 install planted-package"
        "\\nRequested-By: spark (1000)\\nEnd-Date: $(date '+%F  %T')\\n"
    )
    host.root(f'printf "{entry}" >> {HISTORY}; touch {MARK}; sleep 0.01')


def private(host: Host) -> set[str]:
    """Words of the host's own files that name it or open a listener on it."""
    files = "/etc/lockstep/secrets/* /etc/machine-id /etc/ssh/ssh_host_*_key.pub"
    words = set(host.root(f"cat {files}; cat /sys/class/net/*/address; hostname -I").split())
    values = {word.rpartition("=")[2] for word in words}
    # An empty MAC of loopback is nobody's.
    return {word for word in words | values if len(word) > 8 and word != "00:00:00:00:00:00"}


def test_evidence_of_two_hosts(deployed_stack, tmp_path):
    """Every part answers, nothing is written there, and no secret is in it."""
    spark = deployed_stack.spark1
    plant(spark)
    result = deployed_stack.lockstep("evidence", "--output", str(tmp_path))
    assert result.code == 0, result.text
    find_command = f"find / -xdev \\( {OWN} \\) -prune -o -type f -newer {MARK} -print"
    assert spark.root(find_command) == ""
    page, record = (path.read_text() for path in sorted(tmp_path.iterdir()))
    first_host, two = json.loads(record)["hosts"]
    assert (first_host["name"], two["name"]) == ("spark-A", "spark-B")
    for host in (first_host, two):
        parts = host["parts"]
        facts = {fact["what"]: fact["found"] for part in parts.values() for fact in part["facts"]}
        assert facts["GPU"] == "NVIDIA GB10" and facts["locks"] == "free"
        assert "vllm" in facts and facts["ssh.service"].startswith("active")
        empty = [key for key, part in parts.items() if not part["facts"] and not part["lines"]]
        assert set(empty) <= {"starts"}
    assert "planted-package" in record and "planted-package" in page
    secrets = {"hunter2", "spark1", "spark2", *map("10.77.0.{}".format, (1, 11, 12))}
    for host in deployed_stack.hosts:
        secrets |= private(host)
    assert len(secrets) > 12
    assert [word for word in secrets if word in record or word in page] == []
