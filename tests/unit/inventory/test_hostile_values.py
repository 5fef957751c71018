"""Wrong values of each inventory key, from slips to hostile: refused before any connection.

`plan` and the deploy accepted most of them until 2026-11-22.
"""

from typing import Any

import pytest
from a_spark import spark

from lockstep.core.errors import InventoryError
from lockstep.deploy.checked import rehearse
from lockstep.inventory.bound_models import GATEWAY_TOOLS
from lockstep.monitoring.stack import PACKAGED_UNITS
from lockstep.system.base_files import SYSTEM_SERVICES
from lockstep.units.tls_unit import PACKAGED_UNIT

QWEN = {"recipe": "qwen3.6-35b-a3b-prismaquant-dflash-k3", "unit": "vllm-qwen36"}

TOOLS = {"uv": "uv", **{name: name for name in GATEWAY_TOOLS}}


#: Units of the system that a host of Lockstep cannot do without.
NEEDED = [
    name.removesuffix(".service")
    for name in (*SYSTEM_SERVICES, *PACKAGED_UNITS.values(), PACKAGED_UNIT)
]


def model(**data: object) -> dict[str, object]:
    return {"models": {"qwen": {**QWEN, **data}}}


def setting(key: str, value: object) -> dict[str, object]:
    """One value of a key; of `key[0]`, of a list that holds it alone."""
    return {key.removesuffix("[0]"): (value,) if key.endswith("[0]") else value}


