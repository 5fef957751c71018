"""Values of an inventory that are more than text or a number, each with its rules."""

from __future__ import annotations

import ipaddress
import math
import re
from pathlib import PurePosixPath
from typing import Annotated, Literal
from urllib.parse import urlsplit

from lockstep.core.findings import CODES, FATAL
from lockstep.files.managed_file import BACKUP_ACCOUNT, GATEWAY_ACCOUNT, OPERATORS_GROUP
from lockstep.onhost.core.schema import Rule, SchemaFault, between, pattern_rule, spelling_hint
from lockstep.onhost.records.ownership import is_in_own_folder

#: Words that switch.sh itself takes.
RESERVED = frozenset({"none", "last", "status", "log", "wait", "cancel", "help"})
#: A full path, normalised, of characters that mean nothing to a shell, systemd, Docker or sudo.
PATH = r"(?:/(?!\.{1,2}(?:/|$))[A-Za-z0-9_.@+-]+)+"
# A lower port needs a right that no engine and no web interface has here.
_LEAST_PORT = 1024
# Accounts of Debian's base-passwd (users and groups, 2024), of Ubuntu's desktop and of DGX OS.
_ACCOUNTS = frozenset(
    (
        *("root", "daemon", "bin", "sys", "sync", "games", "man", "lp", "mail", "news", "uucp"),
        *("proxy", "www-data", "backup", "list", "irc", "gnats", "nobody", "nogroup", "adm"),
        *("sudo", "wheel", "docker", "sshd", "ssh", "messagebus", "syslog", "tss", "uuidd"),
        *("usbmux", "rtkit", "dnsmasq", "dhcpcd", "avahi", "cups-pk-helper", "saned", "colord"),
        *("gdm", "geoclue", "hplip", "kernoops", "lightdm", "ntp", "polkitd", "pulse"),
        *("speech-dispatcher", "whoopsie", "tcpdump", "landscape", "fwupd-refresh", "pollinate"),
        *("nm-openvpn", "nvidia-persistenced", "chrony", "statd", "sssd", "postfix", "mysql"),
        *("postgres", "prometheus", "redis", "nginx", "ollama", "users", "staff", "shadow", "kvm"),
        *("render", "video", "disk", "lxd", OPERATORS_GROUP, GATEWAY_ACCOUNT, BACKUP_ACCOUNT),
    )
)
_ACCOUNT_FAMILIES = ("_", "systemd-", "avahi-", "gnome-", "dgx-", "nvidia-")
# Ubuntu 24.04's own folders (file-hierarchy(7)); nothing of an inventory lies in them.
_SYSTEM = frozenset(
    (
        *("bin", "boot", "cdrom", "dev", "etc", "lib", "lib32", "lib64", "lost+found", "proc"),
        *("root", "run", "sbin", "snap", "sys", "tmp", "usr", "var"),
    )
)
# Folders of others: the depth of a folder of one's own ("/opt/NAME", "/home/USER/NAME").
_DEPTH = {"home": 3, "media": 2, "mnt": 2, "opt": 2, "srv": 2}
# Interfaces that Docker, libvirt and VPNs make for themselves.
_NOT_OURS = ("docker", "br-", "veth", "virbr", "tailscale", "wg", "tun", "tap")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
# A reference as `docker run` takes it after its options (distribution's reference grammar).
_IMAGE = re.compile(
    r"[A-Za-z0-9\[](?:[A-Za-z0-9._:\]-]*[A-Za-z0-9\]])?"
    r"(?:/[a-z0-9]+(?:[._-]+[a-z0-9]+)*)*(?::[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?"
)


def name_of_system(account: str) -> bool:
    """Tell whether an account, or a group of its name, belongs to the operating system."""
    return account in _ACCOUNTS or account.startswith(_ACCOUNT_FAMILIES)


def is_loopback(address: str) -> bool:
    """Tell whether an address can be reached only from this host itself."""
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return address == "localhost"


def is_address(text: str | None) -> bool:
    """Tell whether a text is an IP address and no name: the firewall and a listener need one."""
    try:
        ipaddress.ip_address(text or "")
    except ValueError:
        return False
    return True


