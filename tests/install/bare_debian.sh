#!/usr/bin/env bash
# From a clone to the first answer on a bare Debian, as a user without root, with empty caches, and how long it took.
#
#   tests/install/bare_debian.sh [TARGET...]      make targets, "demo test" unless named
#
# Needs root, debootstrap, and a network. Takes minutes and a gigabyte, so it is no part of `make test`. What is tried is the
# last commit of this clone. How this machine reaches Debian's and Python's packages (resolver, certificates, pip's
# configuration, environment variables of pip and of TLS) is lent to the new system for the time of the run.
#
#   ROOTFS=DIR    use or make the system there and keep it (a temporary folder that is removed, unless given)
#   SUITE=NAME    the release of Debian (bookworm)
set -euo pipefail

targets=("$@")
[ $# -gt 0 ] || targets=(demo test)
suite=${SUITE:-bookworm}
clone=$(cd "$(dirname "$0")/../.." && pwd)
[ "$(id -u)" = 0 ] || { echo "this check needs root: it makes a root file system" >&2; exit 2; }
command -v debootstrap >/dev/null || { echo "this check needs debootstrap: apt-get install debootstrap" >&2; exit 2; }

if [ -n "${ROOTFS:-}" ]; then
    root=$ROOTFS
else
    root=$(mktemp -d /var/tmp/gpuyard-debian-XXXXXX)
fi
mounted=()
clean_up() {
    local status=$?
    for ((i = ${#mounted[@]} - 1; i >= 0; i--)); do umount "${mounted[i]}"; done
    # Never below a mount: a failed umount above must not cost this machine its /proc or /dev.
    if [ -z "${ROOTFS:-}" ] && ! grep -q " $root/" /proc/mounts; then rm -rf --one-file-system "$root"; fi
    exit $status
}
trap clean_up EXIT

if [ ! -x "$root/usr/bin/make" ]; then
    echo "== $suite into $root"
    debootstrap --variant=minbase --include=python3,python3-venv,git,make,ca-certificates "$suite" "$root" >"$root.log" 2>&1 ||
        { tail -5 "$root.log" >&2; exit 1; }
    rm -f "$root.log"
    chroot "$root" useradd --create-home --shell /bin/bash person
fi

mount -t proc proc "$root/proc" && mounted+=("$root/proc")
mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm" && mounted+=("$root/dev/shm")
mkdir -p "$root/dev/pts"
mount -t devpts -o newinstance,ptmxmode=0666 devpts "$root/dev/pts" && mounted+=("$root/dev/pts")
install -m 644 /etc/resolv.conf /etc/hosts "$root/etc/"
for file in /etc/pip.conf /etc/ssl/certs/ca-certificates.crt; do
    [ ! -f "$file" ] || install -D -m 644 "$file" "$root$file"
done
lent=()
while IFS= read -r -d '' variable; do
    case ${variable%%=*} in
        PIP_FIND_LINKS) ;; # a folder of this machine
        PIP_* | *_CA_BUNDLE | SSL_CERT_* | *_proxy | *_PROXY) lent+=("$variable") ;;
    esac
done < <(env -0)

as_person() { # COMMAND: in the clone, with a clean environment
    chroot --userspec=person:person "$root" \
        env -i HOME=/home/person USER=person PATH=/usr/local/bin:/usr/bin:/bin LANG=C.UTF-8 "${lent[@]}" \
        bash -c "cd /home/person${2-/gpuyard} && $1"
}

echo "== what it has: $(chroot "$root" sh -c 'cat /etc/debian_version; python3 --version; command -v cc gcc redis-server postgres initdb docker' | tr '\n' ' ')"
rm -rf "$root/home/person"/{gpuyard,.cache,.local,.config}
git clone --quiet --bare "$clone" "$root/home/person/origin.git.new"
rm -rf "$root/home/person/origin.git" && mv "$root/home/person/origin.git"{.new,}
chroot "$root" chown -R person:person /home/person

for target in "${targets[@]}"; do
    begun=$(date +%s.%N)
    if [ ! -d "$root/home/person/gpuyard" ]; then
        as_person "git clone --quiet origin.git gpuyard" ""
    fi
    echo "== make $target"
    as_person "make $target" | awk -v begun="$begun" '{
        print
        if (!seen && /^prompt-[0-9]+ /) { seen = 1; "date +%s.%N" | getline now; printf "== first answer %.1f s after the start\n", now - begun }
        fflush()
    }'
    echo "== make $target took $(awk -v a="$begun" -v b="$(date +%s.%N)" 'BEGIN { printf "%.1f", b - a }') s"
done