_TREE = "transformers @ git+"
FORK = "mistral-small-4-119b-nvfp4-vllm-fork"
SECRET, LOGIN = "me:s3cret@example.org:8443/v.git", {"docker.io": "me:s3cret@mirror:5000"}
Q = {"q": {**QWEN, "fallback": FORK}}
M = {"recipe": FORK, "unit": "vllm-qwen36-fallback", "port": 9000}
PEER = {"enabled": True, "to": ("peer",), "port": 8090}
NO_SERVERS = ("https://mirror.lan:8443/", "mirror.lan", "https://anna@mirror.lan")
HALF = {"certificate": "/etc/ssl/a.pem", "key": {"file": "~/key"}}
TWO_VLLMS = {"git": "https://example.org/v.git", "release": "vllm==0.20.2"}
PAST_THE_LOCK = {"build_environment": {"VLLM_PRECOMPILED_WHEEL_COMMIT": "x"}}
#: Values that are slips: the beginning of what is said, and hosts' data that hold one.
WRONG: list[tuple[str, dict[str, object]]] = [
    ("models is empty", {"models": {}}),
    ("models.none is not a name that switch.sh can take", {"models": {"none": QWEN}}),
    ("models.qwen.fallback names an unknown recipe; found 'c'", model(fallback="c")),
    ("models.qwen.image has a digest that is not a digest", model(image="a/b@sha256:abc")),
    ("models.qwen.image is given, but its recipe runs in", model(recipe=FORK, image="a/b:1")),
    ("models.qwen.sense has no record of answers any more", model(sense="record")),
    ("models.qwen.scripts[0] needs a full path", model(scripts=("q.sh",))),
    ("boot names model qwen, whose recipe ", {"boot": "qwen"}),
    ("webui.unit is also the unit of a model", model(unit="open-webui")),
    ("models.m.unit is used twice; found 'vllm-qwen36-fallback', also", {"models": {**Q, "m": M}}),
    ("models.q-fallback has the name of the fallback", {"models": {**Q, "q-fallback": M}}),
    ("models.qwen.fallback is the recipe itself", model(fallback=QWEN["recipe"])),
    ("models.qwen.fallback_overrides has no effect", model(fallback_overrides={"seed": 1})),
    ("gateway.tls has one half on the host", {"gateway": {"bind": "0.0.0.0", "tls": HALF}}),
    ("logins names a server that no address", {"logins": {"https://mirror.lan": {"file": "/x"}}}),
    ("proxy.http is not an address; found 'h:1'", {"proxy": {"http": "me:s3cret@h:1"}}),
    (
        'hub_token must be a mapping; found a value that is not shown. Write {"file": "PATH"} or',
        {"hub_token": "hf_s3cret"},
    ),
    ("sources.registries['docker.io'] is not", {"sources": {"registries": LOGIN}}),
    ("engine.git holds a login, which would stand", {"engine": {"git": f"https://{SECRET}"}}),
    (
        "engine.transformers holds a login",
        {"engine": {"transformers": f"{_TREE}https://{SECRET}@a"}},
    ),
    ("backup.to has no effect without backup.enabled", {"backup": {"to": ("/a", "/b")}}),
    ("backup.port: port 8090 is used twice", {"backup": PEER}),
    ("proxy.http spans lines", {"proxy": {"http": "http://a\nb"}}),
    ("python is not a version of the interpreter", {"python": "3.12.4"}),
    ("waive[1] names a finding that no deploy", {"waive": ("dgx-os", "architecture")}),
    ("waive[1] is the code of no finding; found 'clok'", {"waive": ("dgx-os", "clok")}),
    ("accept_licences[0] is no licence that", {"accept_licences": ("LicenseRef-of-nobody",)}),
    ("adopt[1] names nothing that can be taken over", {"adopt": ("/etc/x", "vllm")}),
    ("engine.git and engine.release name two vLLMs", {"engine": TWO_VLLMS}),
    ("engine.git is not an address", {"engine": {"git": "https://[fd00::1/v.git"}}),
    ("engine.precompiled_commit is not a whole", {"engine": {"precompiled_commit": "abc123"}}),
    ("engine.precompiled_variant is not the name", {"engine": {"precompiled_variant": "../a"}}),
    ("engine.build_environment.VLLM_PRECOMPILED_WHEEL_COMMIT is", {"engine": PAST_THE_LOCK}),
    ("sources.plain_registries[0] is not", {"sources": {"plain_registries": ("m:5000/hub",)}}),
]
#: Key of a model, as a message has it → hostile values; a list's are each alone in their list.
OF_A_MODEL: dict[str, tuple[object, ...]] = {
    "unit": ("lockstep-firewall", "systemd-logind", "a" * 65, "../ssh", "-a", *NEEDED),
    "launcher": (
        *("/data/x.sh", "/data/scripts/../../etc/passwd", "/data/scripts", "/data/scripts/llm"),
        *("/data/scripts//llm/a.sh", "/data/scripts/$(reboot)", "/data/scripts/%i", "a.sh"),
    ),
    "scripts[0]": ("/etc/sudoers",),
    "bind": ("0.0.0.0; reboot", "--api-key", "224.0.0.1"),
    "port": (22, 80, 11000, 7077, 70000),
    "engine_port": (22,),
    "image": ("--privileged", "x --volume /:/host", "-v@sha256:" + 64 * "0"),
    "start_timeout_s": (0, 10**9),
    "aliases[0]": ("a b", "auto", "qwen"),
}
#: Likewise of a host, by the section of the inventory; "" has the keys that stand in none.
OF_A_HOST: dict[str, dict[str, tuple[object, ...]]] = {
    "paths": {
        "engines": (*("/", "/opt", "/usr", "/etc", "/var/lib/docker", "/data/models/huggingface"),),
        "models": ("/home/spark", "/data/../etc", "/opt/lockstep/engines/models", "/data/$HOME"),
        "scripts": ("/tmp/x", "data", "/a//b", "/data/x/", "/data/models/huggingface/scripts"),
    },
    "": {
        "operators[0]": ("-G docker", "a,b", "a@", "@b", "a@-b", "a@b@c"),
        "docker_users[0]": ("ALL ALL=(ALL)",),
        "packages[0]": ("jq; reboot", "-oAPT::Update::Pre-Invoke::=x", "openssh-server-", "jq=1.0"),
        "sysctls": (
            *({"vm.swappiness; reboot": "1"}, {"-w": "1"}, {"vm.swappiness": "$(reboot)"}),
            *({"kernel.core_pattern": "|/bin/sh -c reboot"}, {"vm.min_free_kbytes": "120000000"}),
        ),
        "copy_port": (22,),
        "hub_token": ({}, {"command": ("",)}, {"command": ("op",), "file": "/token"}, "hf_s3cret"),
        "logins": tuple({server: {"file": "/x"}} for server in NO_SERVERS),
        "extra_files": ({"/etc/lockstep/mine.json": "x"}, {"etc/mine": "x"}),
        "lock": ("/etc/passwd", "../../x.lock.yaml", ".lock.yaml"),
        "login": ("ssh spark\x1b[2J",),
        "fabric_address": ("0.0.0.0", "127.0.0.1", "10.0.0.1/24"),
        "adopt[0]": ("", "/", "*", "unit ", "unit a b", "service vllm", "/etc/../etc", "/a/"),
    },
    "webui": {
        "unit": ("nftables", "a.service"),
        "port": (22, 7077, 11000, True),
        "bind": ("example.org",),
        "volume": ("/etc", "a,volume-opt=device=/", "vllm-qwen36-cache"),
        "admin_email": ("a@b WEBUI_AUTH=false",),
        "image": ("--privileged",),
    },
    "gateway": {
        "bind": ("example.org", "0.0.0.0"),
        "port": (22, 7077, 30001),
        "tls": ("https", "own"),
        "plain": (True,),
        "local_keys": (True,),
        "least_hot_s": (-1,),
        "queue": (0,),
        "ttl_s": (59, 72_001),
        "keepalive_s": (0,),
        "origins[0]": (
            *("*", "null", "https://*.example", "https://a.example/", "https://A.example"),
            *("https://a:443", "http://a:80", "https://u@a.example", "https://a\r\nx: y"),
        ),
        "peers[0]": ("-oProxyCommand=reboot",),
    },
    "backup": {
        "to[0]": ("twin", "/a/../b", "sftp:-oProxyCommand=x@h:/a"),
        **{"keep_daily": (0,), "hour": (24,), "password": ("open",)},
    },
    "firewall": {"ssh_ports": ((),), "peers[0]": ("0.0.0.0/0", "::/0")},
    "sources": {
        "apt[0]": ("APT::Update::Pre-Invoke reboot",),
        "git": ({"https://a/": "ext::sh -c reboot"}, {"https://a/": "--upload-pack=reboot"}),
    },
    "engine": {
        "git": ("ext::sh -c reboot", "--upload-pack=reboot"),
        "branch": ("--upload-pack=reboot", "a b"),
        "commit": ("--hard",),
        "transformers": (
            "transformers; reboot",
            f"{_TREE}https://a/t.git@HEAD",
            f"{_TREE}ext::sh -c x@{40 * 'a'}",
            f"other @ git+https://a/t.git@{40 * 'a'}",
        ),
        "exclude_newer": ("--pre",),
        "torch": ("torch @ https://example.org/t.whl",),
        "mistral_common": ("--pre",),
        "flashinfer_version": ("; reboot", "0.6"),
        "build_environment": ({"A B": "1"}, {"A": "\x1b"}),
    },
    "expected": {"memory_gib": (float("nan"),), "dgx_os": ("seven",), "cuda_toolkit": ("",)},
}
INTERFACES = {"lo": "10.0.0.1/24", "docker0": "10.0.0.1/24", "enp1": "10.0.0.1/0"}
OWN_TLS = {"bind": "0.0.0.0", "tls": "own", "tls_port": 8080}
#: Key in the message → hosts' data that hold such a value.
HOSTILE: list[tuple[str, dict[str, object]]] = [
    *(
        (f"models.qwen.{key}", model(**setting(key, value)))
        for key, values in OF_A_MODEL.items()
        for value in values
    ),
    *(
        (f"{section}.{key}".removeprefix("."), {section: data} if section else data)
        for section, keys in OF_A_HOST.items()
        for key, values in keys.items()
        for data in (setting(key, value) for value in values)
    ),
    *(
        ("service_user", {"service_user": name, "operators": ("spark",), "ssh_user": "admin"})
        for name in ("root", "spark", "admin", "_apt", "lockstep-operators", "-r", "a:b")
    ),
    *(
        (f"fabric.interfaces.{name}", {"fabric": {"interfaces": {name: address}}})
        for name, address in (*INTERFACES.items(), ("enp1", "127.0.0.1/24"))
    ),
    ("models.qwen.aliases[1]", model(aliases=("a", "a"))),
    ("tools.uv", {"tools": {**TOOLS, "uv": "uv @ https://example.org/uv.whl"}}),
    ("tools.uv", {"tools": {**TOOLS, "uv": "--index-url http://example.org uv"}}),
    ("gateway.tls_port", {"gateway": OWN_TLS}),
    ("gateway.tls.key", {"gateway": {"tls": {"certificate": "/etc/a", "key": "/etc/%i"}}}),
    ("gateway.limits.streams", {"gateway": {"limits": {"streams": 0}}}),
    ("engine.release", {"engine": {"git": None, "release": "vllm; reboot"}}),
]