def _own_folder(path: str) -> bool:
    first, *later_parts = path[1:].split("/")
    return not (first in _SYSTEM or 1 + len(later_parts) < _DEPTH.get(first, 1))


def _is_lock(path: str) -> bool:
    name, end = PurePosixPath(path).name, ".lock.yaml"
    inside = ".." not in PurePosixPath(path).parts and path.isprintable()
    return inside and name.endswith(end) and len(name) > len(end)


def _listens(address: str) -> bool:
    is_name = address == "localhost" or not ipaddress.ip_address(address).is_multicast
    return is_name and "%" not in address


def _is_reached(address: str) -> bool:
    try:
        ip_address = ipaddress.ip_address(address)
    except ValueError:
        # A text of only digits and dots, "10.77.0.300", is an address with a slip.
        name = r"(?![0-9.]*$)[0-9A-Za-z][0-9A-Za-z.:-]*|::[0-9A-Fa-f:.]+"
        return re.fullmatch(name, address) is not None
    return not (ip_address.is_loopback or ip_address.is_unspecified or ip_address.is_multicast)


def _with_network(text: str) -> bool:
    interface = ipaddress.ip_interface(text)
    usable = not (
        interface.ip.is_loopback or interface.ip.is_unspecified or interface.ip.is_multicast
    )
    # A network of all addresses would take the host's other traffic too.
    whole = interface.network.prefixlen >= 8 and interface.network.num_addresses > 1
    return "/" in text and usable and whole


def image_refusal(reference: str) -> SchemaFault | None:
    """Return why an image reference is refused: no name, or a wrong digest; None if it is not."""
    name, _, digest = reference.partition("@")
    allowed_text = "REPOSITORY:TAG or REPOSITORY@sha256:<64 hexadecimal digits>"
    if name and not _IMAGE.fullmatch(name):
        return SchemaFault("is not an image", repr(name)[:80], allowed_text)
    if name and reference.count("@") <= 1 and ("@" not in reference or _DIGEST.fullmatch(digest)):
        return None
    return SchemaFault(
        "has a digest that is not a digest" if name else "names no image",
        repr(digest or reference)[:80],
        allowed_text,
        "Write the digest of the image's manifest for this architecture, or a tag.",
    )


def _no_login(url: str) -> SchemaFault | None:
    """Refuse a URL with a login: it would stand in the lock, which is under version control."""
    try:
        parts = urlsplit(url)
    except ValueError as fault:
        return SchemaFault("is not an address", str(fault))
    login, _, server = parts.netloc.rpartition("@")
    if not login or (":" not in login and parts.scheme not in ("http", "https")):
        return None
    place = f"{parts.scheme}://{server}/"
    return SchemaFault(
        "holds a login, which would stand in the lock file",
        found=f"{parts.scheme}://…@{server}{parts.path}",
        remedy="Write the address without it, and the login into sources.git, which is in no "
        f'lock: "{place}": "{parts.scheme}://USER:TOKEN@{server}/".',
    )


def _of_transformers(text: str) -> SchemaFault | None:
    url = text.partition("git+")[2]
    return (_IS_GIT(url) or _no_login(url)) if url else None


def _not_everybody(network: str) -> bool:
    return ipaddress.ip_network(network).prefixlen > 0


def _is_service(text: str) -> bool:
    match = re.fullmatch(r"(?:tcp|udp)/(\d{1,5})", text)
    return match is not None and 1 <= int(match[1]) <= 65535


def _registry(allowed_text: str, path: str) -> Rule:
    host = r"(?:[A-Za-z0-9][A-Za-z0-9._-]*|\[[0-9A-Fa-f:]+\])(?::\d{1,5})?"
    remedy = "Without https:// and without a login."
    return pattern_rule(
        host + path, "is not a registry", allowed_text, remedy=remedy, has_password=True
    )


def _name_of(pattern: str, description: str) -> Rule:
    return pattern_rule(pattern, f"is not the name of {description}", pattern)


