#!/usr/bin/env bash
# Follow a partition and print a line with the interesting fields of each record as it arrives. Ctrl-C ends this.
#
#   examples/follow-with-jq.sh TOPIC/PARTITION [MOUNTPOINT]
set -euo pipefail
exec jq --unbuffered --raw-output '"\(.offset)\t\(.key // "-")\t\(.payload)"' "${2:-mnt}/$1/follow.json"
