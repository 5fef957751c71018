#!/bin/sh
# Assemble the lab from the parts beside this file, on an x86-64 Linux machine without a network.
#
# usage: boot.sh assemble          unpack all parts into LAB (/lockstep-lab)
#        boot.sh enter             make the operator's root: a mount namespace that stays; does
#                                  nothing where it is there
#        boot.sh do COMMAND...     run a command there, in the checkout
#
# Needs root, util-linux, tar, and xz or Python. PyTorch of TORCH (/opt/torch) goes into the
# hosts' root too. To end: boot.sh do lockstep lab down --delete; kill "$(cat LAB/holder)".
#
# Ran on an H200's machine on 2026-11-29, all three, with the driver in /usr/local/nvidia; with one of
# packages only beside stand-ins of its files.
set -eu
PATH=$PATH:/usr/sbin:/sbin
here=$(cd "$(dirname "$0")" && pwd)
lab=${LAB:-/lockstep-lab}
op=$lab/op
# Ubuntu's smallest images have no xz; Python has the same.
command -v xz >/dev/null || xz() {
    python3 -c 'import lzma, shutil, sys
shutil.copyfileobj(lzma.open(sys.argv[1] if len(sys.argv) > 1 else sys.stdin.buffer), sys.stdout.buffer)' ${2:+"$2"}
}
say() { echo "== $(($(date +%s) - begin)) s: $*"; }
begin=$(date +%s)