# "ext::COMMAND" runs a command (gitremote-helpers(7)).
_IS_GIT = pattern_rule(
    r"(?!(?:[a-z0-9+-]+::)|.*')[A-Za-z0-9/][\x21-\x7e]*",
    "is not a repository's address",
    "https://…, ssh://…, git://…, file:///…, USER@HOST:PATH or a full path",
    has_password=True,
)
# ssh takes an IPv6 address without brackets; account and port are keys of the host.
_HOST = (
    r"(?:@(?:ssh/)?)?(?:[A-Za-z0-9_][A-Za-z0-9_.%/-]*"
    r"|[0-9A-Fa-f]*:[0-9A-Fa-f]*:[0-9A-Fa-f:.]*(?:%[A-Za-z0-9_.-]+)?)"
)

#: A host's name reaches ssh's command line, files on hosts, and terminals.
HostName = Annotated[
    str,
    pattern_rule(
        _HOST,
        "is no name",
        "an address without brackets, a name of ~/.ssh/config, or @local; the account is "
        "ssh_user (`lockstep init --user`), the port ssh_port",
    ),
]
ModelName = Annotated[
    str,
    Rule(
        "is not a name that switch.sh can take",
        lambda name: re.fullmatch(r"[a-z0-9][a-z0-9_-]*", name) and name not in RESERVED,
        "lower-case letters, digits, '-' and '_'; not " + ", ".join(sorted(RESERVED)),
    ),
]
_CLUSTER = r"[a-z0-9][a-z0-9-]{0,30}"
ClusterName = Annotated[
    str,
    pattern_rule(
        _CLUSTER, "is not a name for a cluster", "at most 31 lower-case letters, digits and '-'"
    ),
]
_UNIT = r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}"
_NEEDED_UNITS = (
    r"(lockstep|prometheus|systemd)(-.*)?|docker|containerd|sshd?|earlyoom|nftables|caddy|nginx"
    r"|nvidia-persistenced|nvidia-cdi-refresh"
)
Unit = Annotated[
    str,
    pattern_rule(
        _UNIT, "is not a unit name", "letters, digits, '-' and '_', at most 64, without '.service'"
    ),
    # Other accounts of the system are seen on the host, before anything is touched.
    Rule(
        "is a unit of Lockstep, or of a package that it needs",
        lambda unit: not re.fullmatch(_NEEDED_UNITS, unit),
        remedy="Give it a name of its own, for example the engine's and the model's.",
    ),
]
Account = Annotated[str, _name_of(r"[A-Za-z_][A-Za-z0-9_.-]{0,31}", "an account")]
# A domain of a directory (SSSD, Active Directory) may follow: "jane@corp.example".
Person = Annotated[
    str,
    _name_of(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}(?:@[A-Za-z0-9][A-Za-z0-9.-]{0,252})?", "an account"),
]
# Debian Policy 5.6.1, "Source"; a "-" at the end is apt's word for removing the package.
Package = Annotated[str, _name_of(r"[a-z0-9][a-z0-9+.-]*[a-z0-9+.]", "a Debian package")]
# Names of interfaces have upper case ("net.ipv4.conf.enP7s7.forwarding").
Sysctl = Annotated[str, _name_of(r"[a-z0-9][A-Za-z0-9_./-]*", "a kernel setting")]
# A value with a "/" or "|" names a program that the kernel runs as root (kernel.core_pattern,
# kernel.modprobe: core(5), proc(5)).
SysctlValue = Annotated[
    str,
    pattern_rule(
        r"[A-Za-z0-9_.,:+-]+(?: [A-Za-z0-9_.,:+-]+)*",
        "is not a value for a kernel setting",
        "numbers and words of letters, digits and '_.,:+-', one blank between them",
        remedy="A program that the kernel is to run has no place here.",
    ),
]
Volume = Annotated[
    str,
    _name_of(r"[A-Za-z0-9][A-Za-z0-9_.-]{1,63}", "a Docker volume"),
    Rule(
        "has the name of an engine's cache",
        lambda name: not name.endswith("-cache"),
        remedy="Give it another end: UNIT-cache is the volume of the engine UNIT.",
    ),
]
Email = Annotated[
    str, _name_of(r"[A-Za-z0-9][A-Za-z0-9_.+-]*@[A-Za-z0-9][A-Za-z0-9.-]*", "an address")
]
Image = Annotated[str, image_refusal]
Port = Annotated[int, between(_LEAST_PORT, 65535, "is not a port for it")]
AnyPort = Annotated[int, between(1, 65535, "is not a port")]
Service = Annotated[str, Rule("names no port", _is_service, '"tcp/PORT" or "udp/PORT"')]
Count = Annotated[int, between(1, 65535, "is no number of them")]
# The daily test questions start the time anew, so a longer rest would never come.
RestTime = Annotated[int, between(60, 20 * 3600, "is no time for a model to rest", " s")]
KeepAlive = Annotated[int, between(1, 300, "is no time between two signs of life", " s")]
# A GB10 rests at 208 MHz, and its driver names 3003 as the highest.
Clock = Annotated[int, between(300, 3003, "is no clock for a GB10", " MHz")]
Mtu = Annotated[
    # IPv6 does not work below 1280; ConnectX-7 takes no more than 9978.
    int, between(1280, 9978, "is not a size for a frame", "; 9000 between Sparks")
]
Size = Annotated[
    float, Rule("is no size", lambda size: math.isfinite(size) and size >= 0, "0 or more")
]
#: Output of `uname -m`.
Architecture = Literal["aarch64", "x86_64"]
Version = Annotated[
    str,
    pattern_rule(r"\d+(?:\.\d+)*", "is not a version", 'numbers with dots between them ("13.0")'),
]
Python = Annotated[
    str,
    pattern_rule(
        r"3\.\d+", "is not a version of the interpreter", '"3.12", without a third number'
    ),
]
Folder = Annotated[
    str,
    pattern_rule(
        PATH,
        "is not a folder's full path",
        "/NAME/NAME of letters, digits and '_.@+-', without '..', '//' or '/' at the end",
    ),
    Rule(
        "is a folder of the system or of others",
        _own_folder,
        "a folder of its own, for example /data/NAME, /opt/NAME or /home/USER/NAME",
        "Owner and mode of that folder are the deploy's to set. Give it one of its own.",
    ),
]
LockFile = Annotated[
    str,
    Rule(
        "is not the name of a lock file",
        _is_lock,
        "a name that ends with .lock.yaml, from the repository or with a full path",
    ),
]
File = Annotated[
    str,
    pattern_rule(PATH, "is not a file's full path", "/NAME/NAME of letters, digits and '_.@+-'"),
]
Printable = Annotated[str, Rule("holds a control character", str.isprintable)]
Bind = Annotated[
    str,
    Rule(
        "is not an address to listen at",
        _listens,
        '"127.0.0.1", "0.0.0.0", "::" or another IP address of the host',
    ),
]
_NAMED = r"[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?|[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*"
CertificateName = Annotated[
    str,
    pattern_rule(
        _NAMED, "is no name for a certificate", '"spark.home.arpa", "10.0.0.5" or "fd00::5"'
    ),
]
FabricAddress = Annotated[
    str,
    Rule(
        "is not an address",
        _is_reached,
        "an IP address of the host, or a name that the other Sparks know",
    ),
]
# The kernel's rule for the name of a network interface.
Interface = Annotated[
    str,
    pattern_rule(
        r"[A-Za-z0-9][A-Za-z0-9_.-]{0,14}", "is no network interface", "for example enp1s0f0np0"
    ),
]
FabricInterface = Annotated[
    Interface,
    Rule(
        "is no interface of the fast link, but loopback, Docker's or a virtual machine's",
        lambda name: name != "lo" and not name.startswith(_NOT_OURS),
        "a ConnectX-7 port, for example enp1s0f0np0",
    ),
]
WithNetwork = Annotated[
    str, Rule("is not an address with the length of its network", _with_network, '"10.77.0.11/24"')
]
RdmaDevice = Annotated[
    str, pattern_rule(r"[A-Za-z0-9_]*", "is no RDMA device", '"rocep1s0f0", "" for none')
]
Peer = Annotated[
    str,
    Rule(
        "is not a network",
        ipaddress.ip_network,
        'an address ("10.0.0.2") or a network ("10.0.0.0/24")',
    ),
    Rule(
        "is everybody",
        _not_everybody,
        remedy="Name the Sparks' own link. firewall.enabled = False opens everything.",
    ),
]
_URL = r"(https?://[^/\s]+|file:///)\S*"
Url = Annotated[
    str,
    pattern_rule(
        _URL, "is not an address", "http://HOST…, https://HOST… or file:///…", has_password=True
    ),
]
Server = Annotated[
    str,
    pattern_rule(
        r"https?://[^/\s@]+",
        "is not a server",
        "https://HOST or https://HOST:PORT, without a login and without a path",
        has_password=True,
    ),
]
# Browsers write an origin so, and it is compared byte by byte: no path, no usual port, no capitals.
Origin = Annotated[
    str,
    pattern_rule(
        r"(?:http://(?!.*:80$)|https://(?!.*:443$))"
        r"(?:[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?|\[[0-9a-f:.]+\])(?::[1-9]\d{0,4})?",
        "is not an origin",
        "https://HOST or https://HOST:PORT in small letters, without a path, a usual port or *",
    ),
]
Git = Annotated[str, _IS_GIT]
Repository = Annotated[str, _IS_GIT, _no_login]
# The rules of git-check-ref-format(1), without what a shell or an option begins with.
_BRANCH = r"(?!.*(?:\.\.|//|@\{|\.lock$))[A-Za-z0-9][A-Za-z0-9._/+#@-]*[A-Za-z0-9_+#-]?"
Branch = Annotated[str, pattern_rule(_BRANCH, "is not a branch", "")]
Registry = Annotated[str, _registry("HOST, HOST:PORT or HOST:PORT/PATH", r"(?:/[A-Za-z0-9._/-]*)?")]
PlainRegistry = Annotated[str, _registry("HOST, HOST:PORT", "")]
AptLine = Annotated[
    str,
    pattern_rule(
        r"deb(?:-src)? [\x20-\x7e]+",
        "is not a line of sources.list",
        '"deb http://HOST/PATH SUITE COMPONENT"',
        has_password=True,
    ),
]
Transformers = Annotated[str, _of_transformers]
Commit = Annotated[
    str,
    pattern_rule(
        r"[0-9a-f]{40}",
        "is not a whole commit",
        "40 hexadecimal digits, or None for the one at which the fork left upstream",
    ),
]
Build = Annotated[
    str,
    pattern_rule(
        r"[a-z0-9]*",
        "is not the name of a build",
        '"cu130" or another folder of the server, "" for the usual one',
    ),
]
Variable = Annotated[
    str,
    pattern_rule(r"[A-Za-z_][A-Za-z0-9_]*", "is no variable", "a name of letters, digits and '_'"),
]
BuildVariable = Annotated[
    Variable,
    Rule(
        "is a variable that the lock decides",
        lambda name: "PRECOMPILED" not in name,
        remedy="Use engine.precompiled, precompiled_commit or precompiled_variant.",
    ),
]


