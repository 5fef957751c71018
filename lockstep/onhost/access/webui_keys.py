"""Write the API keys that Open WebUI sends to the engines, before it starts.

usage: webui-keys FILE KEYFILE key|none ...

One word per engine, in the order of OPENAI_API_BASE_URLS: the key of KEYFILE, or none. FILE is for
`docker run --env-file`, readable by root only. Prints no value.

exit codes: 0 written, 1 a file cannot be read or written, 2 wrong use
"""

from __future__ import annotations

import sys
from pathlib import Path

from lockstep.onhost.core import atomic, errors


def main(argv: list[str]) -> int:
    """Command line; see the module's docstring."""
    if len(argv) < 3 or set(argv[2:]) - {"key", "none"}:
        print((__doc__ or "").strip(), file=sys.stderr)
        return errors.EXIT_USAGE
    file, key_file, *words = argv
    try:
        key = Path(key_file).read_text(encoding="utf-8").strip()
        keys = ";".join(key if word == "key" else "none" for word in words)
        atomic.write(Path(file), f"OPENAI_API_KEYS={keys}\n", mode=0o600)
    except OSError as error:
        raise errors.Problem(f"{error.filename}: {error.strerror}. Deploy again") from error
    return errors.EXIT_DONE
