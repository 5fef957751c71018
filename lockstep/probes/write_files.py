"""Write files atomically, after the tools that read them accepted every one. Input on stdin:

{"folders": [{"path", "mode", "owner", "group"}], "files": [{"path", "text", "mode", "owner",
"group", "check"}], "remove": [path]}. A unit or sudoers file that its own checker refuses changes
nothing but is named; files it depends on (scripts) are written first.
"""

import grp
import json
import os
import pwd
import shutil
import subprocess
import sys
import tempfile


def place(file):
    """Write one file so that a reader sees the old text or the new one, never a part."""
    folder = os.path.dirname(file["path"])
    os.makedirs(folder, exist_ok=True)
    handle, temporary = tempfile.mkstemp(prefix=".lockstep-", dir=folder)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as out:
            out.write(file["text"])
            out.flush()
            os.fchmod(out.fileno(), int(file["mode"], 8))
            os.fchown(
                out.fileno(),
                pwd.getpwnam(file["owner"]).pw_uid,
                grp.getgrnam(file["group"]).gr_gid,
            )
            os.fsync(out.fileno())
        os.replace(temporary, file["path"])
    except BaseException:
        os.unlink(temporary)
        raise


def candidates(files, check, folder):
    paths = []
    for file in files:
        if file.get("check") == check:
            path = os.path.join(folder, os.path.basename(file["path"]))
            with open(path, "w", encoding="utf-8") as out:
                out.write(file["text"])
            os.chmod(path, 0o440)
            paths.append(path)
    return paths


def refusals(files):
    """What systemd and sudo say against the candidates; [] when they accept all."""
    faults = []
    with tempfile.TemporaryDirectory(prefix="lockstep-verify-") as folder:
        units = candidates(files, "unit", folder)
        if units:
            done = subprocess.run(
                ["systemd-analyze", "verify", "--man=no", "--recursive-errors=no", *units],
                capture_output=True,
                text=True,
                env={**os.environ, "SYSTEMD_UNIT_PATH": folder + ":"},
                check=False,
            )
            if done.returncode != 0:
                faults.append((done.stderr or done.stdout).replace(folder + "/", "").strip())
        for path in candidates(files, "sudoers", folder):
            done = subprocess.run(
                ["visudo", "-cf", path], capture_output=True, text=True, check=False
            )
            if done.returncode != 0:
                faults.append((done.stdout + done.stderr).strip())
    return faults


def main(asked):
    for item in asked.get("folders", []):
        os.makedirs(item["path"], exist_ok=True)
        os.chmod(item["path"], int(item["mode"], 8))
        shutil.chown(item["path"], item["owner"], item["group"])
    files = asked.get("files", [])
    for file in files:
        if file.get("check") not in ("unit", "sudoers"):
            place(file)
    faults = refusals(files)
    if faults:
        print("refused by its own checker; what was there stays:", file=sys.stderr)
        print("\n".join(faults), file=sys.stderr)
        return 1
    for file in files:
        if file.get("check") in ("unit", "sudoers"):
            place(file)
    for path in asked.get("remove", []):
        if os.path.lexists(path):
            os.unlink(path)
    return 0


if __name__ == "__main__":
    sys.exit(main(json.load(sys.stdin)))
