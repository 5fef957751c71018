"""Nothing that names the owner, or gives access to it, is in what is sent on; what is asked for
stays."""

import json
from collections.abc import Callable, Iterator
from itertools import cycle
from typing import Any

import pytest
from a_host_for_evidence import HOSTS, PLANS, answer, evidence

from lockstep.evidence import page
from lockstep.evidence.names import known_words
from lockstep.evidence.scrub import KnownWords, scrub

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
