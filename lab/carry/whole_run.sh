#!/bin/sh
# A whole run: from a wiped lab host to a model that serves on this machine's GPU, and its end.
#
# usage: [PARTS=/lab-parts] [OUT=/tmp/out] sh whole_run.sh
# PARTS has what pack.sh made and vllm.tar.xz of benchmarks.cuda.parts. Each line says how long a
# step took; OUT gets its output. A deploy that fails ends the run with 1; so does, at the end, any
# other step that failed.
#
# Ran on an H200 on 2026-11-29: from the start to `deploy`, which failed there (docs/evidence/cuda.md).
# Everything after it was typed by hand then, up to the killed engine; `cycle` failed for a fault of
# the lab that is mended since. As this file it has not run.
# shellcheck disable=SC2016 # Commands in single quotes are for the host.
set -u
PATH=$PATH:/usr/sbin:/sbin:/usr/local/nvidia/bin
parts=${PARTS:-/lab-parts} out=${OUT:-/tmp/out} lab=/lockstep-lab failures=0
gateway=http://127.0.0.1:8090
mkdir -p "$out"
in_lab() { sh "$parts/boot.sh" "do" "$@"; }
on_host() { in_lab lockstep lab ssh spark1 -- "$1"; }
milliseconds() { date +%s%3N; }

# step NAME COMMAND...: run it and say its seconds; 1 if it fails
step() {
    name=$1
    shift
    begin=$(milliseconds)
    "$@" </dev/null >"$out/$name.txt" 2>&1
    code=$?
    took=$(($(milliseconds) - begin))
    printf '%-14s %4d.%d s  ended with %d\n' "$name" $((took / 1000)) $((took % 1000 / 100)) $code
    [ $code -eq 0 ] && return
    failures=$((failures + 1))
    tail -n 40 "$out/$name.txt"
    return 1
}

# Unpack all parts. PyTorch of this machine goes into wheels, not into the hosts' root.
assemble() {
    mkdir -p /site && xz -dc "$parts/vllm.tar.xz" | tar -x -C /site &&
        TORCH=/nonexistent timeout 150 sh "$parts/boot.sh" assemble
}

wheels() (
    site=$(python3 -c 'import os, torch; print(os.path.dirname(os.path.dirname(torch.__file__)))') || exit
    web=$lab/state/lab/services/web
    mkdir -p "$web"
    cd $lab/checkout && timeout 200 python3 -m lab.packages.installed_wheels "$web" \
        /site/site "$site" "$parts/more" --need vllm torch torchvision mistral_common httpx2 \
        httptools prometheus-client pydantic starlette uvicorn uvloop
)

up() { timeout 30 sh "$parts/boot.sh" enter && in_lab timeout 90 lockstep lab up --hosts 1 --gpu; }
deploy() { in_lab timeout 300 pyinfra -y inventories/lab_gpu.py deploy.py; }
drift() { in_lab timeout 60 lockstep diff --inventory inventories/lab_gpu.py; }
switch() { on_host "sudo timeout 200 /data/scripts/llm/switch.sh $1"; }

# chat STREAM: one answer of 16 tokens through the gateway
chat() {
    on_host "curl -sS --fail-with-body -m 60 -H 'content-type: application/json' -d '{\"model\": \"tiny\",
        \"messages\": [{\"role\": \"user\", \"content\": \"Hello\"}], \"max_tokens\": 16, \"stream\": $1}' \
        $gateway/v1/chat/completions"
}

# No process may hold the GPU.
gpu_is_free() { on_host 'nvidia-smi; test -z "$(nvidia-smi --query-compute-apps=pid --format=csv,noheader)"'; }

# The engine's process dies; its unit must be up again with another main process.
kill_engine() {
    on_host 'old=$(systemctl show -p MainPID --value vllm)
        sudo kill -KILL "$(nvidia-smi --query-compute-apps=pid --format=csv,noheader | head -n 1)"
        for second in $(seq 150); do
            new=$(systemctl show -p MainPID --value vllm)
            if [ "$new" != "$old" ] && systemctl is-active --quiet vllm; then exit 0; fi
            [ $((second % 5)) -ne 0 ] || systemctl is-active vllm
            sleep 1
        done
        exit 1'
}

# The power fails while the model is hot; the host comes back with the GPU, and the model on request.
cycle() { in_lab timeout 90 lockstep lab cycle spark1 && on_host 'nvidia-smi -L; systemctl is-system-running --wait'; }

step assemble assemble || exit 1
step wheels wheels || exit 1
step up up || { tail -n 30 $lab/state/lab/log/*; exit 1; }
step deploy deploy || exit 1
step deploy-again deploy || exit 1
step diff drift
step tiny switch tiny
step chat chat false
step stream chat true
step none switch none
step gpu-is-free gpu_is_free
step tiny-again switch tiny
step kill-engine kill_engine
step chat-again chat false
step cycle cycle
step tiny-cycled switch tiny
on_host 'sudo journalctl -u vllm --no-pager' >"$out/vllm.txt" 2>&1
[ $failures -eq 0 ]