assemble() {
    mkdir -p "$lab"
    mkdir -p "$lab/try/a" "$lab/try/b" "$lab/try/c" "$lab/try/d"
    if mount -t overlay try -o "lowerdir=$lab/try/a,upperdir=$lab/try/b,workdir=$lab/try/c" "$lab/try/d" 2>/dev/null; then
        umount "$lab/try/d"
    else
        say "no overlay on $(stat -f -c %T "$lab"): the lab is in memory"
        mount -t tmpfs -o size=60g,mode=755 lab "$lab"
    fi
    rm -rf "$lab/try"
    cache=$lab/cache
    base=$cache/root-$(cat "$here/identity")/root
    mkdir -p "$base" "$cache/$(basename "$(dirname "$base")")/apt" "$lab/state" "$lab/upper" "$lab/work" "$lab/checkout" "$op"
    cat "$here"/root.tar.xz* | xz -dc | tar -x --numeric-owner -C "$base" &
    root=$!
    cat "$here"/operator.tar.xz* | xz -dc | tar -x --numeric-owner -C "$lab/upper" &
    operator=$!
    xz -dc "$here/checkout.tar.xz" | tar -x --no-same-owner -C "$lab/checkout"
    wait $operator
    wait $root
    # What later calls brought: more of the hosts' root, of the operator's, and the servers' content.
    for part in "$here"/more-root*.tar.xz; do
        [ ! -e "$part" ] || xz -dc "$part" | tar -x --numeric-owner -C "$base" &
    done
    for part in "$here"/more-operator*.tar.xz; do
        [ ! -e "$part" ] || xz -dc "$part" | tar -x --numeric-owner -C "$lab/upper" &
    done
    if [ -e "$here/services.tar" ]; then tar -x --no-same-owner -f "$here/services.tar" -C "$cache"; fi
    wait
    for wheel in "$here"/more/uv-*.whl; do
        [ -e "$wheel" ] || continue
        (cd "$lab" && python3 -c "import sys, zipfile
archive = zipfile.ZipFile(sys.argv[1])
[name] = [name for name in archive.namelist() if name.endswith('scripts/uv')]
open(sys.argv[2], 'wb').write(archive.read(name))" "$wheel" "$lab/upper/opt/venv/bin/uv")
        chmod 755 "$lab/upper/opt/venv/bin/uv"
    done
    say "unpacked: $(du -sh "$lab" | cut -f1)"
    # The checkout in the operator's venv, as an editable install has it.
    about=$lab/upper/opt/venv/lib/python3.11/site-packages/lockstep-0.1.0.dist-info
    mkdir -p "$about"
    printf 'Metadata-Version: 2.1\nName: lockstep\nVersion: 0.1.0\n' >"$about/METADATA"
    # The venv with torch, at its own path in the hosts' root: links where the file system is one.
    torch=${TORCH:-/opt/torch}
    if [ -d "$torch" ]; then
        mkdir -p "$base$(dirname "$torch")"
        cp -al "$torch" "$base$torch" 2>/dev/null || { rm -rf "$base$torch"; cp -a "$torch" "$base$torch"; }
        say "torch is in the hosts' root"
    fi
}

# A driver of packages lies in folders that the operator's root has of its own: a copy goes in, at
# the place that lab/host/gpu.py looks at first. Files in place of links, which may leave the folder.
copy_driver() {
    mkdir -p "$op/usr/local/nvidia/lib64" "$op/usr/local/nvidia/bin"
    for folder in /usr/lib/x86_64-linux-gnu /usr/lib64; do
        [ -e "$folder/libnvidia-ml.so.1" ] || continue
        find -L "$folder" -maxdepth 1 -type f \( -name 'libcuda.so*' -o -name 'libcudadebugger.so*' \
            -o -name 'libnvcuvid.so*' -o -name 'libnvidia-*.so*' \) -exec cp -t "$op/usr/local/nvidia/lib64" {} +
        break
    done
    [ ! -e /usr/bin/nvidia-smi ] || cp -L /usr/bin/nvidia-smi "$op/usr/local/nvidia/bin/"
}

bind() { [ ! -d "$1" ] || { mkdir -p "$op$1" && mount --rbind "$1" "$op$1"; }; }

entered() { nsenter -t "$(cat "$lab/holder")" -m -r -w test -s /run/holder; } 2>/dev/null

# A mount namespace whose root is the operator's.
enter() {
    mount --make-rprivate /
    mount -t overlay operator -o "lowerdir=$base,upperdir=$lab/upper,workdir=$lab/work" "$op"
    rm -rf "$op/usr/bin/nvidia-smi" "$op/usr/local/cuda" "$op/usr/local/cuda-13" "$op/usr/local/cuda-13.0"
    for tool in mmdebstrap dpkg-scanpackages skopeo; do
        # They build parts. All parts are here, so none is called: it would fail.
        [ -e "$op/usr/bin/$tool" ] || ln -s /bin/false "$op/usr/bin/$tool"
    done
    mkdir -p "$op/proc" "$op/sys" "$op/dev" "$op/run" "$op/old" "$op/lockstep" "$op/machine" "$op/lab"
    for place in proc sys dev; do mount --rbind "/$place" "$op/$place"; done
    mount -t tmpfs -o mode=755 run "$op/run"
    # One mount, because the servers link files of the cache into the lab's state.
    mount --bind "$lab" "$op/lab"
    mount --bind "$lab/checkout" "$op/lockstep"
    mount --bind "$here" "$op/machine"
    bind /usr/local/cuda
    if [ -e /usr/local/nvidia/bin/nvidia-smi ]; then bind /usr/local/nvidia; else copy_driver; fi
    ln -sfn /opt/venv "$op/lockstep/.venv"
    : >"$op/etc/resolv.conf"
    cd "$op"
    pivot_root . old
    cd /
    umount -l /old
    exec setsid sh -c 'echo $$ >/run/holder; exec sleep infinity' </dev/null >/dev/null 2>&1
}

command=${1:-}
base=$lab/cache/root-$(cat "$here/identity")/root
case "$command" in
    assemble) assemble ;;
    enter)
        if entered; then exit 0; fi
        unshare --mount sh "$0" in &
        echo $! >"$lab/holder"
        i=0
        until entered; do
            i=$((i + 1)); [ $i -lt 250 ] || { echo "the operator's root is not entered" >&2; exit 1; }
            sleep 0.1
        done
        ;;
    in) enter ;;
    do)
        shift
        exec nsenter -t "$(cat "$lab/holder")" -m -r -w env -i HOME=/root TERM=dumb LANG=C.UTF-8 \
            LOCKSTEP_LAB="${LOCKSTEP_LAB:-lab}" LOCKSTEP_LAB_STATE=/lab/state LOCKSTEP_LAB_CACHE=/lab/cache PATH=/lockstep/.venv/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
            sh -c 'cd /lockstep && exec "$@"' sh "$@"
        ;;
    *) echo "usage: boot.sh assemble | enter | do COMMAND..." >&2; exit 2 ;;
esac
