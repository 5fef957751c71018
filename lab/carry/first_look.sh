#!/bin/sh
# A first look at a machine with a GPU: does a lab host with it boot here?
#
# usage: [OUT=/tmp/out] sh first_look.sh   beside boot.sh and the first parts of pack.sh
# It shows nvidia-smi, nvcc and PyTorch in units of the host, and cuts its power once. OUT gets
# machine.txt, what this machine has, and freeze.txt, its Python packages: the HAS of
# benchmarks.cuda.parts. The lab stays up; `sh boot.sh do lockstep lab ssh spark1` goes on by hand.
#
# Ran on an H200 on 2026-11-29, 25 s.
# shellcheck disable=SC2086 # B and H are words.
set -u
here=$(cd "$(dirname "$0")" && pwd)
out=${OUT:-/tmp/out}
mkdir -p "$out"
exec 2>&1
PATH=$PATH:/usr/sbin:/sbin:/usr/local/nvidia/bin
begin=$(date +%s)
say() { echo "== $(($(date +%s) - begin)) s: $*"; }
{
    uname -a; grep PRETTY /etc/os-release; df -h / /tmp /opt 2>&1; grep -E ' / | /opt| /usr/local| cgroup' /proc/mounts
    cat /proc/self/cgroup; cat /sys/fs/cgroup/cgroup.controllers /sys/fs/cgroup/cgroup.subtree_control
    ls -la /dev/nvidia* /usr/local/nvidia /usr/local/nvidia/bin /usr/local/ /opt /opt/torch
    find /usr/local/nvidia/lib* | head -80
    command -v python3 python3.12 gcc g++ cc nvcc xz zstd tar git nft ip ssh sudo pivot_root nsenter unshare
    gcc --version; ls /usr/include/python3.12/Python.h; ls -la /usr/bin/python3*
    python3 -c 'import sys, torch; print(sys.version, sys.executable, torch.__file__, torch.__version__)'
} >"$out/machine.txt" 2>&1
site=$(python3 -c 'import os, torch; print(os.path.dirname(os.path.dirname(torch.__file__)))')
python3 -m pip list --format=freeze >"$out/freeze.txt" 2>/dev/null || python3 - >"$out/freeze.txt" <<'P'
from importlib.metadata import distributions
for d in sorted(distributions(), key=lambda d: d.metadata["Name"].lower()):
    print(f'{d.metadata["Name"]}=={d.version}')
P
say "machine read; torch is in $site"
timeout 150 sh "$here/boot.sh" assemble || exit 1
say assembled
timeout 30 sh "$here/boot.sh" enter || exit 1
B="sh $here/boot.sh do"
timeout 90 $B lockstep lab up --hosts 1 --no-services --gpu || {
    $B sh -c 'tail -n 30 /lab/state/*/log/*'; exit 1; }
say "up"
H="timeout 60 $B lockstep lab ssh spark1 --"
$H 'systemctl is-system-running; systemctl --failed --no-legend; ls -la /dev/nvidia*; free -g | head -2; nproc; findmnt -n -o TARGET | grep -c nvidia'
say "nvidia-smi as spark, in a unit"
$H sudo systemd-run --wait --pipe -q --uid=spark nvidia-smi
$H sudo systemd-run --wait --pipe -q --uid=spark nvidia-smi --query-gpu=name,driver_version,compute_cap,memory.total,clocks.max.sm,uuid,pci.bus_id --format=csv
$H sudo systemd-run --wait --pipe -q --uid=spark nvidia-smi --query-compute-apps=pid,process_name,used_memory --format=csv
$H /usr/local/cuda/bin/nvcc --version
say "torch as spark, in a unit"
cat >/tmp/torch_check.py <<'P'
import time
begin = time.time()
import torch
a = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)
b = (a @ a).float().sum().item()
print(torch.__version__, torch.version.cuda, torch.cuda.get_device_name(), torch.cuda.get_device_capability(),
      torch.cuda.mem_get_info(), b == b, f"{time.time() - begin:.1f} s")
import subprocess, os
print("own pid", os.getpid())
print(subprocess.run(["nvidia-smi", "--query-compute-apps=pid,process_name,used_memory", "--format=csv"], capture_output=True, text=True).stdout)
P
$B lockstep lab ssh spark1 -- 'cat >/tmp/torch_check.py' </tmp/torch_check.py
$H sudo systemd-run --wait --pipe -q --uid=spark -E "PYTHONPATH=$site" python3.12 /tmp/torch_check.py
say "and in a unit with devices of its own (must fail: no device)"
$H sudo systemd-run --wait --pipe -q --uid=spark -p PrivateDevices=yes nvidia-smi -L
say "power cut and back"
timeout 60 $B lockstep lab cycle spark1
$H nvidia-smi -L
say "done"
$B sh -c 'tail -n 5 /lab/state/*/log/*.log' | tail -n 20
