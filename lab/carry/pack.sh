#!/bin/sh
# WIP, typed from the commands that made the parts on 2026-11-29; not run as a whole yet.
# usage: pack.sh WORK OUT PYTHON312_DEBS   on a machine where `lockstep lab build` has run, with network.
set -eu
here=$(cd "$(dirname "$0")" && pwd); checkout=$(cd "$here/../.." && pwd)
w=$1 out=$2 debs=$3; mkdir -p "$w" "$out"; cd "$w"
id=$("$checkout/.venv/bin/python" -c 'from lab import root; print(root.identity())'); echo "$id" >"$out/identity"
base=/var/cache/lockstep-lab/root-$id/root
layer() { # layer NAME LOWER DEBS...: install packages into an overlay
    name=$1 lower=$2; shift 2; mkdir -p "u$name" "w$name" "m$name"
    mount -t overlay "o$name" -o "lowerdir=$lower,upperdir=u$name,workdir=w$name" "m$name"
    cp /etc/resolv.conf "m$name/etc/resolv.conf"; mount -t proc proc "m$name/proc"; mount --bind /dev "m$name/dev"
    apt-config dump | grep -E '^Acquire::(https?|Retries|Check-|ForceIPv)' | grep -v ' "";' >"m$name/etc/apt/apt.conf.d/99tmp" || true
    echo 'deb http://deb.debian.org/debian trixie main' >"m$name/etc/apt/sources.list"
    printf '#!/bin/sh\nexit 101\n' >"m$name/usr/sbin/policy-rc.d"; chmod +x "m$name/usr/sbin/policy-rc.d"
    for deb; do case $deb in /*.deb) cp "$deb" "m$name/tmp/"; set -- "$@" "/tmp/$(basename "$deb")" ;; *) set -- "$@" "$deb" ;; esac; shift; done
    chroot "m$name" sh -c 'export DEBIAN_FRONTEND=noninteractive; apt-get -qq update && apt-get -qq install -y --no-install-recommends "$@" && apt-get clean' sh "$@"
    rm -rf "m$name/tmp/"*.deb "m$name/var/lib/apt/lists/"* "m$name/etc/apt/apt.conf.d/99tmp" "m$name/etc/apt/sources.list" \
        "m$name/usr/sbin/policy-rc.d"
    umount "m$name/dev" "m$name/proc"
}
# The hosts' root with Python 3.12 (Ubuntu 24.04's packages run on trixie), then the operator's on top.
layer 0 "$base" "$debs"/python3.12_*.deb "$debs"/python3.12-minimal_*.deb "$debs"/libpython3.12-minimal_*.deb "$debs"/libpython3.12-stdlib_*.deb
rm -f m0/etc/resolv.conf
layer 1 "$w/u0:$base" systemd-container docker-registry git nftables
chroot m1 python3.11 -m venv --without-pip /opt/venv; site=opt/venv/lib/python3.11/site-packages
"$checkout/.venv/bin/uv" pip install -q --python-version 3.11 --python-platform x86_64-manylinux_2_34 --target "m1/$site" --require-hashes -r "$checkout/requirements/run.txt"
# The hub's fingerprint asks for the release of tokenizers.
"$checkout/.venv/bin/uv" pip install -q --python-version 3.11 --python-platform x86_64-manylinux_2_34 --no-deps --target "m1/$site" "tokenizers==$("$checkout/.venv/bin/python" -c 'import tokenizers; print(tokenizers.__version__)')"
for pair in lockstep:lockstep.cli.main:main pyinfra:pyinfra_cli.cli:cli; do
    IFS=: read -r name module function <<X
$pair
X
    printf '#!/opt/venv/bin/python\nimport sys\nfrom %s import %s\nsys.exit(%s())\n' "$module" "$function" "$function" >"m1/opt/venv/bin/$name"
    chmod +x "m1/opt/venv/bin/$name"
done
echo /lockstep >"m1/$site/lockstep.pth"; umount m1
find u1 -name __pycache__ -prune -exec rm -rf {} +
(cd m0; tar -c --one-file-system -X "$here/root-later.txt" .) | xz -T2 -6 >"$out/root.tar.xz"
(cd u1; tar -c --one-file-system --exclude ./lockstep -X "$here/operator-later.txt" .) | xz -T2 -6 >"$out/operator.tar.xz"
(cd m0; tar -c --no-recursion -T "$here/docker.txt") | xz -T2 -6 >"$out/more-root-docker.tar.xz"
(cd u1; sed 's#^\./##' "$here/operator-later.txt" | while read -r path; do ls -d $path 2>/dev/null; done | grep -v site-packages/bin | tar -c -T -) | xz -T2 -6 >"$out/more-operator.tar.xz"
(cd "$checkout"; git ls-files -co --exclude-standard | grep -v '^tests/' | tar -c --owner=0 --group=0 -T - | xz -3) >"$out/checkout.tar.xz"
cp "$here/boot.sh" "$here/call1.sh" "$out/"
