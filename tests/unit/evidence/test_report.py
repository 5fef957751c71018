"""One file tells what Sparks are, each part under its question; what is missing is said."""

import json
from collections.abc import Callable, Iterator
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest
from a_host_for_evidence import HOSTS, PLANS, answer, evidence
from a_probe import program, snapshot_text
from an_inventory import TWO, write_inventory
from click.testing import Result
from over_ssh import invoke_lockstep

from lockstep.evidence import page, report
from lockstep.evidence.names import known_words
from lockstep.evidence.parts import NEEDED, PARTS
from lockstep.evidence.scrub import KnownWords, scrub
from lockstep.onhost.facts import logged_events

STARTS = report.questions(PLANS[0])["logged_events.last_start_lines"]


def kept_text(line: str) -> str:
    """The part of a line that is kept, by the engines' own words."""
    return logged_events.start_text_in_line(line, STARTS["tells"], STARTS["arguments"])


def test_each_question_of_the_first_hour_has_its_answer() -> None:
    host_evidence = evidence(answer())
    parts = host_evidence.document["hosts"][0]["parts"]
    found = {
        key: {fact["what"]: fact["found"] for fact in part["facts"]} for key, part in parts.items()
    }
    for part, item, value in (
        ("identity", "held: docker-ce", "5:29.2.1-1~ubuntu.24.04~noble"),
        ("docker", "made for driver: /var/run/cdi/nvidia.yaml", "580.95.05"),
        ("oom", "a session over SSH (this one)", "-900"),
    ):
        assert found[part][item] == value
    assert "package vim" not in found["identity"]
    assert "mirror registry.attic.example" not in found["docker"]
    # Beside it what `lockstep plan` says that each model asks for.
    assert 60 < float(found["memory"]["mistral needs GiB to start"]) < 110
    assert "gate: 83.1 of 121.7 GiB" in parts["starts"]["lines"][0]["text"][0]
    assert "Xid (PCI:000f:01:00): 13" in parts["driver"]["lines"][0]["text"][0]
    # Every part is told about every host that answered, and every part can be filled.
    assert list(parts) == [part.key for part in PARTS]
    assert all(value["facts"] or value["lines"] for value in parts.values())
    # Every kind that a host tells has its place, and only one.
    kinds = [kind for part in PARTS for kind in part.kinds]
    assert sorted([*kinds, "lines"]) == sorted([*answer()["facts"], NEEDED])


def test_a_host_or_part_that_is_missing_is_said_to_reader_and_owner() -> None:
    whole = answer() | {"faults": {}}
    assert evidence(whole, whole).code == 0
    half = evidence(whole, None)
    assert half.code == 1
    assert half.missing == (("spark-2.attic.example", "no connection: timed out"),)
    assert "did not answer: no connection: timed out" in page.render(half.document)
    part = evidence(answer())
    assert part.code == 1 and part.missing[0][0] == "spark-1.attic.example"
    assert "missing: machine.firmware: PermissionError" in page.render(part.document)
    assert evidence(None, None).code == 2
    # A host whose own names are not known is left out.
    host_answer = answer()
    host_answer["faults"]["identifying_words"] = "KeyError: 'x'"
    del host_answer["answers"]["identifying_words"]
    host_evidence = evidence(host_answer)
    [document] = host_evidence.document["hosts"]
    assert (host_evidence.code, document["parts"]) == (1, {})
    assert document["why"] == "its names are not known"


def test_a_page_needs_nothing_else_and_escapes_what_hosts_say() -> None:
    host_answer = answer()
    host_answer["facts"]["engine"]["<script>"] = "<i>"
    host_answer["facts"]["lines"]["gpu"] = "<i>"
    text = page.render(evidence(host_answer, answer()).document)
    assert "&lt;script&gt;" in text and "<script>" not in text and "<i>" not in text
    assert "http" not in text and "src=" not in text and "url(" not in text
    assert text.count("<h2") == len(PARTS)


