#!/usr/bin/env bash
# Follow a partition and pick from each record what matters: one line a record, as it arrives. Ctrl-C ends it.
#
#   examples/follow-with-jq.sh TOPIC/PARTITION [MOUNTPOINT]
set -euo pipefail
exec jq --unbuffered --raw-output '"\(.offset)\t\(.key // "-")\t\(.payload)"' "${2:-mnt}/$1/follow.json"
