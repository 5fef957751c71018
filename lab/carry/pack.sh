#!/bin/sh
# Make the parts of a lab for a machine that has a GPU and no network.
#
# usage: pack.sh WORK OUT DEBS   as root on an x86-64 machine with Debian 12 and network, where
# `lockstep lab build` has run. WORK takes 3 GB. DEBS is a folder with Ubuntu 24.04's packages
# python3.12, python3.12-minimal, libpython3.12-minimal, libpython3.12-stdlib (for the hosts' root),
# and python3.12-dev, python3.12-venv, libpython3.12t64, libpython3.12-dev with Debian 13's
# zlib1g-dev and libexpat1-dev (for the lab's apt repository): Python as DGX OS has it.
#
# Of the parts in OUT, first_look.sh needs identity, boot.sh, root, operator and checkout; whole_run.py all,
# and vllm.tar.xz of benchmarks.cuda.parts beside them. The lists here say what the first parts leave
# to the later ones, so that each is small where only so much can be carried at once.
#
# Its parts booted on 2026-11-29 on two H200, with a services.tar and a more-root-gcc made by hand, of
# fewer models and a smaller compiler (42 and 34 MB; here 200 and 56), and two programs changed since.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
checkout=$(cd "$here/../.." && pwd)
mkdir -p "$1" "$2/more"
work=$(realpath "$1") out=$(realpath "$2") debs=$(realpath -e "$3")
cache=${LOCKSTEP_LAB_CACHE:-/var/cache/lockstep-lab}
python=$checkout/.venv/bin/python
cd "$work"
identity=$("$python" -c 'from lab import root; print(root.identity())')
echo "$identity" >"$out/identity"
# The archive that this machine's own apt uses.
mirror=$("$python" -c 'from lab.core import debian; print(debian.mirror())')
base=$cache/root-$identity/root

# layer NAME LOWER PACKAGES...: install packages into an overlay, which stays mounted as m$name
layer() {
    name=$1 lower=$2
    shift 2
    mkdir -p "u$name" "w$name" "m$name"
    mount -t overlay "o$name" -o "lowerdir=$lower,upperdir=u$name,workdir=w$name" "m$name"
    cp /etc/resolv.conf "m$name/etc/resolv.conf"
    mount -t proc proc "m$name/proc"
    mount --bind /dev "m$name/dev"
    apt-config dump | grep -E '^Acquire::(https?|Retries|Check-|ForceIPv)' | grep -v ' "";' \
        >"m$name/etc/apt/apt.conf.d/99carry" || true
    echo "deb $mirror trixie main" >"m$name/etc/apt/sources.list"
    printf '#!/bin/sh\nexit 101\n' >"m$name/usr/sbin/policy-rc.d"
    chmod +x "m$name/usr/sbin/policy-rc.d"
    for package; do
        shift
        case $package in
            *.deb) cp "$package" "m$name/tmp/" && set -- "$@" "/tmp/$(basename "$package")" ;;
            *) set -- "$@" "$package" ;;
        esac
    done
    chroot "m$name" sh -c 'export DEBIAN_FRONTEND=noninteractive
        apt-get -qq update && apt-get -qq install -y --no-install-recommends "$@" && apt-get clean' sh "$@"
    rm -rf "m$name/tmp/"*.deb "m$name/var/lib/apt/lists/"* "m$name/etc/apt/apt.conf.d/99carry" \
        "m$name/etc/apt/sources.list" "m$name/usr/sbin/policy-rc.d"
    umount "m$name/dev" "m$name/proc"
}

# install WORDS...: Python packages for the operator, whose Python is the root's 3.11
install() {
    "$checkout/.venv/bin/uv" pip install -q --python-version 3.11 --target "m1/$site" \
        --python-platform x86_64-manylinux_2_34 "$@"
}

# The hosts' root with Python 3.12, and the operator's on top of it.
layer 0 "$base" "$debs"/python3.12_*.deb "$debs"/python3.12-minimal_*.deb \
    "$debs"/libpython3.12-minimal_*.deb "$debs"/libpython3.12-stdlib_*.deb