def test_this_machine_answers_by_the_program_as_a_host_runs_it() -> None:
    document = json.loads(snapshot_text(report.questions(PLANS[0])))
    assert document["facts"]["kernel"]["release"]
    assert document["facts"]["memory now"]["MemTotal GiB"]
    assert document["facts"]["OOM score"]["a session over SSH (this one)"]
    assert document["answers"]["identifying_words"]["hosts"]
    # Whatever this machine lacks is named, and no reader fails by a fault of its own.
    readers = {"machine.kernel", "machine.software_releases", "evidence.oom_scores"}
    assert not readers & set(document["faults"])
    wrong = ("TypeError", "KeyError", "NameError", "AttributeError", "ImportError", "IndexError")
    assert not [why for why in document["faults"].values() if why.startswith(wrong)]


KEPT_LINES = [
    "18:12 vllm: lockstep gate: 17.3 GiB free, 101.2 GiB available of 83.0 needed: dropping",
    "18:12 vllm: Using 'MARLIN' NvFp4 MoE backend out of potential backends: ['MARLIN'].",
    "18:12 vllm: Model loading took 65.9 GiB and 300 seconds",
    "18:12 vllm: Available KV cache memory: 12.3 GiB",
    "18:12 sglang: Load weight end. type=X, dtype=bfloat16, avail mem=30.1 GB",
    "18:12 sglang: KV Cache is allocated. #tokens: 371661, K size: 12.74 GB",
    "18:12 sglang: ValueError: Loaded weights leave no GPU memory for the KV cache",
    "18:12 systemd: Started vllm.service - mistral",
]
PASSED_LINES = [
    "18:12 vllm: lockstep ready: waiting for the engine, 31 s of at most 1800",
    '18:12 vllm: "POST /v1/chat/completions HTTP/1.1" 200 OK',
    "18:12 sglang: Decode batch. #running-req: 1, #token: 512, gen throughput: 30.1",
]


def test_choices_of_a_start_are_kept_and_what_an_engine_says_all_day_is_not() -> None:
    assert [kept_text(line) for line in KEPT_LINES] == KEPT_LINES
    assert not any(map(kept_text, PASSED_LINES))
    # Of a line with every argument only the choices are taken.
    words = f"api_key='hunter2', x='{500 * 'y'}', attention_backend='triton', "
    line = f"18:12 sglang: server_args=ServerArgs({words}mem_fraction_static=0.65, port=1)"
    assert kept_text(line) == "attention_backend='triton' mem_fraction_static=0.65"
    # A long part keeps its beginning and its end.
    kind, part, text = logged_events.lines_fact("x", map(str, range(1000)))
    lines = str(text).splitlines()
    assert (kind, part) == ("lines", "x")
    assert lines[0] == "0" and lines[-1] == "999" and "(880 more lines)" in lines


ENTRY = '{"__REALTIME_TIMESTAMP":"1795371076000000","SYSLOG_IDENTIFIER":"vllm","MESSAGE":%s%s}'


def test_the_last_start_is_told_by_systemd_and_by_the_processes(tmp_path, monkeypatch):
    def put_journal(shell: str) -> None:
        program(tmp_path, "journalctl", shell)

    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    last = ENTRY % ('"Stopped vllm.service"', ',"INVOCATION_ID":"abc"')
    lines = [
        ENTRY % ('"lockstep gate: 118.0 GiB available"', ""),
        # Colours make a message that the journal gives as bytes.
        ENTRY % (list(b"Using \x1b[1mMARLIN\x1b[0m MoE backend"), ""),
        ENTRY % ("null", ""),
    ]
    journal_text = "\n".join(lines)
    put_journal(
        f"""case "$*" in *' -n 1') echo '{last}';;
        *' INVOCATION_ID=abc + _SYSTEMD_INVOCATION_ID=abc') cat <<'END'\n{journal_text}\nEND\n;;
        *) exit 3;; esac"""
    )
    [(_, part, text)] = logged_events.last_start_lines({**STARTS, "units": ["vllm.service"]})
    lines = ["lockstep gate: 118.0 GiB available", "Using MARLIN MoE backend"]
    assert text.splitlines() == [f"2026-11-22 18:11:16 vllm: {line}" for line in lines]
    assert part == "start of vllm.service"
    # One of which nothing is said is no fault.
    put_journal(f"case \"$*\" in *' -n 1') echo '{last}';; *) exit 1;; esac")
    [(_, _, text)] = logged_events.last_start_lines({**STARTS, "units": ["vllm.service"]})
    assert text == ""
    # The boot before may not be in the journal.
    entry = ENTRY % ('"NVRM: Xid (PCI:000f:01:00): 13"', "")
    put_journal(f"case \"$*\" in *' -b 0') echo '{entry}';; *) exit 1;; esac")
    assert {part: text for _, part, text in logged_events.kernel(None)} == {
        "kernel, this boot": "2026-11-22 18:11:16 vllm: NVRM: Xid (PCI:000f:01:00): 13",
        "kernel, the boot before": "(the journal has no boot before this one)",
    }


