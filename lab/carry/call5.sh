#!/bin/sh
# Call 5: the whole lab with services and the engine's wheels, then the deploy. All parts lie in /lab-parts.
set -u
exec 2>&1
PATH=$PATH:/usr/sbin:/sbin:/usr/local/nvidia/bin
parts=/lab-parts out=${OUT:-/tmp/out} lab=/lockstep-lab
begin=$(date +%s)
say() { echo "== $(($(date +%s) - begin)) s: $*"; }
B="sh $parts/boot.sh do"
site=$(python3 -c 'import os, torch; print(os.path.dirname(os.path.dirname(torch.__file__)))')
(mkdir -p /site && xz -dc $parts/vllm.tar.xz | tar -x -C /site) &
timeout 150 env TORCH=/nonexistent sh $parts/boot.sh assemble || exit 1
wait
say "assembled"
web=$lab/state/lab/services/web
mkdir -p "$web"
(cd $lab/checkout && timeout 200 python3 -m lab.packages.installed_wheels "$web" /site/site "$site" $parts/more \
    --need vllm torch torchvision mistral_common httpx2 httptools prometheus-client pydantic starlette uvicorn uvloop) || exit 1
say "wheels and index"
timeout 30 sh $parts/boot.sh enter || exit 1
timeout 90 $B lockstep lab up --hosts 1 --gpu || { $B sh -c 'tail -n 30 /lab/state/*/log/*'; exit 1; }
say "up"
timeout 300 $B pyinfra -y inventories/lab_gpu.py deploy.py >"$out/deploy.txt" 2>&1
say "deploy ended with $?"
tail -n 60 "$out/deploy.txt"
timeout 120 $B lockstep lab ssh spark1 -- sudo /data/scripts/llm/switch.sh tiny
say "switch ended with $?"
timeout 20 $B lockstep lab ssh spark1 -- 'sudo journalctl -u vllm -n 60 --no-pager' >"$out/vllm.txt" 2>&1
tail -n 15 "$out/vllm.txt"
timeout 20 $B lockstep lab ssh spark1 -- nvidia-smi
say "done"