rm -f m0/etc/resolv.conf
layer 1 "$work/u0:$base" systemd-container docker-registry git nftables
chroot m1 python3.11 -m venv --without-pip /opt/venv
site=opt/venv/lib/python3.11/site-packages
install --require-hashes -r "$checkout/requirements/run.txt"
# The hub's fingerprint asks for the release of tokenizers.
install --no-deps "tokenizers==$("$python" -c 'import tokenizers; print(tokenizers.__version__)')"
program() {
    printf '#!/opt/venv/bin/python\nimport sys\nfrom %s import %s\nsys.exit(%s())\n' "$2" "$3" "$3" \
        >"m1/opt/venv/bin/$1"
    chmod +x "m1/opt/venv/bin/$1"
}
program lockstep lockstep.cli.main main
program pyinfra pyinfra_cli.main main
echo /lockstep >"m1/$site/lockstep.pth"
umount m1
find u1 -name __pycache__ -prune -exec rm -rf {} +

pack() { xz -T2 -6 >"$out/$1.tar.xz"; }
(cd m0 && tar -c --one-file-system -X "$here/root-later.txt" .) | pack root
(cd m0 && tar -c --no-recursion -T "$here/docker.txt") | pack more-root-docker
# The compiler: what is later, without Docker and what nobody needs.
(
    cd m0
    for folder in usr/libexec/gcc usr/lib/gcc usr/include usr/lib/linux/uapi usr/lib/x86_64-linux-gnu/gconv \
        usr/lib/x86_64-linux-gnu/ldscripts usr/lib/x86_64-linux-gnu/*.a usr/bin/x86_64-linux-gnu-* \
        usr/lib/x86_64-linux-gnu/libisl* usr/lib/x86_64-linux-gnu/libbfd* usr/lib/x86_64-linux-gnu/libopcodes*; do
        [ ! -e "$folder" ] || echo "$folder"
    done | tar -c -T -
) | pack more-root-gcc
(cd u1 && tar -c --one-file-system --exclude ./lockstep -X "$here/operator-later.txt" .) | pack operator
(
    cd u1
    while read -r pattern; do
        # shellcheck disable=SC2086 # It is a pattern.
        for path in $pattern; do [ ! -e "$path" ] || echo "$path"; done
    done <"$here/operator-later.txt" | grep -v site-packages/bin | tar -c -T -
) | pack more-operator
umount m0
(cd "$checkout" && git ls-files -co --exclude-standard | grep -v '^tests/' |
    tar -c --owner=0 --group=0 -T - | xz -3) >"$out/checkout.tar.xz"

# What the servers have: models, the fork, Debian's packages, and an index of no packages, because
# `python -m lab.packages.installed_wheels` makes the one that counts.
mkdir -p services
for content in git hub precompiled; do cp -a "$cache/$content"-*[0-9a-f] services/; done
for content in wheels registry image-base; do
    for folder in "$cache/$content"-*[0-9a-f]; do mkdir -p "services/$(basename "$folder")"; done
done
for folder in "$cache"/index-*[0-9a-f]; do
    for index in simple torch flashinfer; do
        mkdir -p "services/$(basename "$folder")/$index"
        echo '<!DOCTYPE html><html><body></body></html>' >"services/$(basename "$folder")/$index/index.html"
    done
done
mkdir -p "services/root-$identity"
cp -a "$cache/root-$identity/apt" "services/root-$identity/"
for name in python3.12-dev python3.12-venv libpython3.12t64 libpython3.12-dev zlib1g-dev libexpat1-dev; do
    cp "$debs/$name"_*.deb "services/root-$identity/apt/"
done
(cd "$checkout" && "$python" -c 'import pathlib, sys; from lab.root import index_repository
index_repository(pathlib.Path(sys.argv[1]))' "$work/services/root-$identity/apt")
(cd services && tar -c --owner=0 --group=0 .) >"$out/services.tar"
# The deploy asks the package index for these two, and no machine has them installed.
"$checkout/.venv/bin/uv" run --no-project --with pip python -m pip download -q --no-deps -d "$out/more" pip uv
cp "$here/boot.sh" "$here/first_look.sh" "$out/"
# The whole run, under its own name: `python3 -m lab.carry.whole_run` in the folder of the parts.
(cd "$checkout" && git ls-files -co --exclude-standard lab/__init__.py 'lab/carry/*.py') |
    tar -C "$checkout" -c --owner=0 --group=0 -T - | tar -x -C "$out"
ls -l "$out"
