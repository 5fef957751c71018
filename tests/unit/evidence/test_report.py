"""One file tells what Sparks are, each part under its question; what is missing is said."""

import json
from pathlib import Path

from a_host_for_evidence import PLANS, answer, evidence
from a_probe import program, snapshot_text
from an_inventory import TWO, write_inventory
from click.testing import Result
from over_ssh import invoke_lockstep

from lockstep.evidence import page, report
from lockstep.evidence.parts import NEEDED, PARTS
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
        ("identity", "DGX_OTA_VERSION", "7.5.0"),
        ("identity", "factory: DGX_SWBUILD_VERSION", "7.2.3"),
        ("identity", "held: docker-ce", "5:29.2.1-1~ubuntu.24.04~noble"),
        ("docker", "made for driver: /var/run/cdi/nvidia.yaml", "580.95.05"),
        ("memory", "MemAvailable GiB", "102.20"),
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
