"""Evidence of two hosts: every part answers, nothing is written there, and no secret is in it."""

import json

from stack import Host

HISTORY = "/var/log/apt/history.log"
MARK = "/run/lockstep-test-mark"
# What a host writes by itself: logs of the ssh session and of Docker's containers.
OWN = "-path /var/log -o -path /var/lib/docker -o -path /var/tmp"


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
