#!/usr/bin/env bash
# Installs the Debian packages named that are not there yet, and starts none of their services. Needs root and a network.
set -euo pipefail

missing=()
for package; do
    dpkg-query --show --showformat '${db:Status-Status}' "$package" 2>/dev/null | grep -qx installed || missing+=("$package")
done
[ ${#missing[@]} -gt 0 ] || exit 0
[ "$(id -u)" = 0 ] || { echo "to be installed by root: apt-get install ${missing[*]}" >&2; exit 1; }

# What Debian asks before it starts a service; where a machine has an answer of its own, that stands.
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
    printf '#!/bin/sh\nexit 101\n' >"$policy"
    chmod 755 "$policy"
    trap 'rm -f "$policy"' EXIT
fi
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install --yes -qq --no-install-recommends "${missing[@]}" >/dev/null
