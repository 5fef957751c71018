"""`lockstep alert test`: what each receiver did, by Spark."""

import json
from pathlib import Path

from click.testing import Result
from over_ssh import invoke_lockstep

TELL = ({"ntfy": "https://ntfy.sh/secret-topic"}, {"webhook": "http://10.0.0.9:8/x"})
HOSTS = {
    "spark-1.local": {"ssh_user": "anna", "monitoring": {"enabled": True, "tell": TELL}},
    "spark-2.local": {"ssh_user": "anna", "monitoring": {"enabled": True}},
}


def run(inventory: Path, ssh: str, *words: str) -> Result:
    text = f'echo "$*" > "$(dirname "$0")/asked"\n{ssh}'
    return invoke_lockstep(inventory.parent, text, "alert", "test", "-i", str(inventory), *words)


def test_each_receiver_that_took_the_message_is_named(inventory: Path) -> None:
    result = run(inventory, """echo '{"1-ntfy": "", "2-webhook": ""}'""")
    assert result.exit_code == 0, result.output
    assert result.output.splitlines() == [
        # The topic is as good as a password.
        "spark-1.local: 1-ntfy (https://ntfy.sh): took the message",
        "spark-1.local: 2-webhook (http://10.0.0.9:8): took the message",
    ]
    command = (inventory.parent / "bin/asked").read_text()
    assert command.rstrip().endswith(
        "alert-test spark-1.local 9093 1-ntfy=webhook 2-webhook=webhook"
    )
    assert "secret-topic" not in command


def test_a_receiver_or_a_spark_that_fails_is_named_with_a_remedy(inventory: Path) -> None:
    result = run(inventory, "exit 1", "spark-2.local")
    assert result.exit_code == 2
    assert "nobody is told of alerts; found spark-2.local" in " ".join(result.output.split())
    assert not (inventory.parent / "bin/asked").exists()
    answer = '{"1-ntfy": "it did not take the message", "2-webhook": ""}'
    result = run(inventory, f"echo '{answer}'; exit 1")
    assert result.exit_code == 1
    assert "1-ntfy (https://ntfy.sh): it did not take the message" in result.output
    assert "→ on spark-1.local: journalctl -u lockstep-alertmanager.service" in result.output
    data = json.loads(run(inventory, f"echo '{answer}'", "--json").output)
    assert data["spark-1.local"]["receivers"]["2-webhook"] == ""
    result = run(inventory, "echo 'Alertmanager at port 9093: refused' >&2; exit 2")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "spark-1.local: Alertmanager at port 9093: refused" in result.stderr
