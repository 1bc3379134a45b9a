#!/bin/sh
# Make .env out of .env.example, with a password or a key of its own wherever that has none. An .env that is there stays.
#
#   sh deploy/new-env.sh
set -eu
cd "$(dirname "$0")/.."

if [ -e .env ]; then
    echo "there is an .env already: it was left as it is" >&2
    exit 1
fi
random() { od -An -N32 -tx1 /dev/urandom | tr -d ' \n'; }

umask 077
trap 'rm -f .env.new' EXIT
while IFS= read -r line; do
    case $line in
        \#*) ;;
        *_TOKEN= | *_KEY=) line="${line}gk-$(random)" ;;
        *_PASSWORD=) line="$line$(random)" ;; # hexadecimal: it has to fit into a URL
    esac
    printf '%s\n' "$line"
done < .env.example > .env.new
mv .env.new .env
echo "made .env: keep it, and keep it to yourself. Your key is its GPUYARD_BOOTSTRAP_TOKEN" >&2
