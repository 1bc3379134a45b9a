#!/bin/sh
# Send every *.jsonl of a folder as a batch, and leave its results beside it as NAME.out.jsonl.
# A file that already has its results is left alone, so a cron line may call this as often as it likes:
#     */10 * * * * cd /srv/gpuyard && . .venv/bin/activate && flock -n /srv/batches/.lock examples/folder.sh /srv/batches
# Usage: folder.sh FOLDER       (GPUYARD_SERVER_URL and GPUYARD_API_KEY, unless a local `gpuyard up` is found)
set -eu
failed=0
for file in "${1:?name a folder}"/*.jsonl; do
    case $file in
        *.out.jsonl | *"/*.jsonl") continue ;;
    esac
    results="${file%.jsonl}.out.jsonl"
    [ -e "$results" ] && continue
    echo "sending $file" >&2
    gpuyard submit "$file" --watch -o "$results.part" || failed=1
    # Whole or not at all: a file without results (the server was away, or it has a bad line) is sent again by the next call.
    if [ -s "$results.part" ]; then mv "$results.part" "$results"; fi
done
exit $failed
