#!/usr/bin/env bash
# Copy a topic, record by record: values, keys, headers and times. What .json prints, .json takes back.
#
#   examples/copy-a-topic.sh FROM TO [MOUNTPOINT]
#
# The range from offset 0 up to the end as it is now is copied: `cat log >> log` of one and the same topic would never
# end, a range does.
set -euo pipefail
mount=${3:-mnt}

mkdir "$mount/$2"
for partition in "$mount/$1"/[0-9]*; do
    number=${partition##*/}
    [ -d "$mount/$2/$number" ] || mkdir "$mount/$2/$number"
    end=$(sed -n 's/^log_end_offset //p' "$partition/status")
    [ "$end" -eq 0 ] || cat "$partition/0-$((end - 1)).json" >>"$mount/$2/$number/log.json"
done
