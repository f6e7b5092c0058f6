#!/usr/bin/env bash
# Copy a topic, record by record: values, keys, headers and times. Lines read from .json can be appended to .json.
#
#   examples/copy-a-topic.sh FROM TO [MOUNTPOINT]
#
# The script copies the range from offset 0 to the present end, and so it ends. `cat log >> log` of one topic would never
# end.
set -euo pipefail
mount=${3:-mnt}

mkdir "$mount/$2"
for partition in "$mount/$1"/[0-9]*; do
    number=${partition##*/}
    mkdir -p "$mount/$2/$number"
    end=$(sed -n 's/^log_end_offset //p' "$partition/status")
    [ "$end" -eq 0 ] || cat "$partition/0-$((end - 1)).json" >>"$mount/$2/$number/log.json"
done
