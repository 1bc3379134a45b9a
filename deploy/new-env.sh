#!/bin/sh
# Make .env out of .env.example, with a password or a key of its own wherever that has none. An .env that is there stays.
#
#   sh deploy/new-env.sh
#   COMPOSE_PROJECT_NAME=gpuyard2 sh deploy/new-env.sh    for one more stack on the same machine
set -eu
cd "$(dirname "$0")/.."

if [ -e .env ]; then
    echo "there is an .env already: it was left as it is" >&2
    exit 1
fi
# New passwords open no database that is there, and would take the broker of a stack that runs from it.
stack=${COMPOSE_PROJECT_NAME:-gpuyard}
if docker volume inspect "${stack}_postgres" >/dev/null 2>&1; then
    echo "this machine has a stack $stack already: its passwords are in the .env that it was started with. Put that one" >&2
    echo "here; for one more stack beside it: COMPOSE_PROJECT_NAME=${stack}2 sh deploy/new-env.sh" >&2
    exit 1
fi
random() { od -An -N32 -tx1 /dev/urandom | tr -d ' \n'; }

umask 077
trap 'rm -f .env.new' EXIT
while IFS= read -r line; do
    case $line in
        "# COMPOSE_PROJECT_NAME="*) [ "$stack" = gpuyard ] || line="COMPOSE_PROJECT_NAME=$stack" ;;
        \#*) ;;
        *_TOKEN= | *_KEY=) line="${line}gk-$(random)" ;;
        *_PASSWORD=) line="$line$(random)" ;; # hexadecimal: it has to fit into a URL
    esac
    printf '%s\n' "$line"
done < .env.example > .env.new
mv .env.new .env
echo "made .env: keep it, and keep it to yourself. Your key is its GPUYARD_BOOTSTRAP_TOKEN" >&2