SSH = """\
case "$*" in
  *spark-2.local*) echo "ssh: connect to host spark-2.local port 22: refused" >&2; exit 255 ;;
esac
cat > FOLDER/sent
cat FOLDER/answer.json
"""


def run(tmp_path: Path, *words: str) -> Result:
    """The command on two hosts, of which one answers."""
    path = write_inventory(tmp_path, {name: {"ssh_user": "karl"} for name in TWO})
    (tmp_path / "answer.json").write_text(json.dumps(answer()))
    options = ("-i", str(path), "--output", str(tmp_path / "made" / "here"))
    return invoke_lockstep(
        tmp_path, SSH.replace("FOLDER", str(tmp_path)), "evidence", *options, *words
    )


def test_the_command_writes_a_page_and_json_and_says_what_is_missing(tmp_path: Path) -> None:
    result = run(tmp_path)
    assert result.exit_code == 1, result.output
    paths = sorted((tmp_path / "made/here").iterdir())
    assert [path.suffix for path in paths] == [".html", ".json"]
    assert str(paths[0]) in result.stdout and str(paths[1]) in result.stdout
    assert "spark-2.local: missing" in result.output
    document = json.loads(paths[1].read_text())
    assert [host["name"] for host in document["hosts"]] == ["spark-A", "spark-B"]
    assert "spark-2" not in paths[1].read_text() + paths[0].read_text()
    # One command on each host, with nothing to write there.
    assert json.loads((tmp_path / "sent").read_text())["package"]


def test_without_any_answer_or_a_folder_nothing_is_written(tmp_path: Path) -> None:
    result = run(tmp_path, "--limit", "spark-2.local")
    assert result.exit_code == 2
    assert not (tmp_path / "made").exists()
    (tmp_path / "made").write_text("a file")
    result = run(tmp_path)
    assert result.exit_code == 2 and "Not a directory" in result.output


NOBODY = KnownWords()


KEY_TEXT = "AAAAC3NzaC1lZDI1NTE5AAAAIJ5kY0v2n7Xq9pRtB3wLz8cD1mEoFhGuSaViNbQyTxWe"


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        (f"ssh-ed25519 {KEY_TEXT} anna@attic", KEY_TEXT),
        (f"ssh-ed25519 {KEY_TEXT} anna@attic", "anna@attic"),
        ("MD5:16:27:ac:a5:76:28:2d:36:63:1b:56:4d:eb:df:a6:48", "16:27:ac:a5"),
        ("-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1r\nZXktdjEA\n", "ZXktdjEA"),
        ("http_proxy=http://bob:hun/ter@2@proxy.attic:3128/", "ter"),
        ("WEBUI_ADMIN_PASSWORD=correct horse, battery", "battery"),
        ("args: Namespace(api_key='hunter2', port=1)", "hunter2"),
        ("--api-key hunter2", "hunter2"),
        ("ghp_16C7e42F292c6912E7710c838347Ae178B4a", "ghp_16C7"),
        ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.dozjgNryP4J3jVmN", "eyJzdWIiOiIxIn0"),
        ("bare aB3dE5fG7hI9jK1lM3nO5pQ7rS9tU1vW3xY5zA7b of random", "aB3dE5fG7hI9"),
        ("wg 4Xc0oD9cJdXv0yZr3m1/QbVn7uT5k+LwEaSfGhPiRj2=", "QbVn7uT5k"),
        ("vllm_dist_1f0e2d3c4b5a69788796a5b4c3d2e1f0 x", "1f0e2d3c"),
        ("GPU-6b1c2d3e-0a1b-2c3d-4e5f-6a7b8c9d0e1f", "6b1c2d3e"),
        ("link/ether 4c:bb:47:01:02:03 brd", "4c:bb:47:01:02:03"),
        ("link/infiniband 00:00:10:49:fe:80:00:00:00:00:00:00:a0:88", "fe:80"),
        ("enx4cbb47010203: carrier", "4cbb47010203"),
        ("node_guid a088:c203:00fe:1234", "a088:c203"),
        ("via 192.168.7.11:8000/x", "192.168.7.11"),
        ("inet6 fe80::4ebb:47ff:fe01:203%enP7s7/64", "4ebb"),
        ("inet6 addr:2001:db8::5 [2001:db8::5]:80 2001:db8::5: refused", "2001:db8"),
        ("inet6 ::ffff:10.0.0.5", "10.0.0.5"),
        ('DGX_SERIAL_NUMBER="1794824001337"', "1794824001337"),
        ("mail to anna.lovelace+x@mail.attic.example", "anna.lovelace"),
        ("http://spark-9.local:80 and spark-9.local", "spark-9"),
    ],
)
def test_of_each_kind_nothing_is_left(text: str, secret: str) -> None:
    # Their plain forms are planted everywhere, below.
    assert secret in text
    assert secret not in scrub(text, NOBODY)


