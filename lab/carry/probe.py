"""Ask a host's gateway and watch its engine; sent to the host by `whole_run.py`.

usage: python3 - ask KIND MODEL          one request: chat, stream, messages, embeddings
       python3 - back MODEL SECONDS DO   run DO, and wait until chat fails and is answered again
       python3 - busy MODEL SECONDS      ask without a pause until /run/whole-run-stop is there
       python3 - fill GIB SECONDS        take real memory until less than GIB are available

Prints one line of JSON. Standard library only. Seconds are monotonic and from the program's start.
"""

import http.client
import json
import re
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

GATEWAY = "http://127.0.0.1:8090"
STOP = Path("/run/whole-run-stop")
CHAT: dict[str, Any] = {"messages": [{"role": "user", "content": "Say hello."}], "max_tokens": 16}
PATHS: dict[str, tuple[str, dict[str, Any]]] = {
    "chat": ("/v1/chat/completions", CHAT),
    "stream": ("/v1/chat/completions", {**CHAT, "stream": True}),
    "messages": ("/v1/messages", CHAT),
    "embeddings": ("/v1/embeddings", {"input": "A sentence."}),
}
#: Memory that is taken at a time, bytes.
STEP = 256 << 20


def ask(kind: str, model: str, limit_s: float = 60.0, **more: Any) -> dict[str, Any]:
    """The status, the first bytes of the answer, seconds to its first byte and to its last."""
    path, body = PATHS[kind]
    data = json.dumps({"model": model, **body, **more}).encode()
    request = urllib.request.Request(GATEWAY + path, data, {"Content-Type": "application/json"})
    began = time.monotonic()
    try:
        with urllib.request.urlopen(request, timeout=limit_s) as answer:
            first = answer.read(1)
            first_s = time.monotonic() - began
            text = (first + answer.read()).decode(errors="replace")
            code = answer.status
    except urllib.error.HTTPError as error:
        code, first_s, text = error.code, None, error.read().decode(errors="replace")
    except (OSError, http.client.HTTPException) as error:
        # 0: no answer, or one that was cut off.
        code, first_s, text = 0, None, str(error)
    return {
        "code": code,
        "first_s": first_s,
        "seconds": time.monotonic() - began,
        "bytes": len(text),
        "text": text[-400:] if kind == "stream" else text[:400],
    }


def back(model: str, limit_s: float, command: str) -> dict[str, Any]:
    """Seconds until chat failed and until it was answered again, and what was said meanwhile."""
    subprocess.run(["sh", "-c", command], check=True)
    began, changes, failed_s, last = time.monotonic(), [], None, None
    while time.monotonic() - began < limit_s:
        answer = ask("chat", model, 5.0)
        since = time.monotonic() - began
        if answer["code"] != last:
            last = answer["code"]
            changes.append([round(since, 1), last, str(answer["text"])[:160]])
        if last != 200 and failed_s is None:
            failed_s = since
        if last == 200 and failed_s is not None:
            return {"failed_s": failed_s, "answered_s": since, "changes": changes}
        time.sleep(0.2)
    return {"failed_s": failed_s, "answered_s": None, "changes": changes}


def busy(model: str, limit_s: float) -> dict[str, Any]:
    """Answers while something else happens, failures, and the longest time without an answer."""
    began = last = time.monotonic()
    good, gap, failures = 0, 0.0, 0
    kinds: dict[str, int] = {}
    while time.monotonic() - began < limit_s and not STOP.exists():
        answer = ask("stream", model, limit_s, max_tokens=400, ignore_eos=True)
        now = time.monotonic()
        if answer["code"] == 200 and "[DONE]" in str(answer["text"]):
            good, gap, last = good + 1, max(gap, now - last), now
        else:
            failures += 1
            kind = re.sub(r"\d+ bytes", "N bytes", f"{answer['code']} {str(answer['text'])[-160:]}")
            kinds[kind] = kinds.get(kind, 0) + 1
            time.sleep(0.2)
    return {"answered": good, "failed": failures, "longest_gap_s": gap, "kinds": kinds}


def fill(least_gib: float, limit_s: float) -> dict[str, Any]:
    """Take memory until so little is available, or the time is over; the least that was seen."""
    began, blocks, least = time.monotonic(), [], available_gib()
    first = least
    while time.monotonic() - began < limit_s:
        now = available_gib()
        least = min(least, now)
        if now < least_gib:
            break
        # Near the end slower, as the memory watch looks 20 times a second there.
        if now < 10:
            time.sleep(0.1)
        # Every page is written, or the kernel would give none.
        blocks.append(bytearray(b"x") * STEP)
    taken_s = time.monotonic() - began
    time.sleep(3)
    return {
        "available_gib": first,
        "least_gib": least,
        "taken_gib": len(blocks) * STEP / 2**30,
        "seconds": taken_s,
        "available_3s_later_gib": available_gib(),
    }


def available_gib() -> float:
    """MemAvailable, GiB."""
    lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("MemAvail")) / 2**20


def main(words: list[str]) -> dict[str, Any]:
    """Command line; see the module's docstring."""
    if words[0] == "ask":
        return ask(words[1], words[2])
    if words[0] == "fill":
        return fill(float(words[1]), float(words[2]))
    if words[0] == "busy":
        return busy(words[1], float(words[2]))
    return back(words[1], float(words[2]), words[3])


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1:])))