def _known_code(code: str) -> SchemaFault | None:
    if code in CODES:
        return None
    remedy = spelling_hint(code, CODES - FATAL, "Remove it: nothing is waived by it.")
    return SchemaFault("is the code of no finding", allowed=_CODES_SHOWN, remedy=remedy)


_CODES_SHOWN = "codes of findings, as plan and preflight show them"
Code = Annotated[
    str,
    Rule(
        "names a finding that no deploy survives",
        lambda code: code not in FATAL,
        "codes of other findings, as plan and preflight show them",
        "Remove it, and mend what the finding says.",
    ),
    _known_code,
]
ExtraFile = Annotated[
    str,
    pattern_rule(
        PATH, "is no file's full path", "/NAME/NAME of letters, digits and '_.@+-', without '..'"
    ),
    Rule(
        "is in a folder of Lockstep's own",
        lambda path: not is_in_own_folder(path),
        remedy="Name a file elsewhere.",
    ),
]
AdoptedThing = Annotated[
    str,
    pattern_rule(
        rf"{PATH}|(?:unit|container|volume|account) [A-Za-z0-9_][A-Za-z0-9_.@-]*",
        "names nothing that can be taken over",
        'a full path, or "unit NAME", "container NAME", "volume NAME" or "account NAME"',
        remedy="Copy it from the finding that names it.",
    ),
]