def test_what_an_owner_is_asked_for_stays() -> None:
    for text in (
        "5:29.2.1-1~ubuntu.24.04~noble",
        "6.17.0-1031-nvidia",
        "0.17.2.dev0+g8e6f4314.precompiled",
        "2026-11-22 18:11:16 kernel: NVRM: Xid (PCI:000f:01:00): 13",
        "0000000F:01:00.0",
        "listens at 127.0.0.1 and ::1, 0.0.0.0",
        "Using FlashInferCutlassNvFp4LinearKernel for NVFP4 GEMM",
        "Using AttentionBackendEnum.TRITON_ATTN backend.",
        "GPU KV cache size: 1,048,576 tokens, Maximum concurrency for 1,024 tokens: 9.00x",
        "lockstep gate: 83.1 of 121.7 GiB available, 79.0 GiB needed",
        "NVRM: nvAssertOkFailedNoLog: NV_ERR_NO_MEMORY [0x51] _memdescAllocInternal @ mem_desc.c",
        "enp1s0f0np0 rocep1s0f0 roceP2p1s0f0 carrier yes, mtu 9000",
        "PixtralRotaryEmbedding from transformers.models.pixtral.modeling_pixtral",
        "/opt/lockstep/engines/current/venv/lib/python3.12/site-packages/vllm/model_executor",
        "getty@tty1.service, nvidia-spark-run-apt-upgrade-once.service, netplan@a.target",
        "68d4993b48304043",
    ):
        assert scrub(text, NOBODY) == text


def test_hosts_and_people_can_still_be_told_apart() -> None:
    names = known_words(HOSTS, {PLANS[0].name: answer()["answers"]["identifying_words"]})
    text = (
        "SPARK-1 spark-1.attic.example.: Anna Lovelace (anna) as karl@spark-c0ffee.lan, spark-2,"
        " nas.attic.example, proxy.attic.example, 1794824001337, To Be Filled By O.E.M."
    )
    assert scrub(text, names) == (
        "spark-A spark-A.: account-1 (account-1) as account-2@spark-A, spark-B,"
        " [host], [host], [serial], To Be Filled By O.E.M."
    )
    # A name that is a word of the page does not make it unreadable.
    own = {"hosts": ["spark"], "accounts": [["nvidia", "", "nvidia"]]}
    names = known_words(HOSTS[:1], {PLANS[0].name: own})
    text = "nvidia-smi of dgx-spark-ota-update-meta, /home/nvidia/x"
    assert scrub(text, names) == "nvidia-smi of dgx-spark-ota-update-meta, /home/[account]/x"


