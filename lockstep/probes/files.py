"""Text, mode and owner of files and folders. Argument: {"paths": […], "private": […]}.

The content of a private file never leaves the host: only whether it is there.
"""

import grp
import json
import os
import pwd
import stat
import sys


def describe(path, private):
    try:
        entry = os.lstat(path)
    except OSError:
        return None
    try:
        owner = pwd.getpwuid(entry.st_uid).pw_name
    except KeyError:
        owner = str(entry.st_uid)
    try:
        group = grp.getgrgid(entry.st_gid).gr_name
    except KeyError:
        group = str(entry.st_gid)
    kind = "folder" if stat.S_ISDIR(entry.st_mode) else "file"
    if stat.S_ISLNK(entry.st_mode):
        kind = "link"
    text = None
    if kind == "file" and not private:
        with open(path, encoding="utf-8", errors="replace") as content:
            text = content.read()
    mode = f"{stat.S_IMODE(entry.st_mode):04o}"
    return {"kind": kind, "mode": mode, "owner": owner, "group": group, "text": text}


def main(asked):
    private = set(asked.get("private", []))
    return {path: describe(path, path in private) for path in asked["paths"]}


if __name__ == "__main__":
    print(json.dumps(main(json.loads(sys.argv[1]))))