@pytest.mark.parametrize(
    ("key", "data"),
    [*WRONG, *HOSTILE],
    ids=[f"{key}: {str(data)[:60]}" for key, data in (*WRONG, *HOSTILE)],
)
def test_a_hostile_value_is_refused_by_its_key(key: str, data: dict[str, Any]) -> None:
    with pytest.raises(InventoryError) as error:
        rehearse([spark(**data)])
    assert str(error.value).partition(": ")[2].startswith(key)
    assert "s3cret" not in str(error.value)


@pytest.mark.parametrize(
    "name",
    ["-oProxyCommand=reboot", "a b", "a\x1b[2J", "", "you@spark", "[fd00::1]", "10.0.0.1:22"],
)
def test_a_host_has_a_name_that_no_program_takes_for_an_option(name: str) -> None:
    with pytest.raises(InventoryError, match="a host's name is no name"):
        spark(name)


@pytest.mark.parametrize("name", ["fd00::1", "::ffff:10.0.0.1", "fe80::1%eth0", "@ssh/a", "a_1.b"])
def test_ssh_takes_an_address_as_it_is(name: str) -> None:
    assert spark(name).name == name


@pytest.mark.parametrize(
    "data",
    [
        model(launcher="/data/scripts/mine/qwen.sh", scripts=("/data/scripts/q",)),
        model(image="10.0.0.5:5000/a/b-c_d:v0.1_x", bind="::", port=30001),
        {"paths": {"models": "/data", "scripts": "/data/scripts"}},
        {"paths": {"models": "/models", "engines": "/home/spark/engines"}},
        {"service_user": "llm", "operators": ("John.Doe", "root")},
        {"sysctls": {"net.ipv4.ip_local_port_range": "32768 60999", "net/core/bpf": "1"}},
        {"packages": ("g++", "libstdc++6", "python3.12-venv"), "fabric_address": "fd00::1"},
        {"engine": {"branch": "feature/x_y-1.2", "git": "git@example.org:a/b.git"}},
        {"engine": {"torch": "torch==2.10.0+cu130", "flashinfer_version": ">=0.5,<0.6"}},
        {"adopt": ("/data/models", "unit vllm.service", "container open-webui")},
        {"sources": {"registries": {"docker.io": "[fd00::1]:5000", "ghcr.io": "a.example/hub"}}},
        {"backup": {"enabled": True, "to": ("/mnt/backup", "sftp:anna@nas.local:/volume1/backup")}},
        {"sources": {"git": {"https://github.com/": "https://me:s3cret@example.org/"}}},
    ],
)
def test_what_is_the_owners_own_is_accepted(data: dict[str, Any]) -> None:
    rehearse([spark(**data)])