WORD, RANDOM = "qwordofanownerz", "aB3dE5fG7hI9jK1lM3nO5pQ7rS9tU1v"
#: Kind → what is planted, and how it stands in what a host says.
PLANTED = {
    "hub token": (f"hf_{RANDOM}", "{}"),
    "API key": (f"sk-{RANDOM}", "{}"),
    "bearer": (RANDOM, "Bearer {}"),
    "password": (WORD, "password: {}"),
    "password in JSON": (WORD, '{{"sudo_password": "{}"}}'),
    "login in a URL": (WORD, "https://x:{}@example.org/y"),
    "SSH key": (f"AAAAC3{RANDOM}", "ssh-ed25519 {} x"),
    "fingerprint": (RANDOM, "SHA256:{}"),
    "serial": ("1794824001337", "Serial Number: {}"),
    "machine-id": ("a95f5139615f4bbaa29921a29574c7a7", "{}"),
    "UUID": ("6b1c2d3e-0a1b-2c3d-4e5f-6a7b8c9d0e1f", "{}"),
    "MAC": ("4c:bb:47:01:02:03", "{}"),
    "MAC with dashes": ("4c-bb-47-01-02-03", "{}"),
    "address": ("192.168.73.211", "{}"),
    "address of IPv6": ("2001:0db8:85a3:08d3:1319:8a2e:0370:7344", "{}"),
    "host on the local network": (WORD, "{}.local"),
    "mail": (WORD, "{}@attic.example"),
    "home": (WORD, "/home/{}/x"),
}
#: Kind → where the host or the inventory names it, so that it is known wherever it stands.
NAMED: dict[str, Callable[[dict[str, Any], str], None]] = {
    "host name": lambda own, text: own["hosts"].insert(0, text),
    "peer": lambda own, text: own["hosts"].append(f"{text}.attic.example"),
    "account": lambda own, text: own["accounts"].append([text, "", text]),
    "full name": lambda own, text: own["accounts"].append(["x1", text, "x1"]),
    "domain": lambda own, text: own["domains"].append(f"{text}.example"),
    "serial of firmware": lambda own, text: own["serials"].append(f"{text}7"),
}


#: What stands before it.
BEFORE = (" ", "_", "=", "(", '"', "/", ",", ": ", "\n")


def everywhere(value: Any, text: str, separators: Iterator[str] | None = None) -> Any:
    """An answer with `text` behind each of its texts, after one separator and then another."""
    separators = separators or cycle(BEFORE)
    if isinstance(value, dict):
        return {key: everywhere(item, text, separators) for key, item in value.items()}
    if isinstance(value, list):
        return [everywhere(item, text, separators) for item in value]
    return f"{value}{next(separators)}{text}"


def planted_files(text: str, own: dict[str, Any] | None = None) -> tuple[str, str]:
    """JSON and HTML of evidence with this text in every field, of a host and of ssh's own words."""
    planted_answer = everywhere(answer(), text)
    # Names of facts come from a host as well: of packages, devices, interfaces, files.
    planted_answer["facts"] = {
        kind: {**items, **{f"{name} {text}": value for name, value in items.items()}}
        for kind, items in planted_answer["facts"].items()
    }
    planted_answer["faults"] |= {f"part {text}": text}
    planted_answer["answers"] = {"identifying_words": own} if own else answer()["answers"]
    document = evidence(planted_answer, None, fault=f"no connection: {text}").document
    return json.dumps(document, ensure_ascii=False), page.render(document)


@pytest.mark.parametrize("kind", PLANTED)
def test_nothing_planted_in_any_field_is_in_the_files(kind: str) -> None:
    secret, phrase = PLANTED[kind]
    for text in planted_files(phrase.format(secret)):
        assert secret not in text


@pytest.mark.parametrize("kind", NAMED)
def test_a_name_of_a_host_is_found_anywhere(kind: str) -> None:
    own: dict[str, Any] = {"hosts": ["spark-c0ffee"], "accounts": [], "domains": [], "serials": []}
    NAMED[kind](own, WORD)
    tail = {"peer": ".attic.example", "domain": ".example", "serial of firmware": "7"}
    for phrase in (f"{WORD}{tail.get(kind, '')}", f"({WORD.upper()}{tail.get(kind, '')}):"):
        for text in planted_files(phrase, own):
            assert WORD not in text.lower()


def test_only_words_of_the_page_itself_are_keys_of_the_document() -> None:
    """`scrubbed` leaves keys as they are, so that none of them may come from a host."""

    def keys(value: Any) -> set[str]:
        if isinstance(value, dict):
            return set(value).union(*map(keys, value.values()))
        return set().union(*map(keys, value)) if isinstance(value, list) else set()

    words = keys(evidence(answer()).document)
    assert words == keys(evidence(everywhere(answer(), "x")).document)
    assert not {word for word in words if not word.isalpha()}
